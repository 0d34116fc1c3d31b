// Topology as JSON. Reading is strict: what it does not know it refuses.
#include <algorithm>
#include <span>

#include <nlohmann/json.hpp>

#include "common/file.h"
#include "common/strict_json.h"
#include "topology/topology.h"

namespace zpp {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr JsonLimits kLimits = {.max_bytes = size_t{16} << 20, .max_depth = 6};

Status Bad(const std::string& text) { return InvalidArgument("topology: " + text); }

std::string Tier(size_t tier) { return "tier " + std::to_string(tier); }

Status CheckKeys(const Json& object, const std::string& where,
                 std::span<const std::string_view> known) {
  for (const auto& item : object.items()) {
    bool found = false;
    for (const std::string_view key : known) found = found || key == item.key();
    if (!found) return Bad(where + " has an unknown key '" + Printable(item.key()) + "'");
  }
  return {};
}

Result<int> IntegerIn(const Json& value, const std::string& what, int low, int high) {
  const std::string expected =
      what + " must be an integer in " + std::to_string(low) + ".." + std::to_string(high);
  if (!value.is_number_integer()) return Bad(expected + ", not a " + value.type_name());
  const bool too_big = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62;
  if (too_big || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    return Bad(expected + ", not " + value.dump());
  }
  return value.get<int>();
}

Result<int> IntegerAt(const Json& object, const char* key, int low, int high) {
  const auto it = object.find(key);
  if (it == object.end()) return Bad(std::string("the key '") + key + "' is missing");
  return IntegerIn(*it, key, low, high);
}

Result<double> NumberAt(const Json& tier, const char* key, const std::string& where) {
  const auto it = tier.find(key);
  if (it == tier.end()) return 0.0;
  if (!it->is_number()) return Bad(where + ": " + key + " must be a number");
  return it->get<double>();
}

// One label per rank from lists of ranks.
Result<std::vector<int>> ReadDomains(const Json& domains, int world, const std::string& where) {
  if (!domains.is_array()) return Bad(where + ": domains must be a list of lists of ranks");
  std::vector<int> label(static_cast<size_t>(world), -1);
  int id = 0;
  for (const Json& domain : domains) {
    if (!domain.is_array()) return Bad(where + ": a domain must be a list of ranks");
    if (domain.empty()) return Bad(where + ": domain " + std::to_string(id) + " is empty");
    for (const Json& value : domain) {
      ZPP_ASSIGN_OR_RETURN(const int rank, IntegerIn(value, where + ": a rank", 0, world - 1));
      if (label[rank] >= 0) return Bad(where + ": rank " + std::to_string(rank) + " appears twice");
      label[rank] = id;
    }
    ++id;
  }
  for (int rank = 0; rank < world; ++rank) {
    if (label[rank] < 0) return Bad(where + ": rank " + std::to_string(rank) + " is missing");
  }
  return label;
}

Status CheckName(const Json& tier, const std::string& where) {
  const auto it = tier.find("name");
  if (it == tier.end()) return {};
  if (!it->is_string()) return Bad(where + ": name must be a string");
  return {};
}

struct ParsedTier {
  std::vector<int> label;  // empty: the world
  LinkModel link;
};

Result<ParsedTier> ReadTier(const Json& tier, int world, size_t index, bool outermost) {
  static constexpr std::array<std::string_view, 4> kKnown = {"name", "domains", "latency_s",
                                                             "bytes_per_s"};
  const std::string where = Tier(index);
  if (!tier.is_object()) return Bad(where + " must be an object");
  ZPP_RETURN_IF_ERROR(CheckKeys(tier, where, kKnown));
  ZPP_RETURN_IF_ERROR(CheckName(tier, where));
  ParsedTier parsed;
  ZPP_ASSIGN_OR_RETURN(parsed.link.latency_s, NumberAt(tier, "latency_s", where));
  ZPP_ASSIGN_OR_RETURN(parsed.link.bytes_per_s, NumberAt(tier, "bytes_per_s", where));
  const auto domains = tier.find("domains");
  if (domains == tier.end()) {
    if (outermost) return parsed;
    return Bad(where + " needs domains; only the outermost tier, the world, may leave them out");
  }
  ZPP_ASSIGN_OR_RETURN(parsed.label, ReadDomains(*domains, world, where));
  if (!outermost) return parsed;
  if (domains->size() != 1) return Bad(where + " is the outermost: it has one domain, the world");
  parsed.label.clear();
  return parsed;
}

const char* TierName(int tier, int tiers) {
  static constexpr std::array<const char*, 3> kNames = {"node", "rack", "site"};
  return tier + 1 == tiers ? "world" : kNames[static_cast<size_t>(tier)];
}

}  // namespace

Result<Topology> Topology::FromJson(std::string_view text) {
  static constexpr std::array<std::string_view, 3> kKnown = {"version", "world", "tiers"};
  Result<Json> parsed = ParseStrictJson(text, kLimits);
  if (!parsed.ok()) return Status(parsed.status().code(), "topology: " + parsed.status().message());
  const Json& json = *parsed;
  if (!json.is_object()) return Bad("the JSON must be an object");
  ZPP_RETURN_IF_ERROR(CheckKeys(json, "the object", kKnown));
  ZPP_RETURN_IF_ERROR(IntegerAt(json, "version", kVersion, kVersion).status());
  ZPP_ASSIGN_OR_RETURN(const int world, IntegerAt(json, "world", 1, kMaxWorld));
  const auto tiers = json.find("tiers");
  if (tiers == json.end()) return Bad("the key 'tiers' is missing");
  if (!tiers->is_array()) return Bad("tiers must be a list");
  if (tiers->empty() || tiers->size() > kMaxTiers) {
    return Bad("there are 1 to " + std::to_string(kMaxTiers) + " tiers, not " +
               std::to_string(tiers->size()));
  }
  std::vector<std::vector<int>> labels;
  std::vector<LinkModel> links;
  for (size_t t = 0; t < tiers->size(); ++t) {
    const bool outermost = t + 1 == tiers->size();
    ZPP_ASSIGN_OR_RETURN(ParsedTier tier, ReadTier((*tiers)[t], world, t, outermost));
    if (!outermost) labels.push_back(std::move(tier.label));
    links.push_back(tier.link);
  }
  Result<Topology> topology = FromLabels(world, labels);
  if (!topology.ok()) return Bad(topology.status().message());
  const Status linked = topology->SetLinks(links);
  if (!linked.ok()) return Bad(linked.message());
  return topology;
}

std::string Topology::ToJson() const {
  Json tier_list = Json::array();
  for (int tier = 0; tier < tiers(); ++tier) {
    Json entry = {{"name", TierName(tier, tiers())},
                  {"latency_s", links_[tier].latency_s},
                  {"bytes_per_s", links_[tier].bytes_per_s}};
    if (tier + 1 < tiers()) {
      entry["domains"] = Json::array();
      for (const Domain& domain : levels_[tier + 1]) entry["domains"].push_back(domain.ranks);
    }
    tier_list.push_back(std::move(entry));
  }
  return Json{{"version", kVersion}, {"world", world_}, {"tiers", std::move(tier_list)}}.dump();
}

namespace {

Result<std::string> ReadText(const std::string& path) {
  ZPP_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  // What is longer is refused later, by its first bytes.
  const auto bytes = std::min(static_cast<size_t>(file.size_bytes()), kLimits.max_bytes + 1);
  std::string text(bytes, '\0');
  ZPP_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

// Whoever reads the message may have set the variable long ago: it says what kind of file it was.
Result<Topology> ReadTopologyFile(const std::string& path) {
  const Result<std::string> text = ReadText(path);
  if (!text.ok()) {
    return Status(text.status().code(), "the topology file: " + text.status().message());
  }
  Result<Topology> topology = Topology::FromJson(*text);
  if (topology.ok()) return topology;
  return Status(topology.status().code(),
                "the topology file '" + path + "': " + topology.status().message());
}

}  // namespace zpp
