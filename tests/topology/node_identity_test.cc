#include "topology/node_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace zpp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ThisNodeTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("ZPP_NODE_ID"); }
  void TearDown() override { unsetenv("ZPP_NODE_ID"); }
};

TEST_F(ThisNodeTest, IsStableAndSaysWhatItIsMadeOf) {
  const NodeIdentity node = ThisNode();
  EXPECT_EQ(node, ThisNode());
  EXPECT_THAT(node.text, HasSubstr("boot="));
  EXPECT_THAT(node.text, HasSubstr("host="));
  EXPECT_THAT(node.text, HasSubstr("ipc:["));
  EXPECT_THAT(node.text, HasSubstr("net:["));
}

TEST_F(ThisNodeTest, DeclaredNameOverridesAll) {
  setenv("ZPP_NODE_ID", "left", 1);
  EXPECT_EQ(ThisNode().text, "id=left");
  setenv("ZPP_NODE_ID", "", 1);
  EXPECT_THAT(ThisNode().text, HasSubstr("boot="));
}

// Where nothing is known of the machine nobody shares a node by a name alone.
TEST_F(ThisNodeTest, WithoutProcEachProcessIsItsOwnNode) {
  const std::string mine = ThisNode("/no/such/folder").text;
  EXPECT_EQ(ThisNode("/no/such/folder").text, mine);
  EXPECT_EQ(BootId("/no/such/folder"), "");
  const pid_t child = fork();
  if (child == 0) _exit(ThisNode("/no/such/folder").text == mine ? 1 : 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// What a child that moved into another namespace says of itself; empty when it may not move.
std::string IdentityAfterUnshare(int flags) {
  int fds[2];
  if (pipe(fds) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(flags) == 0) {
      const std::string text = ThisNode().text;
      [[maybe_unused]] const ssize_t written = write(fds[1], text.data(), text.size());
    }
    _exit(0);
  }
  close(fds[1]);
  char text[1024];
  ssize_t length = 0;
  for (ssize_t n; (n = read(fds[0], text + length, sizeof(text) - length)) > 0;) length += n;
  close(fds[0]);
  waitpid(child, nullptr, 0);
  return {text, static_cast<size_t>(length)};
}

TEST_F(ThisNodeTest, ANamespaceOfItsOwnIsAnotherNode) {
  const std::string here = ThisNode().text;
  const std::string other_ipc = IdentityAfterUnshare(CLONE_NEWIPC);
  if (other_ipc.empty()) GTEST_SKIP() << "probe: may not unshare namespaces";
  EXPECT_NE(other_ipc, here);
  EXPECT_NE(IdentityAfterUnshare(CLONE_NEWNET), here);
  EXPECT_EQ(IdentityAfterUnshare(0), here);
}

TEST(TopologyFromIdentities, GroupsEqualIdentities) {
  const std::vector<NodeIdentity> ranks = {{"b"}, {"a"}, {"b"}, {"a"}, {"c"}};
  const Topology topology = TopologyFromIdentities(ranks);
  EXPECT_EQ(topology.tiers(), 2);
  EXPECT_EQ(topology.num_nodes(), 3);
  EXPECT_THAT(topology.Get(1, 0).ranks, ElementsAre(0, 2));
  EXPECT_THAT(topology.Get(1, 1).ranks, ElementsAre(1, 3));
  EXPECT_THAT(topology.Get(1, 2).ranks, ElementsAre(4));
}

TEST(TopologyFromIdentities, OneNodeIsFlat) {
  const std::vector<NodeIdentity> same(4, {"x"}), one = {{"x"}};
  EXPECT_EQ(TopologyFromIdentities(same), Topology::Flat(4));
  EXPECT_EQ(TopologyFromIdentities(one), Topology::Flat(1));
  EXPECT_EQ(TopologyFromIdentities({}).world(), 0);
}

}  // namespace
}  // namespace zpp
