#include "tests/zero/checkpoint_cases.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

namespace fs = std::filesystem;

// splitmix64: https://prng.di.unimi.it/splitmix64.c
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t SeedOf(const std::string& name, int64_t step) {
  uint64_t seed = static_cast<uint64_t>(step);
  for (const char c : name) seed = Mix(seed + static_cast<unsigned char>(c));
  return seed;
}

std::vector<int64_t> Cuts(int64_t elems, int world, std::mt19937_64& random) {
  std::vector<int64_t> cuts = {0, elems};
  for (int i = 0; i < 2 * world - 1; ++i) {
    cuts.push_back(std::uniform_int_distribution<int64_t>(0, elems)(random));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace

TempFolder::TempFolder() {
  std::string pattern = fs::temp_directory_path() / "zpp_checkpoint_XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

int64_t TensorCase::elems() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::vector<TensorCase> ManyTensors() {
  return {{"layer/0.weight", {7, 13}, DType::kF32},
          {"layer/0.weight[0:91]", {5}, DType::kF32},
          {"a scalar", {}, DType::kF32},
          {"empty", {0, 4}, DType::kF16},
          {"one", {1}, DType::kBF16},
          {"odd \"name\"\n\t\\ \xc3\xa9", {3}, DType::kF16},
          {"__metadata__", {17}, DType::kBF16},
          {"bytes", {1001}, DType::kByte},
          {"big", {3, 250001}, DType::kF32}};
}

std::vector<TensorCase> FewTensors() {
  return {{"w", {3, 4}, DType::kF32}, {"b", {5}, DType::kBF16}, {"noise", {9}, DType::kByte}};
}

std::vector<std::byte> ValuesOf(const TensorCase& tensor, int64_t first, int64_t elems,
                                int64_t step) {
  const auto size = static_cast<size_t>(SizeOf(tensor.dtype));
  const uint64_t seed = SeedOf(tensor.name, step);
  std::vector<std::byte> bytes(static_cast<size_t>(elems) * size);
  for (size_t i = 0; i < static_cast<size_t>(elems); ++i) {
    const uint64_t value = Mix(seed + static_cast<uint64_t>(first) + i);
    std::memcpy(bytes.data() + i * size, &value, size);
  }
  return bytes;
}

OwnedPieces DealPieces(const std::vector<TensorCase>& tensors, int rank, int world, int64_t step,
                       uint64_t seed) {
  OwnedPieces owned;
  std::mt19937_64 random(seed);
  for (const TensorCase& tensor : tensors) {
    const auto cuts = Cuts(tensor.elems(), world, random);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int owner = std::uniform_int_distribution<int>(0, world - 1)(random);
      if (owner != rank) continue;
      const int64_t elems = cuts[i + 1] - cuts[i];
      owned.storage.push_back(ValuesOf(tensor, cuts[i], elems, step));
      owned.pieces.push_back({.name = tensor.name,
                              .shape = tensor.shape,
                              .first_elem = cuts[i],
                              .dtype = tensor.dtype,
                              .data = owned.storage.back().data(),
                              .elems = elems});
    }
  }
  return owned;
}

CheckpointMeta MetaOf(const std::vector<TensorCase>& tensors, int64_t step) {
  std::vector<ModelTensor> model;
  for (const TensorCase& tensor : tensors) model.push_back({tensor.name, tensor.shape});
  return {.step = step,
          .model_fingerprint = ModelFingerprint(model),
          .state = {{"step", step}, {"third", 1.0 / 3.0}, {"tiny", 5e-324}},
          .user = "position " + std::to_string(step)};
}

Status SaveWith(int world, const SaveBody& body) {
  const auto topology = Topology::Flat(world);
  const auto texts = RunWorld({.topology = topology}, [&](Communicator& comm) {
    const Status status = body(comm);
    return Result<std::string>(std::to_string(static_cast<int>(status.code())) + " " +
                               status.message());
  });
  if (!texts.ok()) return texts.status();
  for (const std::string& text : *texts) {
    if (text != texts->front()) return Internal("ranks differ: " + text + " / " + texts->front());
  }
  const std::string& text = texts->front();
  const auto code = static_cast<StatusCode>(std::stoi(text));
  return code == StatusCode::kOk ? Status() : Status(code, text.substr(text.find(' ') + 1));
}

Status SaveFrom(int world, const std::string& dir, const std::vector<TensorCase>& tensors,
                int64_t step, const SaveOptions& options) {
  return SaveWith(world, [&](Communicator& comm) {
    const OwnedPieces owned = DealPieces(tensors, comm.rank(), world, step);
    return SaveCheckpoint(comm, dir, MetaOf(tensors, step), owned.pieces, options);
  });
}

Status CheckCheckpoint(const std::string& path, const std::vector<TensorCase>& tensors,
                       int64_t step) {
  ZPP_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  const CheckpointMeta expected = MetaOf(tensors, step);
  ZPP_REQUIRE_MSG(reader.meta().step == step, std::to_string(reader.meta().step));
  ZPP_REQUIRE(reader.meta().model_fingerprint == expected.model_fingerprint);
  ZPP_REQUIRE(reader.meta().state == expected.state);
  ZPP_REQUIRE(reader.meta().user == expected.user);
  ZPP_REQUIRE(reader.names().size() == tensors.size());
  for (const TensorCase& tensor : tensors) {
    ZPP_REQUIRE(reader.Has(tensor.name));
    ZPP_REQUIRE(reader.shape(tensor.name) == tensor.shape);
    ZPP_REQUIRE(reader.dtype(tensor.name) == tensor.dtype);
    const auto want = ValuesOf(tensor, 0, tensor.elems(), step);
    std::vector<std::byte> got(want.size(), std::byte{0xa5});
    ZPP_RETURN_IF_ERROR(reader.Read(tensor.name, 0, {tensor.dtype, got.data(), tensor.elems()}));
    ZPP_REQUIRE_MSG(got == want, tensor.name);
  }
  return reader.Verify();
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  ASSERT_TRUE(file.flush().good()) << path;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace zpp::test
