#include "common/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

namespace zpp {
namespace {

class Env : public ::testing::Test {
 protected:
  void Set(EnvVar var, const char* value) {
    ::setenv(std::string(Describe(var).name).c_str(), value, 1);
    touched_.insert(var);
  }
  void TearDown() override {
    for (EnvVar var : touched_) ::unsetenv(std::string(Describe(var).name).c_str());
  }

 private:
  std::set<EnvVar> touched_;
};

TEST_F(Env, TableIsInOrderCompleteAndUnique) {
  std::set<std::string_view> names;
  size_t at = 0;
  for (const EnvInfo& info : EnvTable()) {
    EXPECT_EQ(static_cast<size_t>(info.var), at++) << info.name;
    EXPECT_EQ(info.name.substr(0, 4), "ZPP_");
    EXPECT_FALSE(info.values.empty()) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
}

TEST_F(Env, UnsetAndEmptyGiveTheDefault) {
  EXPECT_EQ(GetEnv(EnvVar::kTimeout), "30");
  EXPECT_FALSE(EnvIsSet(EnvVar::kTimeout));
  Set(EnvVar::kTimeout, "");
  EXPECT_EQ(GetEnv(EnvVar::kTimeout), "30");
  EXPECT_FALSE(EnvIsSet(EnvVar::kTimeout));
  Set(EnvVar::kTimeout, "2.5");
  EXPECT_TRUE(EnvIsSet(EnvVar::kTimeout));
  EXPECT_EQ(*GetEnvNumber(EnvVar::kTimeout, 0.01, 86400), 2.5);
}

TEST_F(Env, BadNumbersAreRefusedByName) {
  for (const char* bad : {"nan", "inf", "-1", "1e9", "3s", " 3", "", "0x10", "1,5"}) {
    Set(EnvVar::kTimeout, bad);
    const Result<double> number = GetEnvNumber(EnvVar::kTimeout, 0.01, 86400);
    if (*bad == '\0') {
      EXPECT_TRUE(number.ok());
      continue;
    }
    ASSERT_FALSE(number.ok()) << bad;
    EXPECT_NE(number.status().message().find("ZPP_TIMEOUT='" + std::string(bad) + "'"),
              std::string::npos);
  }
}

TEST_F(Env, BadIntegersAreRefusedByName) {
  for (const char* bad : {"1.5", "-1", "65", "99999999999999999999", "two"}) {
    Set(EnvVar::kThreads, bad);
    EXPECT_FALSE(GetEnvInteger(EnvVar::kThreads, 1, 64).ok()) << bad;
  }
  Set(EnvVar::kThreads, "64");
  EXPECT_EQ(*GetEnvInteger(EnvVar::kThreads, 1, 64), 64);
}

}  // namespace
}  // namespace zpp
