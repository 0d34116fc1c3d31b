// Whatever one rank finds out alone, all ranks end with the same words.
#include "cli/bw_agree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "collectives/transport/in_process.h"
#include "tests/harness/ranks.h"

namespace zpp::cli {
namespace {

using testing::HasSubstr;

// What each of `cards.size()` ranks is told.
std::vector<Status> Agree(const std::vector<Readiness>& cards) {
  const int world = static_cast<int>(cards.size());
  InProcessWorld group = MakeInProcessWorld(world);
  std::vector<Status> told(cards.size());
  const auto outcomes = test::RunThreads(world, [&](int rank) -> Result<std::string> {
    CommunicatorOptions options;
    options.timeout_s = 30;
    ZPP_ASSIGN_OR_RETURN(
        auto comm, Communicator::Create(std::move(group.transports[rank]), group.controls[rank],
                                        Topology::Flat(world), options));
    told[rank] = AgreeToGoOn(*comm, cards[rank]);
    ZPP_RETURN_IF_ERROR(comm->Shutdown(Deadline::In(10)));
    return std::string();
  });
  EXPECT_TRUE(test::AllOk(outcomes));
  return told;
}

void ExpectAll(const std::vector<Readiness>& cards, StatusCode code, const std::string& part) {
  for (const Status& status : Agree(cards)) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
}

TEST(AgreeToGoOn, AllWell) {
  ExpectAll(std::vector<Readiness>(1), StatusCode::kOk, "");
  ExpectAll(std::vector<Readiness>(3, {{}, 7, 8}), StatusCode::kOk, "");
}

TEST(AgreeToGoOn, TheFirstComplaintIsEverybodys) {
  std::vector<Readiness> cards(4);
  cards[2].status = {StatusCode::kNotFound, "cannot open 'x'"};
  cards[3].status = DataLoss("later");
  ExpectAll(cards, StatusCode::kNotFound, "rank 2: cannot open 'x'");
  cards[0].status = InvalidArgument(std::string(5000, 'a'));
  ExpectAll(cards, StatusCode::kInvalidArgument, "rank 0: aaaa");
  ExpectAll({{DataLoss("alone"), 0, 0}}, StatusCode::kDataLoss, "alone");
}

TEST(AgreeToGoOn, WhoDiffersIsNamed) {
  std::vector<Readiness> cards(3, {{}, 7, 8});
  cards[1].values = 9;
  ExpectAll(cards, StatusCode::kMismatch, "rank 1's --data holds other values than rank 0's");
  cards[1].arguments = 9;
  ExpectAll(cards, StatusCode::kMismatch, "rank 1 was started with other flags than rank 0");
}

TEST(DigestOf, ChangesWithWhatIsMeasured) {
  const BwArgs args = [] {
    BwArgs made;
    made.sizes_bytes = {1024, 4096};
    made.policy.intra = QuantSpec::Int8();
    return made;
  }();
  const std::vector<std::function<void(BwArgs*)>> changes = {
      [](BwArgs* a) { a->kind = CollectiveKind::kAllReduce; },
      [](BwArgs* a) {
        a->sizes_bytes = {1024, 8192};
      },
      [](BwArgs* a) { a->sizes_bytes = {1024}; },
      [](BwArgs* a) { a->dtype = DType::kBF16; },
      [](BwArgs* a) { a->op = ReduceOp::kAvg; },
      [](BwArgs* a) { a->iters = 7; },
      [](BwArgs* a) { a->warmup = 7; },
      [](BwArgs* a) { a->seconds = 2; },
      [](BwArgs* a) { a->policy.inter = QuantSpec::Int8(); },
      [](BwArgs* a) { a->policy.flat = true; },
      [](BwArgs* a) { a->size_of_data = true; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    BwArgs other = args;
    changes[i](&other);
    EXPECT_NE(DigestOf(other), DigestOf(args)) << i;
  }
  // What one rank alone does with the result.
  BwArgs same = args;
  same.json = "x";
  same.explain = true;
  EXPECT_EQ(DigestOf(same), DigestOf(args));
}

}  // namespace
}  // namespace zpp::cli
