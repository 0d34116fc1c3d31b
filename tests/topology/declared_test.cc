#include "topology/declared.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace zpp {
namespace {

using ::testing::HasSubstr;

class DeclaredTopologyTest : public ::testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override {
    Clear();
    std::remove(path_.c_str());
  }
  void Clear() {
    unsetenv("ZPP_TOPOLOGY");
    unsetenv("ZPP_LOCAL_SIZE");
  }
  void DeclareFile(const std::string& text) {
    std::ofstream(path_) << text;
    setenv("ZPP_TOPOLOGY", path_.c_str(), 1);
  }
  const std::string path_ =
      ::testing::TempDir() + "zpp_declared_" + std::to_string(getpid()) + ".json";
};

Topology Declared(int world, int nodes) {
  const Result<std::optional<Topology>> declared = DeclaredTopology(world, nodes);
  EXPECT_TRUE(declared.ok()) << declared.status().ToString();
  return declared.ok() && *declared ? **declared : Topology();
}

TEST_F(DeclaredTopologyTest, NothingIsDeclaredByDefault) {
  const Result<std::optional<Topology>> declared = DeclaredTopology(4, 0);
  ASSERT_TRUE(declared.ok());
  EXPECT_FALSE(declared->has_value());
}

TEST_F(DeclaredTopologyTest, NodesAreEvenAndOneIsFlat) {
  EXPECT_EQ(Declared(5, 2), *Topology::EvenNodes(5, 2));
  EXPECT_EQ(Declared(5, 1), Topology::Flat(5));
}

TEST_F(DeclaredTopologyTest, LocalSizeGivesConsecutiveRanks) {
  setenv("ZPP_LOCAL_SIZE", "2", 1);
  const std::vector<int> sizes = {2, 2, 1};
  EXPECT_EQ(Declared(5, 0), *Topology::Nodes(sizes));
  EXPECT_EQ(Declared(2, 0), Topology::Flat(2));
  EXPECT_EQ(Declared(5, 5), *Topology::EvenNodes(5, 5)) << "an argument goes before the variable";
}

TEST_F(DeclaredTopologyTest, TheFileGoesBeforeAll) {
  setenv("ZPP_LOCAL_SIZE", "2", 1);
  DeclareFile(Topology::EvenNodes(6, 3)->ToJson());
  EXPECT_EQ(Declared(6, 2), *Topology::EvenNodes(6, 3));
}

TEST_F(DeclaredTopologyTest, RefusesDeclarationsThatCannotBe) {
  EXPECT_FALSE(DeclaredTopology(0, 0).ok());
  EXPECT_THAT(DeclaredTopology(4, 5).status().message(), HasSubstr("1 to 4 nodes, not 5"));
  EXPECT_THAT(DeclaredTopology(4, -1).status().message(), HasSubstr("not -1"));
  setenv("ZPP_LOCAL_SIZE", "two", 1);
  EXPECT_THAT(DeclaredTopology(4, 0).status().message(), HasSubstr("ZPP_LOCAL_SIZE='two'"));
  DeclareFile(Topology::Flat(3).ToJson());
  EXPECT_THAT(DeclaredTopology(4, 0).status().message(), HasSubstr("has 3 ranks, this job has 4"));
  setenv("ZPP_TOPOLOGY", "/no/such/file", 1);
  EXPECT_EQ(DeclaredTopology(4, 0).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace zpp
