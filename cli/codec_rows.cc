#include "cli/codec_rows.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "cli/yardsticks.h"
#include "common/buffer.h"
#include "quant/codec.h"

namespace zpp {
namespace {

constexpr size_t kOperands = 4;
constexpr int kMinRounds = 5;
constexpr float kLargestF32 = std::numeric_limits<float>::max();
constexpr double kRun_s = 2e-4;  // one timed run repeats a short op until it takes so long

using Op = std::function<void()>;

double Seconds(const Op& op, int64_t repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repeats; ++i) op();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(repeats);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median seconds of each op, all of them timed in turns for at least min_s together.
std::vector<double> TimeInTurns(const std::vector<Op>& ops, double min_s) {
  std::vector<int64_t> repeats;
  for (const Op& op : ops) {
    const double once = std::max(1e-8, std::min(Seconds(op, 1), Seconds(op, 1)));
    repeats.push_back(std::max<int64_t>(1, static_cast<int64_t>(kRun_s / once)));
  }
  std::vector<std::vector<double>> times(ops.size());
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (int round = 0; round < kMinRounds || elapsed() < min_s; ++round) {
    for (size_t i = 0; i < ops.size(); ++i) times[i].push_back(Seconds(ops[i], repeats[i]));
  }
  std::vector<double> medians;
  for (std::vector<double>& of : times) medians.push_back(Median(std::move(of)));
  return medians;
}

// Everything that is measured at one count and dtype.
class Bench {
 public:
  static Result<Bench> Create(const CodecBenchArgs& args, int64_t count, DType dtype);

  Status Yardsticks(std::vector<CodecRow>& rows);
  Status Codec(const QuantSpec& spec, std::vector<CodecRow>& rows);

 private:
  ConstVec in() const { return {dtype_, in_.data(), count_}; }
  Vec out() const { return {dtype_, out_.data(), count_}; }
  int64_t bytes() const { return count_ * SizeOf(dtype_); }
  Op Memcpy() const {
    return [this] { std::memcpy(out_.data(), in_.data(), static_cast<size_t>(bytes())); };
  }
  Op Read(int64_t read_bytes) const {
    return [this, read_bytes] {
      sink_ =
          ReadAll(std::span<const std::byte>(in_.span()).first(static_cast<size_t>(read_bytes)));
    };
  }
  Op Fill(bool stream) const {
    return [this, stream] { FillAll(out_.span().first(static_cast<size_t>(bytes())), stream); };
  }
  Op Update() const {
    return [this] { UpdateAll(Sums()); };
  }
  std::span<float> Sums() const {
    return {reinterpret_cast<float*>(out_.data()), static_cast<size_t>(count_)};
  }
  CodecRow Row(const char* op, const QuantSpec* spec, double seconds, double copy_s) const;
  Status Verify(const QuantSpec& spec, double& rel_error);
  Status VerifyReduced(const QuantSpec& spec) const;
  void Add(const char* name, const QuantSpec& spec, const Op& op, std::vector<Op> roof,
           std::vector<CodecRow>& rows);

  int64_t count_ = 0;
  DType dtype_ = DType::kF32;
  double min_s_ = 0;
  double rel_error_ = 0;
  float largest_ = 0;  // finite magnitude of the input
  Buffer in_, out_, payloads_[kOperands], recoded_;
  mutable volatile uint32_t sink_ = 0;
};

void FillInput(std::span<const float> data, std::span<float> values) {
  if (!data.empty()) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = data[i % data.size()];
    return;
  }
  // A few hundred thousand different normal numbers are as good as millions and much faster to
  // make.
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  constexpr size_t kDistinct = (1 << 18) + 1;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i < kDistinct ? normal(rng) : values[i - kDistinct];
  }
}

Result<Bench> Bench::Create(const CodecBenchArgs& args, int64_t count, DType dtype) {
  Bench bench;
  bench.count_ = count;
  bench.dtype_ = dtype;
  bench.min_s_ = args.min_s;
  const size_t f32_bytes = static_cast<size_t>(count) * 4;
  ZPP_ASSIGN_OR_RETURN(bench.in_, Buffer::Allocate(static_cast<size_t>(bench.bytes())));
  ZPP_ASSIGN_OR_RETURN(bench.out_, Buffer::Allocate(f32_bytes));
  const std::span<float> values(reinterpret_cast<float*>(bench.out_.data()),
                                static_cast<size_t>(count));
  FillInput(args.data, values);
  for (float value : values) {
    if (std::isfinite(value)) bench.largest_ = std::max(bench.largest_, std::fabs(value));
  }
  ZPP_RETURN_IF_ERROR(
      Decode(QuantSpec::None(), bench.out_.span(), {dtype, bench.in_.data(), count}));
  return bench;
}

CodecRow Bench::Row(const char* op, const QuantSpec* spec, double seconds, double copy_s) const {
  CodecRow row{.op = op,
               .format = "none",
               .code = "-",
               .rounding = "-",
               .dtype = dtype_,
               .block = 0,
               .count = count_,
               .target = "-"};
  if (spec != nullptr) {
    row.format = spec->format == Format::kInt8 ? "int8" : "int4";
    row.code = spec->code == Code::kSqrt ? "sqrt" : "linear";
    row.rounding = spec->rounding == Rounding::kNearest ? "nearest" : "stochastic";
    row.block = spec->block_elems;
    row.target = CurrentCodecTarget();
    row.rel_error = rel_error_;
  }
  row.gb_per_s = static_cast<double>(bytes()) / seconds / 1e9;
  row.ratio = copy_s / seconds;
  return row;
}

Status Bench::Yardsticks(std::vector<CodecRow>& rows) {
  const std::vector<double> s =
      TimeInTurns({Memcpy(), Read(bytes()), Fill(false), Fill(true), Update()}, min_s_);
  rows.push_back(Row("memcpy", nullptr, s[0], s[0]));
  rows.push_back(Row("read", nullptr, s[1], s[0]));
  rows.push_back(Row("fill", nullptr, std::min(s[2], s[3]), s[0]));
  // update works on fp32 sums whatever the dtype: scaled to the bytes of the row.
  rows.push_back(Row("update", nullptr, s[4] * static_cast<double>(SizeOf(dtype_)) / 4, s[0]));
  for (auto row = rows.end() - 4; row != rows.end(); ++row) row->of_roof = 1;
  return {};
}

// Times op in turns with memcpy and its roofs (the best of them counts).
void Bench::Add(const char* name, const QuantSpec& spec, const Op& op, std::vector<Op> roof,
                std::vector<CodecRow>& rows) {
  std::vector<Op> ops = {op, Memcpy()};
  ops.insert(ops.end(), roof.begin(), roof.end());
  const std::vector<double> s = TimeInTurns(ops, min_s_);
  CodecRow row = Row(name, &spec, s[0], s[1]);
  row.of_roof = *std::min_element(s.begin() + 2, s.end()) / s[0];
  rows.push_back(std::move(row));
}

// The first element of a block that is not decoded as the codec promises, their number when there
// is none: within the bound, or all NaN when the block holds a NaN or an infinity.
size_t FirstWrong(const QuantSpec& spec, std::span<const float> values,
                  std::span<const float> decoded) {
  float absmax = 0;
  bool finite = true;
  for (float value : values) {
    finite = finite && std::isfinite(value);
    absmax = std::max(absmax, std::fabs(value));
  }
  const float bound = finite ? ErrorBound(spec, absmax) : 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool right = finite ? std::fabs(decoded[i] - values[i]) <= bound : std::isnan(decoded[i]);
    if (!right) return i;  // a NaN compares with nothing: it is wrong where all is finite
  }
  return values.size();
}

// Encodes, checks the payload and every element against the bound.
Status Bench::Verify(const QuantSpec& spec, double& rel_error) {
  ErrorStats stats;
  ZPP_RETURN_IF_ERROR(zpp::Encode(spec, in(), payloads_[0].span(), {}, &stats));
  ZPP_RETURN_IF_ERROR(CheckPayload(spec, count_, payloads_[0].span()));
  // Of nothing finite (but zeros) no error can be told.
  const bool known = stats.sum_squared_value > 0 || stats.nonfinite == 0;
  rel_error = known ? stats.relative_error() : std::numeric_limits<double>::quiet_NaN();
  std::vector<float> values(static_cast<size_t>(count_)), decoded(values.size());
  ZPP_RETURN_IF_ERROR(
      Decode(QuantSpec::None(dtype_), in_.span(), {DType::kF32, values.data(), count_}));
  ZPP_RETURN_IF_ERROR(Decode(spec, payloads_[0].span(), {DType::kF32, decoded.data(), count_}));
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(spec.block_elems)) {
    const size_t elems = std::min(values.size() - at, static_cast<size_t>(spec.block_elems));
    const size_t wrong =
        FirstWrong(spec, {values.data() + at, elems}, {decoded.data() + at, elems});
    if (wrong < elems) {
      return Internal(ToString(spec) + ": element " + std::to_string(at + wrong) +
                      " is decoded outside its bound");
    }
  }
  return {};
}

// Four times a payload has its codes and four times its scales: exactly, with nearest rounding, as
// long as the sum is finite.
Status Bench::VerifyReduced(const QuantSpec& spec) const {
  if (spec.rounding != Rounding::kNearest || largest_ > kLargestF32 / (2 * kOperands)) return {};
  const size_t codes = static_cast<size_t>(LayoutOf(spec, count_).scales_bytes);
  const size_t bytes = payloads_[0].size() - codes;
  if (std::memcmp(payloads_[0].data() + codes, recoded_.data() + codes, bytes) == 0) return {};
  return Internal(ToString(spec) + ": the sum of four equal payloads has other codes");
}

Status Bench::Codec(const QuantSpec& spec, std::vector<CodecRow>& rows) {
  const size_t size = static_cast<size_t>(PayloadBytes(spec, count_));
  for (Buffer& payload : payloads_) {
    ZPP_ASSIGN_OR_RETURN(payload, Buffer::Allocate(size));
  }
  ZPP_ASSIGN_OR_RETURN(recoded_, Buffer::Allocate(size));
  ZPP_RETURN_IF_ERROR(Verify(spec, rel_error_));
  for (size_t i = 1; i < kOperands; ++i)
    std::memcpy(payloads_[i].data(), payloads_[0].data(), size);
  Status failure;
  const auto keep = [&failure](const Status& status) {
    if (!status.ok()) failure = status;
  };
  Add(
      "encode", spec, [&] { keep(zpp::Encode(spec, in(), payloads_[1].span())); }, {Read(bytes())},
      rows);
  if (size > 0 && std::memcmp(payloads_[0].data(), payloads_[1].data(), size) != 0) {
    return Internal(ToString(spec) + ": encoding the same values again gave other bytes");
  }
  Add(
      "decode", spec, [&] { keep(Decode(spec, payloads_[0].span(), out())); },
      {Fill(false), Fill(true)}, rows);
  if (dtype_ == DType::kF32) {
    Add(
        "decode_accumulate", spec,
        [&] { keep(DecodeAccumulate(spec, payloads_[0].span(), Sums())); }, {Update()}, rows);
  }
  Operand operands[kOperands];
  for (size_t i = 0; i < kOperands; ++i) operands[i] = {spec, payloads_[i].span()};
  const ReduceArgs reduce{
      .in = operands, .elems = count_, .divisor = 1, .out_spec = spec, .noise = {}};
  const int64_t read_bytes = std::min<int64_t>(bytes(), static_cast<int64_t>(kOperands * size));
  Add(
      "reduce_recode", spec, [&] { keep(ReduceRecode(reduce, recoded_.span())); },
      {Read(read_bytes)}, rows);
  ZPP_RETURN_IF_ERROR(failure);
  ZPP_RETURN_IF_ERROR(VerifyReduced(spec));
  rows.back().of_roof *= static_cast<double>(kOperands * size) / static_cast<double>(read_bytes);
  return {};
}

Status CheckArgs(const CodecBenchArgs& args) {
  if (!(args.min_s >= 0 && args.min_s <= 3600)) {
    return InvalidArgument("codec: the seconds per row must be from 0 to 3600");
  }
  for (int64_t count : args.counts) {
    if (count < 1 || count > int64_t{1} << 36) {
      return InvalidArgument("codec: " + std::to_string(count) + " elements: from 1 to 2^36 work");
    }
  }
  for (DType dtype : args.dtypes) {
    if (!IsFloat(dtype)) return InvalidArgument("codec: only fp32, fp16 and bf16 are encoded");
  }
  for (const QuantSpec& spec : args.specs) {
    ZPP_RETURN_IF_ERROR(Validate(spec));
    if (!spec.compressed()) return InvalidArgument("codec: 'none' encodes nothing; int8 or int4?");
  }
  return {};
}

Status MeasureAll(const CodecBenchArgs& args, std::vector<CodecRow>& rows) {
  const std::string_view before = CurrentCodecTarget();
  for (int64_t count : args.counts) {
    for (DType dtype : args.dtypes) {
      ZPP_ASSIGN_OR_RETURN(Bench bench, Bench::Create(args, count, dtype));
      ZPP_RETURN_IF_ERROR(bench.Yardsticks(rows));
      const std::vector<std::string_view> targets =
          args.all_targets ? CodecTargets() : std::vector<std::string_view>{before};
      for (std::string_view target : targets) {
        ZPP_RETURN_IF_ERROR(SetCodecTarget(target));
        for (const QuantSpec& spec : args.specs) ZPP_RETURN_IF_ERROR(bench.Codec(spec, rows));
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<CodecRow>> MeasureCodec(const CodecBenchArgs& args) {
  ZPP_RETURN_IF_ERROR(CheckArgs(args));
  std::vector<CodecRow> rows;
  const std::string before(CurrentCodecTarget());
  const Status measured = MeasureAll(args, rows);
  ZPP_RETURN_IF_ERROR(SetCodecTarget(before));
  ZPP_RETURN_IF_ERROR(measured);
  return rows;
}

}  // namespace zpp
