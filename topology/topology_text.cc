// A topology as text, and its fingerprint.
#include <bit>
#include <cstdio>

#include "common/hash.h"
#include "topology/topology.h"

namespace zpp {
namespace {

// "0-3,8,10-11"
std::string Ranges(std::span<const int32_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (last > i) text += '-' + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string Count(size_t n, const char* what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

std::string LinkText(const LinkModel& link) {
  char text[80];
  if (link.bytes_per_s == 0 && link.latency_s == 0) return "speed not known";
  if (link.bytes_per_s == 0) {
    std::snprintf(text, sizeof(text), "%.3g us", link.latency_s * 1e6);
  } else {
    std::snprintf(text, sizeof(text), "%.3g GB/s, %.3g us", link.bytes_per_s * 1e-9,
                  link.latency_s * 1e6);
  }
  return text;
}

const char* LevelName(int level, int tiers) {
  if (level == tiers) return "world";
  switch (level) {
    case 1:
      return "node";
    case 2:
      return "rack";
    default:
      return "site";
  }
}

void AppendDomain(const Topology& topology, int level, int id, std::string* text) {
  const Domain& domain = topology.Get(level, id);
  const int depth = topology.tiers() - level;
  *text += std::string(static_cast<size_t>(2 * depth), ' ');
  *text += LevelName(level, topology.tiers());
  if (level < topology.tiers()) *text += ' ' + std::to_string(id);
  *text += ": " + Count(domain.ranks.size(), "rank") + ' ' + Ranges(domain.ranks);
  *text += "  [tier " + std::to_string(level - 1) + ": " + LinkText(topology.links()[level - 1]);
  *text += "]\n";
  if (level == 1) return;
  for (const int32_t child : domain.children) AppendDomain(topology, level - 1, child, text);
}

}  // namespace

std::string Topology::ToText() const {
  std::string text;
  if (world_ > 0) AppendDomain(*this, tiers(), 0, &text);
  return text;
}

// Domain ids of every rank say everything: members, order and nesting follow from them.
uint64_t Topology::Fingerprint() const {
  Hash hash;
  hash.Add(static_cast<uint64_t>(world_));
  hash.Add(links_.size());
  for (size_t level = 1; level + 1 < of_.size(); ++level) {
    for (const int32_t id : of_[level]) hash.Add(static_cast<uint64_t>(id));
  }
  for (const LinkModel& link : links_) {
    hash.Add(std::bit_cast<uint64_t>(link.latency_s));
    hash.Add(std::bit_cast<uint64_t>(link.bytes_per_s));
  }
  return hash.value();
}

std::string Topology::Summary() const {
  char fingerprint[17];
  std::snprintf(fingerprint, sizeof fingerprint, "%llx",
                static_cast<unsigned long long>(Fingerprint()));
  return std::to_string(world_) + " ranks in " + std::to_string(num_nodes()) +
         " nodes, fingerprint " + fingerprint;
}

}  // namespace zpp
