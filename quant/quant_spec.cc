#include "quant/quant_spec.h"

#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

namespace zpp {
namespace {

std::vector<std::string_view> SplitAtSlashes(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t slash = text.find('/');
    parts.push_back(text.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    text.remove_prefix(slash + 1);
  }
}

bool ParseBlock(std::string_view word, int32_t& block_elems) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), block_elems);
  return error == std::errc() && end == word.data() + word.size();
}

// The options that a word may set: each is said once at most.
enum class Option : uint8_t { kCode, kRounding, kScaleType, kBlock };

// Applies one word after the format's name; nothing when it means nothing to a compressed format.
std::optional<Option> ApplyOption(std::string_view word, QuantSpec& spec) {
  if (word == "linear" || word == "sqrt") {
    spec.code = word == "sqrt" ? Code::kSqrt : Code::kLinear;
    return Option::kCode;
  }
  if (word == "nearest" || word == "stochastic") {
    spec.rounding = word == "nearest" ? Rounding::kNearest : Rounding::kStochastic;
    return Option::kRounding;
  }
  if (word == "bf16-scales" || word == "fp32-scales") {
    spec.scale_type = word == "bf16-scales" ? ScaleType::kBF16 : ScaleType::kF32;
    return Option::kScaleType;
  }
  if (ParseBlock(word, spec.block_elems)) return Option::kBlock;
  return std::nullopt;
}

Status Complain(std::string_view text, std::string_view why) {
  return InvalidArgument("encoding '" + std::string(text) + "': " + std::string(why));
}

Result<QuantSpec> ParseNone(std::string_view text, std::span<const std::string_view> words) {
  QuantSpec spec = QuantSpec::None();
  if (words.size() > 1) return Complain(text, "'none' takes one word: fp32, fp16 or bf16");
  if (words.size() == 1) {
    const Result<DType> plain = ParseDType(words[0]);
    if (!plain.ok() || !IsFloat(*plain))
      return Complain(text, "'none' takes one word: fp32, fp16 or bf16");
    spec.plain = *plain;
  }
  return spec;
}

Status ValidateNone(const QuantSpec& spec) {
  if (!IsFloat(spec.plain)) return InvalidArgument("an encoding 'none' needs fp32, fp16 or bf16");
  QuantSpec expected = QuantSpec::None(spec.plain);
  if (!(spec == expected)) {
    return InvalidArgument("an encoding 'none' has no block, code, rounding or scale type");
  }
  return {};
}

bool KnownEnums(const QuantSpec& spec) {
  return static_cast<uint8_t>(spec.format) <= 2 && static_cast<uint8_t>(spec.code) <= 1 &&
         static_cast<uint8_t>(spec.scale_type) <= 1 && static_cast<uint8_t>(spec.rounding) <= 1;
}

}  // namespace

Status Validate(const QuantSpec& spec) {
  if (!KnownEnums(spec)) return InvalidArgument("an encoding with an unknown format or option");
  if (spec.rotation != 0) {
    return {StatusCode::kUnimplemented,
            "rotation " + std::to_string(spec.rotation) + " is reserved: only 0 (none) works"};
  }
  if (!spec.compressed()) return ValidateNone(spec);
  const bool power_of_two =
      spec.block_elems > 0 && std::has_single_bit(static_cast<uint32_t>(spec.block_elems));
  if (!power_of_two || spec.block_elems < kMinBlock_elems || spec.block_elems > kMaxBlock_elems) {
    return InvalidArgument("a block of " + std::to_string(spec.block_elems) +
                           " elements: it must be a power of two from 32 to 2048");
  }
  if (spec.format == Format::kInt8 && spec.code == Code::kSqrt) {
    return InvalidArgument("the sqrt code belongs to int4, int8 is linear");
  }
  if (spec.plain != DType::kF32) {
    return InvalidArgument("only the encoding 'none' has a plain type");
  }
  return {};
}

std::string ToString(const QuantSpec& spec) {
  if (!spec.compressed()) return "none/" + std::string(DTypeName(spec.plain));
  std::string text = spec.format == Format::kInt8 ? "int8/" : "int4/";
  text += std::to_string(spec.block_elems);
  if (spec.format == Format::kInt4) text += spec.code == Code::kSqrt ? "/sqrt" : "/linear";
  if (spec.rounding == Rounding::kStochastic) text += "/stochastic";
  if (spec.scale_type == ScaleType::kF32) text += "/fp32-scales";
  return text;
}

Result<QuantSpec> ParseQuantSpec(std::string_view text) {
  const std::vector<std::string_view> parts = SplitAtSlashes(text);
  const std::span<const std::string_view> words = std::span(parts).subspan(1);
  QuantSpec spec;
  if (parts[0] == "none") return ParseNone(text, words);
  if (parts[0] == "int8") {
    spec = QuantSpec::Int8();
  } else if (parts[0] == "int4") {
    spec = QuantSpec::Int4(Code::kLinear);
  } else {
    return Complain(text, "expected none, int8 or int4");
  }
  std::array<bool, 4> said = {};
  for (std::string_view word : words) {
    const std::optional<Option> option = ApplyOption(word, spec);
    if (!option) {
      return Complain(text,
                      "'" + std::string(word) +
                          "' is no block size, linear, sqrt, nearest, stochastic, bf16-scales "
                          "or fp32-scales");
    }
    if (std::exchange(said[static_cast<size_t>(*option)], true)) {
      return Complain(text, "'" + std::string(word) + "' says an option for the second time");
    }
  }
  const Status valid = Validate(spec);
  if (!valid.ok()) return Complain(text, valid.message());
  return spec;
}

}  // namespace zpp
