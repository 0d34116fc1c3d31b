// `zpp bw` with ranks as threads: what it measures is verified, and what it writes is the schema.
#include "cli/bw_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/bw_json.h"
#include "cli/bw_table.h"
#include "collectives/transport/in_process.h"
#include "tests/harness/ranks.h"

namespace zpp::cli {
namespace {

using nlohmann::json;

BwArgs Args(const std::string& collective, const std::function<void(BwFlags*)>& change = {}) {
  BwFlags flags;
  flags.collective = collective;
  flags.ranks = 4;
  flags.iters = 3;
  flags.warmup = 1;
  flags.min_size = "1K";
  flags.max_size = "100K";
  flags.factor = 10;
  if (change) change(&flags);
  Result<BwArgs> args = ResolveBw(flags, nullptr);
  EXPECT_TRUE(args.ok()) << args.status().ToString();
  return *std::move(args);
}

// Rank 0's rows.
std::vector<BwRow> Measure(const BwArgs& args, const Topology& topology,
                           const std::vector<float>& data = {}) {
  InProcessWorld group = MakeInProcessWorld(topology.world());
  const Values values(args.dtype, data, topology.world());
  std::vector<BwRow> rows;
  const auto outcomes = test::RunThreads(topology.world(), [&](int rank) -> Result<std::string> {
    CommunicatorOptions options;
    options.timeout_s = 30;
    ZPP_ASSIGN_OR_RETURN(auto comm, Communicator::Create(std::move(group.transports[rank]),
                                                         group.controls[rank], topology, options));
    BwSession session(args, values, *comm);
    ZPP_RETURN_IF_ERROR(session.Allocate());
    for (const int64_t size : args.sizes_bytes) {
      ZPP_ASSIGN_OR_RETURN(BwRow row, session.Measure(size));
      if (rank == 0) rows.push_back(row);
    }
    ZPP_RETURN_IF_ERROR(comm->Shutdown(Deadline::In(10)));
    return std::string();
  });
  EXPECT_TRUE(test::AllOk(outcomes));
  return rows;
}

struct Case {
  std::string name;
  std::string collective;
  std::function<void(BwFlags*)> change;
};

class BwSessionCases : public testing::TestWithParam<Case> {};

TEST_P(BwSessionCases, EverythingIsWithinBounds) {
  const BwArgs args = Args(GetParam().collective, GetParam().change);
  const std::vector<Topology> topologies = {Topology::Flat(1), Topology::Flat(3),
                                            *Topology::EvenNodes(4, 2), *Topology::EvenNodes(5, 3),
                                            *Topology::Regular(std::vector<int>{2, 2, 2})};
  for (const Topology& topology : topologies) {
    const std::vector<BwRow> rows = Measure(args, topology);
    ASSERT_EQ(rows.size(), args.sizes_bytes.size());
    for (const BwRow& row : rows) {
      EXPECT_EQ(row.baseline.nwrong, 0) << topology.ToText();
      EXPECT_GT(row.baseline.time_us, 0);
      if (!args.reduces()) {
        EXPECT_EQ(row.baseline.rel_error, 0);
      }
      if (!row.compressed) continue;
      EXPECT_EQ(row.compressed->nwrong, 0) << topology.ToText() << row.size_bytes;
      EXPECT_LT(row.compressed->rel_error, 0.4);
      if (topology.world() > 1) {
        EXPECT_LT(row.compressed->wire.total(), row.baseline.wire.total());
        EXPECT_GT(row.compressed->rel_error, 0.003);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BwSessionCases,
    testing::Values(
        Case{"AllGather", "all_gather", {}}, Case{"ReduceScatter", "reduce_scatter", {}},
        Case{"AllReduce", "all_reduce", {}}, Case{"AllToAll", "all_to_all", {}},
        Case{"Broadcast", "broadcast", {}},
        Case{"AverageInHalf", "reduce_scatter",
             [](BwFlags* f) { f->op = "avg", f->dtype = "fp16"; }},
        Case{"AllReduceInBfloat", "all_reduce", [](BwFlags* f) { f->dtype = "bf16"; }},
        Case{"GatherInt4InHalf", "all_gather",
             [](BwFlags* f) { f->dtype = "fp16", f->intra = "int4", f->inter = "int4"; }},
        Case{"Stochastic", "all_reduce", [](BwFlags* f) { f->rounding = "stochastic"; }},
        Case{"OnlyAcross", "reduce_scatter", [](BwFlags* f) { f->inter = f->intra = "int4"; }},
        Case{"Flat", "reduce_scatter", [](BwFlags* f) { f->flat = true; }}),
    [](const testing::TestParamInfo<Case>& param) { return param.param.name; });

TEST(BwSession, LosslessPolicyHasNoCompressedHalf) {
  const BwArgs args = Args("all_reduce", [](BwFlags* f) { f->intra = f->inter = "none"; });
  for (const BwRow& row : Measure(args, *Topology::EvenNodes(4, 2))) {
    EXPECT_FALSE(row.compressed.has_value());
  }
}

TEST(BwSession, WireBytesOfAGatherAreKnown) {
  BwArgs args = Args("all_gather", [](BwFlags* f) {
    f->min_size = f->max_size = "";
    f->factor.reset();
    f->one_size = "64K";
  });
  const BwRow row = Measure(args, *Topology::EvenNodes(4, 2)).at(0);
  // Four shares of 16 KiB: each crosses once, and then every rank passes two on inside its node.
  EXPECT_EQ(row.baseline.wire.inter, 4 * 16384);
  EXPECT_EQ(row.baseline.wire.intra, 8 * 16384);
}

TEST(BwSession, SecondsInsteadOfIterations) {
  const BwArgs args = Args("all_reduce", [](BwFlags* f) { f->seconds = 0.05; });
  for (const BwRow& row : Measure(args, Topology::Flat(2))) EXPECT_GE(row.iterations, 2);
}

TEST(BwSession, IterationsAreAsManyAsAsked) {
  for (const int iters : {1, 2, 3, 20}) {
    const BwArgs args = Args("all_gather", [&](BwFlags* f) { f->iters = iters; });
    for (const BwRow& row : Measure(args, Topology::Flat(2))) {
      EXPECT_EQ(row.iterations, iters);
      EXPECT_EQ(row.baseline.nwrong + row.compressed->nwrong, 0);
    }
  }
}

// The error is over what is finite. Where nothing is, none is known: 0 would say "exact".
TEST(BwSession, DataThatIsNotFinite) {
  const BwArgs args = Args("all_reduce", [](BwFlags* f) { f->intra = f->inter = "int8"; });
  std::vector<float> data(5000, NAN);
  for (const BwRow& row : Measure(args, *Topology::EvenNodes(4, 2), data)) {
    EXPECT_EQ(row.compressed->nwrong, 0);
    EXPECT_TRUE(std::isnan(row.compressed->rel_error));
    BwReport report;
    report.rows = {row};
    EXPECT_THAT(TableTail(args, report), testing::HasSubstr("unknown: no value is finite"));
    const json out = json::parse(ToJson(args, report).dump());
    EXPECT_TRUE(out["results"][0]["compressed"]["rel_error"].is_null());
  }
  for (size_t i = 0; i < data.size(); ++i) data[i] = i % 1000 == 0 ? NAN : static_cast<float>(i);
  const BwRow some = Measure(args, Topology::Flat(2), data).back();
  EXPECT_EQ(some.compressed->nwrong, 0);
  EXPECT_GT(some.compressed->rel_error, 0);
  EXPECT_LT(some.compressed->rel_error, 0.1);
  const BwRow zeros = Measure(args, Topology::Flat(2), std::vector<float>(3, 0)).back();
  EXPECT_EQ(zeros.compressed->rel_error, 0);
}

TEST(BwJson, HoldsTheSchemaAndReplacesWhatJsonCannotSay) {
  const BwArgs args = Args("reduce_scatter");
  BwReport report;
  report.topology = *Topology::EvenNodes(4, 2);
  report.transport = "in-process";
  report.rows = Measure(args, report.topology);
  const json out = json::parse(ToJson(args, report).dump());
  for (const char* key :
       {"version", "collective", "ranks", "nodes", "dtype", "op", "spec", "topology", "results"}) {
    EXPECT_TRUE(out.contains(key)) << key;
  }
  EXPECT_EQ(out["collective"], "reduce_scatter");
  EXPECT_EQ(out["ranks"], 4);
  EXPECT_EQ(out["nodes"], 2);
  EXPECT_EQ(out["spec"]["intra"], "int8");
  EXPECT_EQ(out["spec"]["inter"], "int4");
  EXPECT_EQ(out["spec"]["block"], 128);
  EXPECT_FALSE(out.contains("error"));
  ASSERT_EQ(out["results"].size(), 3u);
  for (const json& row : out["results"]) {
    for (const char* side : {"baseline", "compressed"}) {
      for (const char* key : {"time_us", "alg_bw", "bus_bw", "nwrong"}) {
        EXPECT_TRUE(row[side][key].is_number()) << side << key;
      }
      EXPECT_TRUE(row[side]["wire_bytes"]["intra"].is_number_integer());
      EXPECT_TRUE(row[side]["wire_bytes"]["inter"].is_number_integer());
    }
    EXPECT_TRUE(row["compressed"]["rel_error"].is_number());
    EXPECT_TRUE(row["compressed"].contains("predicted_us"));
    EXPECT_TRUE(row["speedup"].is_number());
  }
  report.rows[0].baseline.alg_bw = INFINITY;
  EXPECT_TRUE(
      json::parse(ToJson(args, report).dump())["results"][0]["baseline"]["alg_bw"].is_null());
}

TEST(BwJson, AFailedRunIsStillJson) {
  const BwArgs args = Args("all_gather");
  BwReport report;
  report.error = "rank 3 is lost";
  const json out = json::parse(ToJson(args, report).dump());
  EXPECT_EQ(out["error"], "rank 3 is lost");
  EXPECT_TRUE(out["results"].empty());
  EXPECT_TRUE(out["topology"].is_null());
}

// superbench and others count columns from the end of a line.
TEST(BwTable, ColumnsFromTheEndAreThoseOfNcclTests) {
  const BwArgs args = Args("all_reduce");
  BwRow row;
  row.size_bytes = 1024;
  row.count = 256;
  row.baseline = {};
  row.baseline.time_us = 20;
  row.compressed.emplace();
  row.compressed->time_us = 10;
  row.compressed->alg_bw = 3;
  row.compressed->nwrong = 4;
  std::istringstream line(TableRow(args, row));
  std::vector<std::string> words{std::istream_iterator<std::string>(line), {}};
  ASSERT_EQ(words.size(), 14u);
  EXPECT_EQ(words[0], "1024");
  EXPECT_EQ(words[2], "float");
  EXPECT_EQ(words[5], "2.00x");
  EXPECT_EQ(words[14 - 8], "20.00");
  EXPECT_EQ(words[14 - 4], "10.00");
  EXPECT_EQ(words[14 - 3], "3.00");
  EXPECT_EQ(words[14 - 1], "4");
}

TEST(BwTable, EndsAsScriptsExpect) {
  const BwArgs args = Args("all_reduce");
  BwReport report;
  const std::string tail = TableTail(args, report);
  EXPECT_THAT(tail,
              testing::HasSubstr("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0\n"));
  EXPECT_THAT(tail, testing::EndsWith("# Collective test concluded: all_reduce\n#\n"));
}

}  // namespace
}  // namespace zpp::cli
