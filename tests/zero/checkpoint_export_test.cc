// One .safetensors file from tensors that come one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/safetensors.h"
#include "tests/harness/ranks.h"
#include "tests/zero/checkpoint_cases.h"
#include "zero/checkpoint_export.h"

namespace zpp::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Text(const Status& status) { return status.ToString(); }

std::vector<ExportTensor> Described(const std::vector<TensorCase>& tensors) {
  std::vector<ExportTensor> described;
  for (const TensorCase& t : tensors) described.push_back({t.name, t.shape, t.dtype});
  return described;
}

// Collective, as an engine's would be: the bytes come from the last rank.
ExportSource FromLastRank(Communicator& comm, const std::vector<TensorCase>& tensors) {
  return [&](size_t index, Vec out) -> Status {
    const int root = comm.world() - 1;
    if (comm.rank() == root && out.elems > 0) {
      const auto values = ValuesOf(tensors[index], 0, out.elems, 7);
      std::memcpy(out.data, values.data(), values.size());
    }
    return comm.Broadcast(out, root);
  };
}

TEST(CheckpointExport, EveryoneCanReadIt) {
  std::vector<TensorCase> tensors = FewTensors();
  tensors.push_back({"a/empty", {0, 3}, DType::kF16});
  tensors.push_back({"half", {7}, DType::kF16});
  tensors.push_back({"scalar", {}, DType::kF32});
  for (const int world : {1, 2, 4}) {
    const TempFolder dir;
    ASSERT_EQ("OK", Text(SaveWith(world, [&](Communicator& comm) {
                return ExportSafetensors(comm, dir / "model.safetensors", Described(tensors),
                                         FromLastRank(comm, tensors));
              })));
    EXPECT_THAT(NamesIn(dir.path()), ElementsAre("model.safetensors"));
    const auto file = SafetensorsFile::Open(dir / "model.safetensors");
    ASSERT_TRUE(file.ok()) << Text(file.status());
    EXPECT_EQ("pt", file->metadata().at("format"));
    EXPECT_EQ(tensors.size(), file->tensors().size());
    for (const TensorCase& tensor : tensors) {
      const StoredTensor* stored = file->Find(tensor.name);
      ASSERT_NE(nullptr, stored) << tensor.name;
      EXPECT_EQ(tensor.shape, stored->shape);
      std::vector<std::byte> got(static_cast<size_t>(stored->size_bytes));
      ASSERT_EQ("OK", Text(file->Read(*stored, 0, got)));
      EXPECT_TRUE(got == ValuesOf(tensor, 0, tensor.elems(), 7)) << tensor.name;
    }
  }
}

TEST(CheckpointExport, AFailureLeavesTheOldFile) {
  const TempFolder dir;
  WriteText(dir / "model.safetensors", "old");
  const auto tensors = FewTensors();
  const auto save = [&](const std::string& path, const std::vector<ExportTensor>& described,
                        int failing_rank) {
    return SaveWith(3, [&](Communicator& comm) {
      const ExportSource source = [&](size_t index, Vec) -> Status {
        if (index == 1 && comm.rank() == failing_rank) return DataLoss("no such weights");
        return {};
      };
      return ExportSafetensors(comm, path, described, source);
    });
  };
  const std::string path = dir / "model.safetensors";
  for (const int rank : {0, 2}) {
    EXPECT_EQ("DATA_LOSS: rank " + std::to_string(rank) + ": no such weights",
              Text(save(path, Described(tensors), rank)));
  }
  EXPECT_THAT(Text(save(path, {{"w", {2}}, {"w", {2}}}, -1)), HasSubstr("rank 0: "));
  EXPECT_THAT(Text(save(path, {{"w", {-2}}}, -1)), HasSubstr("'w' has the impossible shape (-2)"));
  EXPECT_THAT(Text(save(dir / "no/model.safetensors", Described(tensors), -1)),
              HasSubstr("NOT_FOUND: rank 0: cannot write"));
  EXPECT_EQ("old", ReadText(path));
  EXPECT_THAT(NamesIn(dir.path()), ElementsAre("model.safetensors"));
}

}  // namespace
}  // namespace zpp::test
