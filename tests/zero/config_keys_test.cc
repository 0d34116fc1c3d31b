// The tables of keys, and that zero/README.md knows every one of them.
#include "zero/internal/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "zero/config.h"

namespace zpp {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("abc", "abc"), 0);
  EXPECT_EQ(EditDistance("abc", "abd"), 1);
  EXPECT_EQ(EditDistance("abc", "ac"), 1);
  EXPECT_EQ(EditDistance("abc", "acb"), 1);
  EXPECT_EQ(EditDistance("abc", "bac"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("sitting", "kitten"), 3);
}

TEST(InertKeys, AreWellFormed) {
  std::set<std::string> seen;
  for (const InertKey& inert : InertKeys()) {
    const std::string name = std::string(inert.section) + '.' + std::string(inert.key);
    EXPECT_TRUE(seen.insert(name).second) << name << " is there twice";
    EXPECT_FALSE(nlohmann::json::parse(inert.quiet, nullptr, false).is_discarded()) << name;
    EXPECT_EQ(FindInertKey(inert.section, inert.key), &inert);
    const bool refused = inert.effect == InertEffect::kRefused;
    EXPECT_EQ(inert.sentence.rfind(refused ? "is refused: " : "has no effect here: ", 0), 0u)
        << name;
  }
}

// Its own quiet value passes; anything else gets a note or an error that ends with the sentence.
TEST(InertKeys, EachIsFoundInItsSection) {
  for (const InertKey& inert : InertKeys()) {
    nlohmann::json json = {{"train_batch_size", 1},
                           {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}},
                           {"zero_optimization", {{"stage", 3}}}};
    std::string pointer;
    for (const char c : inert.section) pointer += c == '.' ? '/' : c;
    if (!pointer.empty()) pointer = '/' + pointer;
    nlohmann::json& section = json[nlohmann::json::json_pointer(pointer)];
    section[std::string(inert.key)] = nlohmann::json::parse(inert.quiet);
    const auto quiet = ParseZeroConfig(json.dump(), 1);
    ASSERT_TRUE(quiet.ok()) << quiet.status().ToString();
    EXPECT_TRUE(quiet->notes.empty()) << quiet->notes[0];

    section[std::string(inert.key)] = "something";
    const auto loud = ParseZeroConfig(json.dump(), 1);
    ASSERT_EQ(loud.ok(), inert.effect == InertEffect::kNoted) << inert.key;
    const std::string message = loud.ok() ? loud->notes.at(0) : loud.status().message();
    EXPECT_THAT(message, EndsWith(' ' + std::string(inert.sentence)));
    EXPECT_THAT(message, HasSubstr(std::string(inert.key)));
  }
}

void CollectKeys(const nlohmann::json& section, std::set<std::string>& keys) {
  for (const auto& [key, value] : section.items()) {
    keys.insert(key);
    if (value.is_object()) CollectKeys(value, keys);
  }
}

TEST(ConfigReadme, NamesEveryKey) {
  std::ifstream file(ZPP_ZERO_README);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(text.empty()) << ZPP_ZERO_README;
  ZeroConfig config;
  config.loco.emplace();
  std::set<std::string> keys;
  CollectKeys(ToJson(config), keys);
  config.optimizer = OptimizerType::kSgd;
  CollectKeys(ToJson(config), keys);
  for (const InertKey& inert : InertKeys()) keys.emplace(inert.key);
  for (const std::string& key : keys) {
    EXPECT_THAT(text, HasSubstr('`' + key + '`'))
        << "zero/README.md does not say what " << key << " does";
  }
}

}  // namespace
}  // namespace zpp
