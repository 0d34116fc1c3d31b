#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/topology/layouts.h"
#include "topology/topology.h"

namespace zpp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EveryLayoutAsJson : public ::testing::TestWithParam<Layout> {};

TEST_P(EveryLayoutAsJson, ComesBackEqual) {
  Topology topology = GetParam().Build();
  std::vector<LinkModel> links;
  for (int tier = 0; tier < topology.tiers(); ++tier) links.push_back({1e-6 / 3, 1e9 / 7 + tier});
  ASSERT_TRUE(topology.SetLinks(links).ok());
  const Result<Topology> again = Topology::FromJson(topology.ToJson());
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, topology);
  EXPECT_EQ(again->Fingerprint(), topology.Fingerprint());
  EXPECT_EQ(again->ToJson(), topology.ToJson());
}

INSTANTIATE_TEST_SUITE_P(Topology, EveryLayoutAsJson, ::testing::ValuesIn(TenLayouts()),
                         [](const auto& test) { return test.param.name; });

TEST(TopologyJson, ReadsTheDocumentedExample) {
  const Result<Topology> topology = Topology::FromJson(R"({"version":1,"world":4,"tiers":[
      {"name":"node","domains":[[0,1],[2,3]],"latency_s":1e-6,"bytes_per_s":1e10},
      {"name":"world","latency_s":5e-5,"bytes_per_s":1.25e8}]})");
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  Topology expected = *Topology::EvenNodes(4, 2);
  const std::vector<LinkModel> links = {{1e-6, 1e10}, {5e-5, 1.25e8}};
  ASSERT_TRUE(expected.SetLinks(links).ok());
  EXPECT_EQ(*topology, expected);
}

TEST(TopologyJson, OrderOfDomainsAndRanksDoesNotMatter) {
  const Result<Topology> topology = Topology::FromJson(
      R"({"tiers":[{"domains":[[3,2],[1,0]]},{"domains":[[2,0,1,3]]}],"world":4,"version":1})");
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  EXPECT_EQ(*topology, *Topology::EvenNodes(4, 2));
}

struct BadText {
  std::string text;
  std::string complaint;
};

std::string WithTiers(const std::string& tiers) {
  return R"({"version":1,"world":4,"tiers":)" + tiers + "}";
}

std::vector<BadText> BadTexts() {
  return {
      // Not JSON.
      {"", "not valid JSON at line 1, column 1"},
      {"{", "not valid JSON at line 1"},
      {"{\"version\":1,\n\"world\":x}", "not valid JSON at line 2, column 9"},
      {R"({"version":1}})", "not valid JSON"},
      {"\xff\xfe", "not valid JSON"},
      {"{\"a\":\"\x01\"}", "not valid JSON"},
      {R"({"version":1,"world":1e999,"tiers":[{}]})", "not valid JSON"},
      {R"({"version":1,"version":1,"world":4,"tiers":[{}]})", "key 'version' twice"},
      {WithTiers(R"([{"domains":[[[[[0]]]]]},{}])"), "nested deeper"},
      // Not this object.
      {"[]", "must be an object"},
      {"null", "must be an object"},
      {"3", "must be an object"},
      {R"({"version":1,"world":4,"tiers":[{}],"ranks":4})", "unknown key 'ranks'"},
      {R"({"world":4,"tiers":[{}]})", "'version' is missing"},
      {R"({"version":2,"world":4,"tiers":[{}]})", "version must be an integer in 1..1, not 2"},
      {R"({"version":"1","world":4,"tiers":[{}]})", "not a string"},
      {R"({"version":1,"tiers":[{}]})", "'world' is missing"},
      {R"({"version":1,"world":0,"tiers":[{}]})", "world must be an integer in 1..65536, not 0"},
      {R"({"version":1,"world":-1,"tiers":[{}]})", "not -1"},
      {R"({"version":1,"world":4.5,"tiers":[{}]})", "world must be an integer"},
      {R"({"version":1,"world":true,"tiers":[{}]})", "not a boolean"},
      {R"({"version":1,"world":65537,"tiers":[{}]})", "not 65537"},
      {R"({"version":1,"world":18446744073709551615,"tiers":[{}]})", "not 18446744073709551615"},
      {R"({"version":1,"world":99999999999999999999999,"tiers":[{}]})", "must be an integer"},
      // The tiers.
      {R"({"version":1,"world":4})", "'tiers' is missing"},
      {WithTiers("{}"), "tiers must be a list"},
      {WithTiers("[]"), "1 to 4 tiers, not 0"},
      {WithTiers("[{},{},{},{},{}]"), "1 to 4 tiers, not 5"},
      {WithTiers("[[]]"), "tier 0 must be an object"},
      {WithTiers(R"([{"ranks":[[0]]},{}])"), "tier 0 has an unknown key 'ranks'"},
      {WithTiers(R"([{"name":3}])"), "tier 0: name must be a string"},
      {WithTiers(R"([{"latency_s":"1us"}])"), "tier 0: latency_s must be a number"},
      {WithTiers(R"([{"latency_s":-1}])"), "finite and not negative"},
      {WithTiers(R"([{"bytes_per_s":-1}])"), "finite and not negative"},
      {WithTiers(R"([{"bytes_per_s":null}])"), "bytes_per_s must be a number"},
      {WithTiers("[{},{}]"), "tier 0 needs domains"},
      // The domains.
      {WithTiers(R"([{"domains":{}},{}])"), "domains must be a list"},
      {WithTiers(R"([{"domains":[0,1,2,3]},{}])"), "a domain must be a list of ranks"},
      {WithTiers(R"([{"domains":[[0,1],[2]]},{}])"), "tier 0: rank 3 is missing"},
      {WithTiers(R"([{"domains":[]},{}])"), "tier 0: rank 0 is missing"},
      {WithTiers(R"([{"domains":[[0,1],[2,1,3]]},{}])"), "tier 0: rank 1 appears twice"},
      {WithTiers(R"([{"domains":[[0,1,2,3],[]]},{}])"), "domain 1 is empty"},
      {WithTiers(R"([{"domains":[[0,1,2,4]]},{}])"), "a rank must be an integer in 0..3, not 4"},
      {WithTiers(R"([{"domains":[[0,1,2,-1]]},{}])"), "not -1"},
      {WithTiers(R"([{"domains":[[0,1,2,3.0]]},{}])"), "a rank must be an integer"},
      {WithTiers(R"([{"domains":[[0,1,2,"3"]]},{}])"), "not a string"},
      {WithTiers(R"([{"domains":[[0,1],[2,3]]}])"), "it has one domain, the world"},
      {WithTiers(R"([{"domains":[[0,1,2]]}])"), "rank 3 is missing"},
      {WithTiers(R"([{"domains":[[0,1],[2,3]]},{"domains":[[0],[1,2,3]]},{}])"),
       "ranks 0 and 1 share a domain of tier 0 but not of tier 1"},
  };
}

TEST(TopologyJson, RefusesBadTextWithOneSentence) {
  for (const BadText& bad : BadTexts()) {
    const Result<Topology> topology = Topology::FromJson(bad.text);
    ASSERT_FALSE(topology.ok()) << bad.text;
    const std::string& message = topology.status().message();
    EXPECT_THAT(message, HasSubstr(bad.complaint)) << bad.text;
    EXPECT_THAT(message, HasSubstr("topology: ")) << bad.text;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << bad.text;
    EXPECT_THAT(message, Not(HasSubstr("json.exception"))) << bad.text;
    EXPECT_LT(message.size(), 250u) << bad.text;
    const StatusCode code = topology.status().code();
    EXPECT_TRUE(code == StatusCode::kInvalidArgument || code == StatusCode::kDataLoss) << bad.text;
  }
}

TEST(TopologyJson, RefusesEveryTruncation) {
  const std::string text = Topology::EvenNodes(4, 2)->ToJson();
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(Topology::FromJson(text.substr(0, length)).ok()) << length;
  }
}

TEST(TopologyJson, RefusesOverlongAndDeepText) {
  const Result<Topology> longer = Topology::FromJson(std::string((16u << 20) + 1, ' '));
  ASSERT_FALSE(longer.ok());
  EXPECT_THAT(longer.status().message(), HasSubstr("longer than the limit"));
  // Deep enough to overflow the stack of a recursive reader.
  const Result<Topology> deep = Topology::FromJson(std::string(5u << 20, '['));
  ASSERT_FALSE(deep.ok());
  EXPECT_THAT(deep.status().message(), HasSubstr("nested deeper"));
}

class TopologyFile : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  const std::string path_ =
      ::testing::TempDir() + "zpp_topology_" + std::to_string(getpid()) + ".json";
};

TEST_F(TopologyFile, ReadsAFile) {
  Write(Topology::EvenNodes(5, 2)->ToJson() + "\n");
  const Result<Topology> topology = ReadTopologyFile(path_);
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  EXPECT_EQ(*topology, *Topology::EvenNodes(5, 2));
}

TEST_F(TopologyFile, NamesTheFileThatIsBad) {
  Write("{}");
  const Result<Topology> topology = ReadTopologyFile(path_);
  EXPECT_EQ(topology.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(topology.status().message(), HasSubstr(path_));
}

TEST_F(TopologyFile, RefusesNoFileAFolderAndAnEndlessFile) {
  EXPECT_EQ(ReadTopologyFile("/no/such/file").status().code(), StatusCode::kNotFound);
  for (const char* bad : {"/no/such/file", "/", "/dev/zero"}) {  // a message says what was read
    EXPECT_THAT(ReadTopologyFile(bad).status().message(), testing::StartsWith("the topology file"));
  }
  EXPECT_FALSE(ReadTopologyFile("/").ok());
  EXPECT_THAT(ReadTopologyFile("/dev/zero").status().message(), HasSubstr("regular file"));
  Write(std::string((size_t{16} << 20) + 5, ' '));
  EXPECT_THAT(ReadTopologyFile(path_).status().message(), HasSubstr("longer than the limit"));
}

// Nobody writes to it: it must be refused, not waited for.
TEST_F(TopologyFile, RefusesAPipe) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadTopologyFile(path_).status().message(), HasSubstr("regular file"));
}

}  // namespace
}  // namespace zpp
