#include "zero/audit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace zpp {
namespace {

std::vector<float> Normal(size_t elems, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elems);
  for (float& value : values) value = normal(random);
  return values;
}

Audit Make(const AuditOptions& options, std::vector<AuditBucket> buckets,
           const AdamConfig& adam = {}) {
  Result<Audit> audit = Audit::Create(options, std::move(buckets), adam);
  EXPECT_TRUE(audit.ok()) << audit.status().ToString();
  return std::move(audit).value();
}

// One bucket, one rank, one step: its record.
BucketAudit RecordOne(Audit& audit, int64_t step, const AuditSums& sums) {
  EXPECT_TRUE(audit.Record(step, false, std::vector<int>{4}, std::vector<AuditSums>{sums}).ok());
  EXPECT_NE(audit.Last(0), nullptr);
  return *audit.Last(0);
}

TEST(AuditSums, FiguresByHand) {
  const std::vector<float> want = {3, 0, -4, 1};
  const std::vector<float> got = {3, 0.5f, -4, 0};
  AuditSums sums;
  sums.AddGradient(want, got);
  EXPECT_DOUBLE_EQ(sums.true_sq, 26);
  EXPECT_DOUBLE_EQ(sums.received_sq, 25.25);
  EXPECT_DOUBLE_EQ(sums.dot, 25);
  EXPECT_DOUBLE_EQ(sums.diff_sq, 1.25);
  EXPECT_DOUBLE_EQ(sums.max_abs_diff, 1);
  EXPECT_EQ(sums.nonzero, 3);
  EXPECT_EQ(sums.zeroed, 1);
  Audit audit = Make({.every = 2}, {{.name = "w", .shard_elems = 4}});
  const BucketAudit record = RecordOne(audit, 2, sums);
  EXPECT_DOUBLE_EQ(record.cosine.value(), 25 / std::sqrt(26 * 25.25));
  EXPECT_DOUBLE_EQ(record.true_rel_error.value(), std::sqrt(1.25 / 26));
  EXPECT_DOUBLE_EQ(record.final_zeroed_share.value(), 1.0 / 3);
  EXPECT_FALSE(record.sum_error || record.update_error || record.drift ||
               record.accumulated_error || record.unseen_rows_hit);
}

// Cut anywhere and merged in order, sent as bytes: the same figures.
TEST(AuditSums, MergedShardsAreTheWhole) {
  const std::vector<float> want = Normal(1000, 1);
  std::vector<float> got = Normal(1000, 2);
  for (size_t i = 0; i < got.size(); ++i) got[i] = i % 7 == 0 ? 0 : want[i] + 0.1f * got[i];
  AuditSums whole;
  whole.AddGradient(want, got);
  whole.AddResidual(want);
  ASSERT_TRUE(whole.AddReplica(want, {DType::kF32, got.data(), 1000}).ok());
  AuditSums merged;
  size_t at = 0;
  for (size_t elems : {size_t{0}, size_t{1}, size_t{499}, size_t{500}}) {
    AuditSums part;
    part.AddGradient(std::span(want).subspan(at, elems), std::span(got).subspan(at, elems));
    part.AddResidual(std::span(want).subspan(at, elems));
    ASSERT_TRUE(part.AddReplica(std::span(want).subspan(at, elems),
                                {DType::kF32, got.data() + at, static_cast<int64_t>(elems)})
                    .ok());
    AuditSums sent;
    std::memcpy(static_cast<void*>(&sent), &part, sizeof(part));
    merged.Merge(sent);
    at += elems;
  }
  EXPECT_NEAR(merged.dot, whole.dot, 1e-9);
  EXPECT_NEAR(merged.true_sq, whole.true_sq, 1e-9);
  EXPECT_NEAR(merged.received_sq, whole.received_sq, 1e-9);
  EXPECT_NEAR(merged.diff_sq, whole.diff_sq, 1e-9);
  EXPECT_NEAR(merged.residual_sq, whole.residual_sq, 1e-9);
  EXPECT_NEAR(merged.replica_diff_sq, whole.replica_diff_sq, 1e-9);
  EXPECT_EQ(merged.max_abs_diff, whole.max_abs_diff);
  EXPECT_EQ(merged.nonzero, whole.nonzero);
  EXPECT_EQ(merged.zeroed, whole.zeroed);
}

TEST(AuditSums, MergesEveryField) {
  const ErrorStats stats{1, 2, 3, 4, 5, 6, 7};
  const AuditSums one{1,  2,  3,  4,  5,  6,     7,     8,     9,     10,   11,
                      12, 13, 14, 15, 16, stats, stats, stats, stats, stats};
  AuditSums sums;
  sums.Merge(one);
  EXPECT_EQ(std::memcmp(&sums, &one, sizeof(one)), 0);
  sums.Merge(one);
  EXPECT_EQ(sums.dot, 2);
  EXPECT_EQ(sums.max_abs_diff, 5);
  EXPECT_EQ(sums.unseen_hit, 18);
  EXPECT_EQ(sums.replica_diff_sq, 32);
  EXPECT_EQ(sums.coarser.zeroed, 14);
  EXPECT_EQ(sums.period.nonzero, 12);
}

TEST(AuditSums, DriftOfReplicasOfAnyType) {
  const std::vector<float> master = {1, -2, 4, 0};
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x4090, 0x0000};  // 1, -2, 4.5, 0
  AuditSums sums;
  ASSERT_TRUE(sums.AddReplica(master, {DType::kBF16, bf16.data(), 4}).ok());
  EXPECT_DOUBLE_EQ(sums.master_sq, 21);
  EXPECT_DOUBLE_EQ(sums.replica_diff_sq, 0.25);
  EXPECT_EQ(sums.AddReplica(master, {DType::kBF16, bf16.data(), 3}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(sums.AddReplica(master, {DType::kByte, bf16.data(), 4}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_DOUBLE_EQ(sums.master_sq, 21);
  Audit audit = Make({}, {{.name = "w", .shard_elems = 4}});
  EXPECT_DOUBLE_EQ(RecordOne(audit, 1, sums).drift.value(), std::sqrt(0.25 / 21));
}

TEST(AuditSums, ProbeIsTheErrorOfAnEncoding) {
  const std::vector<float> values = Normal(1 << 16, 3);
  const Result<ErrorStats> int4 = ProbeCoarser(QuantSpec::Int4(Code::kSqrt), values);
  ASSERT_TRUE(int4.ok());
  EXPECT_NEAR(int4->relative_error(), 0.110, 0.003);
  const Result<ErrorStats> int8 = ProbeCoarser(QuantSpec::Int8(), values);
  ASSERT_TRUE(int8.ok());
  EXPECT_NEAR(int8->relative_error(), 0.0070, 0.0005);
  EXPECT_TRUE(ProbeCoarser(QuantSpec::Int8(), {}).ok());
  EXPECT_FALSE(ProbeCoarser(QuantSpec::Int8(33), values).ok());
}

TEST(Audit, WhatIsDue) {
  const Audit free = Make({}, {});
  EXPECT_FALSE(free.Due(100, false));
  EXPECT_TRUE(free.Due(100, true));
  EXPECT_FALSE(free.NeedsTrueGradient(100));
  const Audit every = Make({.every = 10}, {});
  EXPECT_TRUE(every.Due(20, false));
  EXPECT_FALSE(every.Due(21, false));
  EXPECT_TRUE(every.Due(21, true));
  EXPECT_TRUE(every.NeedsTrueGradient(20));
  EXPECT_FALSE(every.NeedsTrueGradient(21));
}

TEST(Audit, EncoderStatisticsAndWhatIsOwed) {
  AuditSums sums;
  sums.outer = {.sum_squared_error = 1,
                .sum_squared_value = 100,
                .max_abs_error = 0.5,
                .clipped = 3,
                .nonzero = 50,
                .zeroed = 2};
  sums.inner = {.sum_squared_error = 1, .sum_squared_value = 10000};
  sums.weights = {.sum_squared_error = 4, .sum_squared_value = 10000};
  sums.AddReceived(std::vector<float>{3, 4});
  sums.AddResidual(std::vector<float>{0.3f, 0.4f});
  Audit audit = Make({}, {{.name = "w", .shard_elems = 2}});
  const BucketAudit record = RecordOne(audit, 100, sums);
  EXPECT_DOUBLE_EQ(record.rel_error, 0.1);
  EXPECT_DOUBLE_EQ(record.zeroed_share, 0.04);
  EXPECT_EQ(record.max_abs_error, 0.5);
  EXPECT_EQ(record.clipped, 3);
  EXPECT_DOUBLE_EQ(record.inner_rel_error, 0.01);
  EXPECT_DOUBLE_EQ(record.weight_rel_error, 0.02);
  EXPECT_NEAR(record.accumulated_error.value(), 0.1, 1e-7);
  EXPECT_FALSE(record.cosine || record.true_rel_error || record.final_zeroed_share);
}

TEST(Audit, AllIsTheCompressedBucketsTogether) {
  Audit audit = Make({}, {{.name = "a"}, {.name = "norms", .compressed = false}, {.name = "b"}});
  std::vector<AuditSums> sums(3);
  sums[0].outer = {.sum_squared_error = 1, .sum_squared_value = 100};
  sums[1].outer = {.sum_squared_error = 1e9, .sum_squared_value = 1};
  sums[2].outer = {.sum_squared_error = 8, .sum_squared_value = 800};
  sums[1].master_sq = 100;  // weights follow their own rules
  sums[1].replica_diff_sq = 1;
  ASSERT_TRUE(audit.Record(5, true, std::vector<int>{4, 0, 8}, sums).ok());
  ASSERT_EQ(audit.records().size(), 4u);
  EXPECT_EQ(audit.records()[0].bucket, BucketAudit::kAllBuckets);
  EXPECT_DOUBLE_EQ(audit.records()[0].rel_error, 0.1);
  EXPECT_DOUBLE_EQ(audit.records()[0].drift.value(), 0.1);
  EXPECT_EQ(audit.records()[3].bits, 8);
  EXPECT_EQ(audit.bucket_name(2), "b");
  for (const BucketAudit& record : audit.records()) EXPECT_TRUE(record.step == 5 && record.exact);
}

TEST(Audit, RowsThatNeverHadAGradient) {
  // Rows of 4; the shard begins with the last element of a row.
  Audit audit = Make(
      {.every = 1},
      {{.name = "w", .shard_elems = 9, .rows = {{.elems = 9, .row_elems = 4, .first_in_row = 3}}}});
  EXPECT_EQ(audit.bytes(), 3);
  const auto step = [&](std::vector<float> want, std::vector<float> got) {
    AuditSums sums;
    EXPECT_TRUE(audit.AddGradient(0, {want, got, got}, 1, sums).ok());
    return std::pair(sums.unseen_rows, sums.unseen_hit);
  };
  EXPECT_EQ(step({0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 0}), std::pair(3L, 0L));
  EXPECT_EQ(step({0, 0, 5, 0, 0, 0, 0, 0, 0}, {0, 9, 5, 0, 0, 0, 0, 0, 0}), std::pair(2L, 0L));
  // A row that has been seen may receive what is late, the others nothing.
  EXPECT_EQ(step({0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 0, 0, 0, 0, 1}), std::pair(2L, 1L));
  EXPECT_EQ(step({0, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 1, 0, 0, 0}), std::pair(2L, 2L));
  audit.Restart();  // what had a gradient before is not known any more
  EXPECT_EQ(step({0, 0, 0, 0, 0, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1, 1, 1, 1}), std::pair(0L, 0L));
}

// A matrix (3, 4) and a vector (5) in one bucket with a hole between them, cut into two shards.
TEST(Audit, RowsOfAShard) {
  const std::vector<ParamSpec> params = {{.name = "w", .shape = {5, 4}},
                                         {.name = "b", .shape = {5}}};
  Bucket bucket;
  bucket.elems = 24;
  bucket.shard_first = {0, 9};
  bucket.shard_elems = {9, 15};
  bucket.pieces = {{.param = 0, .param_first = 8, .bucket_first = 0, .elems = 12},
                   {.param = 1, .param_first = 0, .bucket_first = 16, .elems = 5}};
  ShardMap map;
  map.world = 2;
  map.buckets = {bucket};
  const std::vector<RowRun> first = RowsOfShard(map, params, 0, 0);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0], (RowRun{.first = 0, .elems = 9, .row_elems = 4, .first_in_row = 0}));
  const std::vector<RowRun> second = RowsOfShard(map, params, 0, 1);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0], (RowRun{.first = 0, .elems = 3, .row_elems = 4, .first_in_row = 1}));
  EXPECT_EQ(second[1], (RowRun{.first = 7, .elems = 5, .row_elems = 5, .first_in_row = 0}));
  EXPECT_TRUE(Audit::Create({.every = 1}, {{.name = "0", .shard_elems = 15, .rows = second}}).ok());
}

TEST(Audit, ShadowAdamMatchesTheOptimizer) {
  constexpr size_t kElems = 300;
  const AdamConfig adam{.lr = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  Audit audit =
      Make({.every = 1, .update_error = true}, {{.name = "w", .shard_elems = kElems}}, adam);
  EXPECT_EQ(audit.bytes(), static_cast<int64_t>(24 * kElems));
  std::vector<float> m1(kElems), v1(kElems), m2(kElems), v2(kElems), p1(kElems), p2(kElems);
  for (int64_t step = 1; step <= 20; ++step) {
    const std::vector<float> want = Normal(kElems, static_cast<uint32_t>(step));
    std::vector<float> got = Normal(kElems, static_cast<uint32_t>(100 + step));
    for (size_t i = 0; i < kElems; ++i) got[i] = want[i] + 0.2f * got[i];
    AuditSums sums;
    ASSERT_TRUE(audit.AddGradient(0, {want, got, got}, 0.25, sums).ok());
    std::fill(p1.begin(), p1.end(), 0.0f);
    std::fill(p2.begin(), p2.end(), 0.0f);
    ASSERT_TRUE(AdamStep(adam, step, 0.25f, {p1, m1, v1, want, {}}).ok());
    ASSERT_TRUE(AdamStep(adam, step, 0.25f, {p2, m2, v2, got, {}}).ok());
    double diff = 0, norm = 0;
    for (size_t i = 0; i < kElems; ++i) {
      diff += std::pow(static_cast<double>(p2[i]) - p1[i], 2);
      norm += std::pow(static_cast<double>(p1[i]), 2);
    }
    const double error = RecordOne(audit, step, sums).update_error.value();
    ASSERT_NEAR(error, std::sqrt(diff / norm), 1e-4 * error) << step;
    ASSERT_GT(error, 0.02);
  }
}

TEST(Audit, SummedErrorIsInAppliedUnits) {
  Audit audit = Make({.every = 1, .update_error = true}, {{.name = "w", .shard_elems = 1}});
  BucketAudit record;
  for (int64_t step = 1; step <= 4; ++step) {
    AuditSums sums;
    const std::vector<float> want = {1}, got = {step == 1 ? 1.5f : 1.0f};
    ASSERT_TRUE(audit.AddGradient(0, {want, got, got}, step == 1 ? 0.5 : 1.0, sums).ok());
    record = RecordOne(audit, step, sums);
  }
  EXPECT_NEAR(record.sum_error.value(), 0.25 / 3.5, 1e-6);
}

// At an exact step the optimizer gets more than what compression would have delivered.
TEST(Audit, WhatWasAppliedCountsForTheSums) {
  Audit audit = Make({.every = 1, .update_error = true}, {{.name = "w", .shard_elems = 1}});
  AuditSums sums;
  const std::vector<float> want = {1}, got = {0.5f};
  ASSERT_TRUE(audit.AddGradient(0, {want, got, want}, 1, sums).ok());
  const BucketAudit record = RecordOne(audit, 1, sums);
  EXPECT_EQ(record.true_rel_error.value(), 0.5);
  EXPECT_EQ(record.sum_error.value(), 0);
  EXPECT_EQ(record.update_error.value(), 0);
}

TEST(Audit, WhatArrivesExactlyHasNoError) {
  Audit audit = Make({.every = 1, .update_error = true}, {{.name = "w", .shard_elems = 64}});
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<float> gradient = Normal(64, static_cast<uint32_t>(step));
    AuditSums sums;
    ASSERT_TRUE(audit.AddGradient(0, {gradient, gradient, gradient}, 1, sums).ok());
    const BucketAudit record = RecordOne(audit, step, sums);
    EXPECT_NEAR(record.cosine.value(), 1, 1e-12);
    EXPECT_EQ(record.true_rel_error.value(), 0);
    EXPECT_EQ(record.sum_error.value(), 0);
    EXPECT_EQ(record.update_error.value(), 0);
    EXPECT_EQ(record.final_zeroed_share.value(), 0);
  }
}

TEST(Audit, NothingButZerosLeavesFiguresAbsent) {
  Audit audit = Make({.every = 1, .update_error = true}, {{.name = "w", .shard_elems = 8}});
  const std::vector<float> zeros(8);
  AuditSums sums;
  ASSERT_TRUE(audit.AddGradient(0, {zeros, zeros, zeros}, 1, sums).ok());
  const BucketAudit record = RecordOne(audit, 1, sums);
  EXPECT_FALSE(record.cosine || record.true_rel_error || record.sum_error || record.update_error);
  EXPECT_EQ(record.rel_error, 0);
  EXPECT_EQ(record.unseen_rows_hit.value(), 0);
}

// However long the run, records stay bounded, span it all and are evenly spaced.
TEST(Audit, MemoryIsBounded) {
  Audit audit = Make({.max_records = 64}, {{.name = "w"}});
  for (int64_t step = 1; step <= 5000; ++step) {
    ASSERT_TRUE(audit.Record(step, true, std::vector<int>{4}, std::vector<AuditSums>(1)).ok());
    ASSERT_LE(audit.records().size(), 64u);
    ASSERT_EQ(audit.Last()->step, step);
  }
  const std::vector<BucketAudit>& records = audit.records();
  ASSERT_GE(records.size(), 32u);
  EXPECT_EQ(records[0].step, 1);
  const int64_t stride = records[2].step - records[0].step;
  for (size_t i = 2; i < records.size(); ++i) {
    ASSERT_EQ(records[i].step - records[i - 2].step, stride);
    ASSERT_EQ(records[i].bucket, records[i - 2].bucket);
  }
  EXPECT_GT(records.back().step, 5000 - stride);
}

TEST(Audit, KeepsOneStepEvenIfThatIsTooMuch) {
  Audit audit = Make({.max_records = 1}, {{.name = "a"}, {.name = "b"}});
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(audit.Record(step, true, std::vector<int>{4, 4}, std::vector<AuditSums>(2)).ok());
    EXPECT_EQ(audit.records().size(), 3u);
  }
}

TEST(Audit, Json) {
  Audit audit = Make({.every = 1}, {{.name = "layer \"1\"", .shard_elems = 2}});
  AuditSums sums;
  const std::vector<float> gradient = {1, 2};
  ASSERT_TRUE(audit.AddGradient(0, {gradient, gradient, gradient}, 1, sums).ok());
  (void)RecordOne(audit, 1, sums);
  const nlohmann::json json = nlohmann::json::parse(audit.ToJson().dump());
  EXPECT_EQ(json["every"], 1);
  EXPECT_EQ(json["buckets"][0], "layer \"1\"");
  ASSERT_EQ(json["records"].size(), 2u);
  EXPECT_EQ(json["records"][0]["bucket"], "all");
  EXPECT_FALSE(json["records"][0].contains("bits"));
  EXPECT_EQ(json["records"][1]["bucket"], 0);
  EXPECT_EQ(json["records"][1]["bits"], 4);
  EXPECT_EQ(json["records"][1]["true_rel_error"], 0);
  EXPECT_FALSE(json["records"][1].contains("drift"));
}

TEST(Audit, RefusesBadOptionsAndSizes) {
  EXPECT_FALSE(Audit::Create({.every = -1}, {}).ok());
  EXPECT_FALSE(Audit::Create({.max_records = 0}, {}).ok());
  EXPECT_FALSE(Audit::Create({.every = 2, .update_error = true}, {}).ok());
  const RowRun bad_rows[] = {{.elems = 5, .row_elems = 4},
                             {.first = -1, .elems = 2, .row_elems = 4},
                             {.elems = 4, .row_elems = 0},
                             {.elems = 4, .row_elems = 4, .first_in_row = 4}};
  for (const RowRun& run : bad_rows) {
    EXPECT_FALSE(Audit::Create({}, {{.name = "w", .shard_elems = 4, .rows = {run}}}).ok());
  }
  Audit audit = Make({.every = 1}, {{.name = "w", .shard_elems = 2}});
  AuditSums sums;
  const std::vector<float> two(2), three(3);
  EXPECT_FALSE(audit.AddGradient(0, {two, three, three}, 1, sums).ok());
  EXPECT_FALSE(audit.AddGradient(0, {three, three, three}, 1, sums).ok());
  EXPECT_FALSE(audit.AddGradient(0, {two, two, three}, 1, sums).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(audit.AddGradient(0, {two, two, two}, nan, sums).ok());
  EXPECT_FALSE(audit.Record(1, true, std::vector<int>{4, 4}, std::vector<AuditSums>(1)).ok());
  EXPECT_EQ(audit.Last(), nullptr);
  EXPECT_EQ(audit.Last(7), nullptr);
}

}  // namespace
}  // namespace zpp
