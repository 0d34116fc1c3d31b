#include "topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "tests/topology/layouts.h"

namespace zpp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Group(const Topology& topology, int rank) {
  const auto group = topology.NodeGroup(rank);
  return {group.begin(), group.end()};
}

// The label of `rank` at `level`, with the levels that FromLabels adds.
int LabelAt(const Layout& layout, int level, int rank) {
  if (level == 0) return rank;
  if (level == static_cast<int>(layout.labels.size()) + 1) return 0;
  return layout.labels[level - 1][rank];
}

class EveryLayout : public ::testing::TestWithParam<Layout> {};

// All that Domain and the maps say, recomputed the slow way from the labels.
TEST_P(EveryLayout, DomainsHoldTheRanksOfOneLabel) {
  const Layout& layout = GetParam();
  const Topology topology = layout.Build();
  ASSERT_EQ(topology.world(), layout.world);
  ASSERT_EQ(topology.tiers(), static_cast<int>(layout.labels.size()) + 1);
  for (int level = 0; level <= topology.tiers(); ++level) {
    std::vector<int> first_ranks;
    for (int rank = 0; rank < layout.world; ++rank) {
      std::vector<int32_t> same;
      for (int other = 0; other < layout.world; ++other) {
        if (LabelAt(layout, level, other) == LabelAt(layout, level, rank)) same.push_back(other);
      }
      const Domain& domain = topology.At(level, rank);
      EXPECT_EQ(domain.ranks, same);
      EXPECT_EQ(domain.ranks[topology.IndexIn(level, rank)], rank);
      EXPECT_EQ(&topology.Get(level, topology.DomainId(level, rank)), &domain);
      if (same[0] == rank) first_ranks.push_back(rank);
    }
    ASSERT_EQ(topology.NumDomains(level), static_cast<int>(first_ranks.size()));
    for (int id = 0; id < topology.NumDomains(level); ++id) {
      EXPECT_EQ(topology.Get(level, id).ranks[0], first_ranks[id]);
    }
  }
}

TEST_P(EveryLayout, ParentsChildrenAndPlacesAgree) {
  const Topology topology = GetParam().Build();
  for (int level = 0; level < topology.tiers(); ++level) {
    int most_children = 0;
    for (int up = 0; up < topology.NumDomains(level + 1); ++up) {
      const Domain& parent = topology.Get(level + 1, up);
      int32_t before = 0;
      for (size_t i = 0; i < parent.children.size(); ++i) {
        const Domain& child = topology.Get(level, parent.children[i]);
        EXPECT_EQ(child.parent, up);
        EXPECT_EQ(child.child_index, static_cast<int32_t>(i));
        EXPECT_EQ(child.ranks_before, before);
        before += static_cast<int32_t>(child.ranks.size());
      }
      EXPECT_EQ(before, static_cast<int32_t>(parent.ranks.size()));
      EXPECT_TRUE(std::is_sorted(parent.children.begin(), parent.children.end()));
      most_children = std::max(most_children, static_cast<int>(parent.children.size()));
    }
    EXPECT_EQ(topology.MaxChildren(level + 1), most_children);
  }
  EXPECT_EQ(topology.Get(topology.tiers(), 0).parent, -1);
}

TEST_P(EveryLayout, TierOfIsTheInnermostThatJoins) {
  const Topology topology = GetParam().Build();
  for (int a = 0; a < topology.world(); ++a) {
    for (int b = 0; b < topology.world(); ++b) {
      if (a == b) continue;
      const int tier = topology.TierOf(a, b);
      EXPECT_EQ(topology.DomainId(tier + 1, a), topology.DomainId(tier + 1, b));
      EXPECT_NE(topology.DomainId(tier, a), topology.DomainId(tier, b));
      EXPECT_EQ(topology.TierOf(b, a), tier);
    }
  }
}

TEST_P(EveryLayout, GroupsCoverTheWorld) {
  const Topology topology = GetParam().Build();
  for (int rank = 0; rank < topology.world(); ++rank) {
    const std::vector<int32_t> node = Group(topology, rank);
    EXPECT_TRUE(std::is_sorted(node.begin(), node.end()));
    EXPECT_EQ(std::count(node.begin(), node.end(), rank), 1);
    for (int other = 0; other < topology.world(); ++other) {
      const bool inside = std::count(node.begin(), node.end(), other) == 1;
      EXPECT_EQ(inside, topology.NodeOf(other) == topology.NodeOf(rank));
    }
    const std::vector<int32_t> rail = topology.RailGroup(rank);
    ASSERT_EQ(static_cast<int>(rail.size()), topology.num_nodes());
    EXPECT_EQ(rail[topology.NodeOf(rank)], rank);
    for (int n = 0; n < topology.num_nodes(); ++n) EXPECT_EQ(topology.NodeOf(rail[n]), n);
  }
}

TEST_P(EveryLayout, FlattenedKeepsWorldAndOutermostLink) {
  Topology topology = GetParam().Build();
  std::vector<LinkModel> links;
  for (int tier = 0; tier < topology.tiers(); ++tier) links.push_back({1e-6 * (tier + 1), 1e9});
  ASSERT_TRUE(topology.SetLinks(links).ok());
  const Topology flat = topology.Flattened();
  EXPECT_EQ(flat.tiers(), 1);
  EXPECT_EQ(flat.world(), topology.world());
  EXPECT_THAT(flat.links(), ElementsAre(links.back()));
  EXPECT_EQ(flat.num_nodes(), 1);
}

TEST_P(EveryLayout, TextHasALinePerDomain) {
  const Topology topology = GetParam().Build();
  int domains = 0;
  for (int level = 1; level <= topology.tiers(); ++level) domains += topology.NumDomains(level);
  const std::string text = topology.ToText();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), domains) << text;
}

INSTANTIATE_TEST_SUITE_P(Topology, EveryLayout, ::testing::ValuesIn(TenLayouts()),
                         [](const auto& test) { return test.param.name; });

TEST(Topology, FingerprintsOfDifferentLayoutsDiffer) {
  std::set<uint64_t> fingerprints;
  for (const Layout& layout : TenLayouts()) fingerprints.insert(layout.Build().Fingerprint());
  EXPECT_EQ(fingerprints.size(), 10u);
}

TEST(Topology, FingerprintSeesLinksAndIgnoresLabelNames) {
  const std::vector<std::vector<int>> a = {{0, 0, 1}}, b = {{7, 7, -3}};
  Topology first = *Topology::FromLabels(3, a);
  Topology second = *Topology::FromLabels(3, b);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.Fingerprint(), second.Fingerprint());
  const std::vector<LinkModel> links = {{0, 1}, {0, 2}}, negative_zero = {{-0.0, 1}, {-0.0, 2}};
  ASSERT_TRUE(first.SetLinks(links).ok());
  EXPECT_NE(first.Fingerprint(), second.Fingerprint());
  ASSERT_TRUE(second.SetLinks(negative_zero).ok());
  EXPECT_EQ(first.Fingerprint(), second.Fingerprint());
}

// FNV-1a of the words 4 ranks, 2 tiers, nodes 0 0 1 1, links 0 0 0 0, computed apart from the code.
// Processes of different builds compare it.
TEST(Topology, FingerprintIsFrozen) {
  EXPECT_EQ(Topology::EvenNodes(4, 2)->Fingerprint(), 0x62799e3788a9c83ull);
}

TEST(Topology, NodesAndRegularAgree) {
  const std::vector<int> sizes = {3, 3}, fanout = {3, 2};
  EXPECT_EQ(*Topology::Nodes(sizes), *Topology::Regular(fanout));
  EXPECT_EQ(*Topology::EvenNodes(6, 2), *Topology::Regular(fanout));
}

TEST(Topology, EvenNodesDifferByAtMostOne) {
  const Topology topology = *Topology::EvenNodes(7, 3);
  EXPECT_THAT(Group(topology, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Group(topology, 4), ElementsAre(3, 4));
  EXPECT_THAT(Group(topology, 6), ElementsAre(5, 6));
  EXPECT_THAT(topology.RailGroup(2), ElementsAre(2, 4, 6));
}

TEST(Topology, FlatIsOneNode) {
  const Topology topology = Topology::Flat(3);
  EXPECT_EQ(topology.tiers(), 1);
  EXPECT_EQ(topology.num_nodes(), 1);
  EXPECT_THAT(Group(topology, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(topology.RailGroup(1), ElementsAre(1));
  EXPECT_EQ(Topology::Flat(0).world(), 0);
  EXPECT_EQ(Topology::Flat(-1).world(), 0);
  EXPECT_EQ(Topology::Flat(0).ToText(), "");
}

TEST(Topology, TextShowsRanksAndLinks) {
  const std::vector<std::vector<int>> labels = {{0, 1, 0, 0, 1}};
  Topology topology = *Topology::FromLabels(5, labels);
  const std::vector<LinkModel> links = {{1e-6, 0}, {5e-5, 1.25e8}};
  ASSERT_TRUE(topology.SetLinks(links).ok());
  EXPECT_EQ(topology.ToText(),
            "world: 5 ranks 0-4  [tier 1: 0.125 GB/s, 50 us]\n"
            "  node 0: 3 ranks 0,2-3  [tier 0: 1 us]\n"
            "  node 1: 2 ranks 1,4  [tier 0: 1 us]\n");
}

void ExpectRefused(const Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(Topology, RefusesNodesThatCannotBe) {
  const std::vector<int> none, empty = {2, 0, 1}, negative = {-3, 4};
  const std::vector<int> huge(3, std::numeric_limits<int>::max());
  ExpectRefused(Topology::Nodes(none).status(), "not 0");
  ExpectRefused(Topology::Nodes(empty).status(), "node 1 has 0 ranks");
  ExpectRefused(Topology::Nodes(negative).status(), "node 0 has -3 ranks");
  ExpectRefused(Topology::Nodes(huge).status(), "65536 ranks, not 6442450941");
  ExpectRefused(Topology::EvenNodes(4, 5).status(), "4 ranks make 1 to 4 nodes, not 5");
  ExpectRefused(Topology::EvenNodes(4, 0).status(), "not 0");
  ExpectRefused(Topology::EvenNodes(0, 1).status(), "not 0");
}

TEST(Topology, RefusesFanoutsAndLabelsThatCannotBe) {
  const std::vector<int> none, five = {1, 1, 1, 1, 1}, zero = {2, 0}, huge = {1 << 16, 1 << 16};
  ExpectRefused(Topology::Regular(none).status(), "tiers, not 0");
  ExpectRefused(Topology::Regular(five).status(), "tiers, not 5");
  ExpectRefused(Topology::Regular(zero).status(), "not 0");
  ExpectRefused(Topology::Regular(huge).status(), "ranks, not");
  const std::vector<std::vector<int>> four(4, {0, 0}), short_list = {{0, 0, 1}};
  ExpectRefused(Topology::FromLabels(2, four).status(), "tiers, not 5");
  ExpectRefused(Topology::FromLabels(4, short_list).status(), "tier 0 labels 3 ranks of 4");
  ExpectRefused(Topology::FromLabels(0, {}).status(), "not 0");
  const std::vector<std::vector<int>> straddles = {{0, 0, 1, 1}, {0, 1, 1, 1}};
  ExpectRefused(Topology::FromLabels(4, straddles).status(),
                "ranks 0 and 1 share a domain of tier 0 but not of tier 1");
}

TEST(Topology, RefusesLinksThatCannotBe) {
  Topology topology = Topology::Flat(2);
  const std::vector<LinkModel> two(2), nan = {{0, std::numeric_limits<double>::quiet_NaN()}};
  const std::vector<LinkModel> negative = {{-1e-9, 1}},
                               infinite = {{0, std::numeric_limits<double>::infinity()}};
  ExpectRefused(topology.SetLinks(two), "2 link models for 1 tiers");
  ExpectRefused(topology.SetLinks(nan), "tier 0");
  ExpectRefused(topology.SetLinks(negative), "tier 0");
  ExpectRefused(topology.SetLinks(infinite), "tier 0");
  EXPECT_THAT(topology.links(), ElementsAre(LinkModel{}));
}

TEST(Topology, HoldsManyRanks) {
  const std::vector<int> fanout = {8, 16, 8, 16};
  const Topology topology = *Topology::Regular(fanout);
  EXPECT_EQ(topology.world(), 16384);
  EXPECT_EQ(topology.TierOf(0, 7), 0);
  EXPECT_EQ(topology.TierOf(0, 8), 1);
  EXPECT_EQ(topology.TierOf(0, 128), 2);
  EXPECT_EQ(topology.TierOf(0, 16383), 3);
  EXPECT_EQ(topology.At(2, 16383).ranks_before, 7 * 128);
}

// Ranks 0..7 in nodes of 3, 3 and 2 and racks of two nodes and one.
Topology Racks() {
  const std::vector<std::vector<int>> labels = {{0, 0, 0, 1, 1, 1, 2, 2}, {0, 0, 0, 0, 0, 0, 1, 1}};
  Topology topology = *Topology::FromLabels(8, labels);
  const std::vector<LinkModel> links = {{1e-6, 1e10}, {2e-5, 1e9}, {1e-3, 1e8}};
  EXPECT_TRUE(topology.SetLinks(links).ok());
  return topology;
}

TEST(Subset, KeepsTiersAndLinksAndNumbersRanksInTheOrderGiven) {
  const Topology whole = Racks();
  const std::vector<int32_t> ranks = {6, 1, 5, 0, 7};
  const auto group = whole.Subset(ranks);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_EQ(group->world(), 5);
  EXPECT_EQ(group->tiers(), 3);
  EXPECT_EQ(group->links(), whole.links());
  EXPECT_EQ(group->num_nodes(), 3);
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) {
      if (a == b) continue;
      EXPECT_EQ(group->TierOf(a, b), whole.TierOf(ranks[a], ranks[b])) << a << " " << b;
    }
  }
}

TEST(Subset, OfAllIsTheSameAndOfOneIsAWorldOfOne) {
  const Topology whole = Racks();
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7}, one = {4};
  EXPECT_EQ(*whole.Subset(all), whole);
  EXPECT_EQ(whole.Subset(one)->world(), 1);
  EXPECT_EQ(whole.Subset(one)->tiers(), 3);
  EXPECT_EQ(Topology::Flat(8).Subset(one)->tiers(), 1);
}

TEST(Subset, RefusesRanksThatAreNone) {
  const Topology whole = Racks();
  const std::vector<int32_t> beyond = {0, 8}, negative = {-1}, twice = {3, 3};
  EXPECT_EQ(whole.Subset(beyond).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(whole.Subset(negative).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(whole.Subset(twice).status().message(), ::testing::HasSubstr("rank 3 comes twice"));
  EXPECT_FALSE(whole.Subset({}).ok());
}

}  // namespace
}  // namespace zpp
