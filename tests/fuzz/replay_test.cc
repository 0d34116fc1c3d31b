// Runs a fuzz target over its corpus without libFuzzer: what was once found stays fixed in every
// build.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

TEST(FuzzReplay, CorpusHolds) {
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ZPP_FUZZ_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
              0);
    ++inputs;
  }
  EXPECT_GE(inputs, 5) << "the corpus is missing: " << ZPP_FUZZ_CORPUS;
}

TEST(FuzzReplay, EveryPrefixOfTheCorpusHolds) {
  for (const auto& entry : std::filesystem::directory_iterator(ZPP_FUZZ_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), length), 0);
    }
  }
}

}  // namespace
