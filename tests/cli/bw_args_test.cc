// What the flags of `zpp bw` mean, and every way of getting them wrong.
#include "cli/bw_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "cli/codec_command.h"
#include "cli/parse.h"

namespace zpp::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

BwFlags Flags(const std::string& collective = "all_reduce") {
  BwFlags flags;
  flags.collective = collective;
  return flags;
}

TEST(ParseSize, SuffixesArePowersOf1024) {
  EXPECT_EQ(*ParseSize("-s", "8"), 8);
  EXPECT_EQ(*ParseSize("-s", "64K"), 65536);
  EXPECT_EQ(*ParseSize("-s", "3m"), 3 << 20);
  EXPECT_EQ(*ParseSize("-s", "2G"), int64_t{2} << 30);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "x", "8T", "8KB", "-1", "0", "0K", "1.5M", " 8", "8 ", "0x10",
                           "nan", "9999999999999999999", "9223372036854775807K"}) {
    const Result<int64_t> size = ParseSize("-b", text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_THAT(size.status().message(), HasSubstr("-b")) << text;
  }
}

TEST(ResolveSizes, RangeOneAllAndDefault) {
  BwFlags flags = Flags();
  EXPECT_THAT(*ResolveSizes(flags), ElementsAre(1 << 20, 4 << 20, 16 << 20, 64 << 20));
  flags.min_size = "1K";
  flags.max_size = "5K";
  flags.factor = 2;
  EXPECT_THAT(*ResolveSizes(flags), ElementsAre(1024, 2048, 4096));
  flags = Flags();
  flags.one_size = "7";
  EXPECT_THAT(*ResolveSizes(flags), ElementsAre(7));
  flags = Flags();
  flags.all_sizes = true;
  EXPECT_EQ(ResolveSizes(flags)->front(), 8);
  EXPECT_EQ(ResolveSizes(flags)->back(), 64 << 20);
  EXPECT_EQ(ResolveSizes(flags)->size(), 24u);
}

TEST(ResolveSizes, OneEndGivenMovesTheOther) {
  BwFlags flags = Flags();
  flags.min_size = "1G";
  EXPECT_THAT(*ResolveSizes(flags), ElementsAre(int64_t{1} << 30));
  flags = Flags();
  flags.max_size = "1K";
  EXPECT_THAT(*ResolveSizes(flags), ElementsAre(1024));
}

TEST(ResolveSizes, SmallFactorsStillAdvance) {
  BwFlags flags = Flags();
  flags.min_size = "8";
  flags.max_size = "11";
  flags.factor = 1.01;
  EXPECT_THAT(*ResolveSizes(flags), ElementsAre(8, 9, 10, 11));
}

// All that is looked at before ranks are started.
Status Resolve(const BwFlags& flags) {
  Result<BwArgs> args = ResolveBw(flags, nullptr);
  return args.ok() ? ResolveHere(&*args) : args.status();
}

struct Bad {
  std::string name;
  std::function<void(BwFlags*)> change;
  std::string says;  // part of the sentence
};

class BadFlags : public testing::TestWithParam<Bad> {};

TEST_P(BadFlags, GetOneClearSentence) {
  BwFlags flags = Flags();
  GetParam().change(&flags);
  const Status status = Resolve(flags);
  EXPECT_EQ(RemedyFor(status.code()), Remedy::kFixArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().says));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadFlags,
    testing::Values(
        Bad{"Collective", [](BwFlags* f) { f->collective = "allreduce"; }, "allreduce"},
        Bad{"Barrier", [](BwFlags* f) { f->collective = "barrier"; }, "barrier"},
        Bad{"DType", [](BwFlags* f) { f->dtype = "fp8"; }, "fp8"},
        Bad{"ByteDType", [](BwFlags* f) { f->dtype = "byte"; },
            "-d takes fp32, fp16 or bf16, not 'byte'"},
        Bad{"CodedDType", [](BwFlags* f) { f->dtype = "int8"; },
            "-d takes fp32, fp16 or bf16, not 'int8'"},
        Bad{"Op", [](BwFlags* f) { f->op = "max"; }, "max"},
        Bad{"NoRanks", [](BwFlags* f) { f->ranks = 0; }, "--ranks"},
        Bad{"NegativeRanks", [](BwFlags* f) { f->ranks = -3; }, "--ranks"},
        Bad{"ManyRanks", [](BwFlags* f) { f->ranks = 100000; }, "--ranks"},
        Bad{"NoNodes", [](BwFlags* f) { f->nodes = 0; }, "--nodes"},
        Bad{"EmptyNode", [](BwFlags* f) { f->ranks = 2, f->nodes = 3; }, "leaves a node empty"},
        Bad{"EmptyNodeOfFour", [](BwFlags* f) { f->nodes = 5; }, "leaves a node empty"},
        Bad{"Encoding", [](BwFlags* f) { f->intra = "int3"; }, "--intra"},
        Bad{"InterEncoding", [](BwFlags* f) { f->inter = "fp8"; }, "--inter"},
        Bad{"Block", [](BwFlags* f) { f->block = 100; }, "100"},
        Bad{"HugeBlock", [](BwFlags* f) { f->block = 4096; }, "4096"},
        Bad{"NegativeBlock", [](BwFlags* f) { f->block = -128; }, "-128"},
        Bad{"Code", [](BwFlags* f) { f->code = "log"; }, "--code"},
        Bad{"Rounding", [](BwFlags* f) { f->rounding = "up"; }, "--rounding"},
        Bad{"SizeText", [](BwFlags* f) { f->one_size = "big"; }, "-s"},
        Bad{"SizeOverflow", [](BwFlags* f) { f->one_size = "99999999999G"; }, "too large"},
        Bad{"SizeBeyondMemory", [](BwFlags* f) { f->one_size = "1000000G"; }, "this machine has"},
        Bad{"SizesTwice", [](BwFlags* f) { f->one_size = "1M", f->min_size = "1K"; }, "once"},
        Bad{"SizesBackwards", [](BwFlags* f) { f->min_size = "1M", f->max_size = "1K"; }, "-b"},
        Bad{"FactorOne", [](BwFlags* f) { f->factor = 1; }, "-f"},
        Bad{"FactorNan", [](BwFlags* f) { f->factor = NAN; }, "-f"},
        Bad{"FactorInfinite", [](BwFlags* f) { f->factor = INFINITY; }, "-f"},
        Bad{"NoIterations", [](BwFlags* f) { f->iters = 0; }, "-n"},
        Bad{"NegativeWarmup", [](BwFlags* f) { f->warmup = -1; }, "-w"},
        Bad{"SecondsNan", [](BwFlags* f) { f->seconds = NAN; }, "-D"},
        Bad{"SecondsZero", [](BwFlags* f) { f->seconds = 0; }, "-D"},
        Bad{"RateNan", [](BwFlags* f) { f->inter_gbits = NAN; }, "--inter-gbits"},
        Bad{"RateInfinite", [](BwFlags* f) { f->inter_gbits = INFINITY; }, "--inter-gbits"},
        Bad{"RateNegative", [](BwFlags* f) { f->inter_gbits = -1; }, "--inter-gbits"},
        Bad{"TimeoutNan", [](BwFlags* f) { f->timeout_s = NAN; }, "--timeout"},
        Bad{"Threads", [](BwFlags* f) { f->threads = 0; }, "--threads"},
        Bad{"Chunk", [](BwFlags* f) { f->chunk = "lots"; }, "--chunk"},
        Bad{"DataMissing", [](BwFlags* f) { f->data = "/no/such.safetensors"; }, "/no/such"},
        Bad{"AllTargets", [](BwFlags* f) { f->all_targets = true; }, "codec only"},
        Bad{"CompressedBroadcast",
            [](BwFlags* f) { f->collective = "broadcast", f->inter = "int8"; }, "never compressed"},
        Bad{"CompressedAllToAll",
            [](BwFlags* f) { f->collective = "all_to_all", f->intra = "int4"; },
            "never compressed"}),
    [](const testing::TestParamInfo<Bad>& param) { return param.param.name; });

TEST(ResolveBw, DefaultsSuitTheCollective) {
  const BwArgs gather = *ResolveBw(Flags("all_gather"), nullptr);
  EXPECT_EQ(gather.ranks, 4);
  EXPECT_EQ(gather.nodes, 2);
  EXPECT_EQ(gather.policy.inter, QuantSpec::Int8());
  const BwArgs reduce = *ResolveBw(Flags("reduce_scatter"), nullptr);
  EXPECT_EQ(reduce.policy.intra, QuantSpec::Int8());
  EXPECT_EQ(reduce.policy.inter, QuantSpec::Int4(Code::kSqrt));
  EXPECT_TRUE(ResolveBw(Flags("broadcast"), nullptr)->policy.lossless());
}

TEST(ResolveBw, OneRankIsOneNode) {
  BwFlags flags = Flags();
  flags.ranks = 1;
  EXPECT_EQ(ResolveBw(flags, nullptr)->nodes, 1);
}

LaunchEnv Launched(int world, std::optional<int> local_size = {}) {
  LaunchEnv env;
  env.world = world;
  env.local_size = local_size;
  return env;
}

TEST(ResolveBw, UnderALauncherNothingIsStartedUnlessAsked) {
  const LaunchEnv launched = Launched(3);
  EXPECT_EQ(ResolveBw(Flags(), &launched)->ranks, 0);
  EXPECT_EQ(ResolveBw(Flags(), &launched)->nodes, 0);
  BwFlags flags = Flags();
  flags.ranks = 3;
  EXPECT_EQ(ResolveBw(flags, &launched)->ranks, 3);
}

TEST(ResolveBw, NodesAreCountedAgainstTheLaunchersRanks) {
  const LaunchEnv launched = Launched(3);
  BwFlags flags = Flags();
  flags.nodes = 3;
  EXPECT_EQ(ResolveBw(flags, &launched)->nodes, 3);
  flags.nodes = 4;
  EXPECT_THAT(ResolveBw(flags, &launched).status().message(), HasSubstr("only 3 ranks"));
}

TEST(ResolveBw, NodesThatTheEnvironmentDeclaresAreLeftToIt) {
  for (const char* variable : {"ZPP_LOCAL_SIZE", "ZPP_TOPOLOGY"}) {
    setenv(variable, "3", 1);
    EXPECT_EQ(ResolveBw(Flags(), nullptr)->nodes, 0) << variable;
    BwFlags flags = Flags();
    flags.nodes = 2;
    EXPECT_EQ(ResolveBw(flags, nullptr)->nodes, 2) << variable;
    unsetenv(variable);
  }
  EXPECT_EQ(ResolveBw(Flags(), nullptr)->nodes, 2);
}

// Three times the vector is taken per rank, by all ranks of the host.
TEST(ResolveBw, MemoryIsThatOfAllRanksOfTheHost) {
  const int64_t physical = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  BwFlags flags = Flags();
  flags.one_size = std::to_string(physical / 4);
  for (const int ranks : {1, 2}) {
    const LaunchEnv launched = Launched(8, ranks);
    BwArgs args = *ResolveBw(flags, &launched);
    EXPECT_EQ(ResolveHere(&args).ok(), ranks == 1) << ranks;
  }
}

// One flag is wrong; the sentence names it and no other one.
TEST(ResolveBw, TheFlagThatIsWrongIsTheOneThatIsBlamed) {
  const std::pair<std::string, std::function<void(BwFlags*)>> bad[] = {
      {"--block", [](BwFlags* f) { f->block = 100; }},
      {"--block", [](BwFlags* f) { f->block = 100, f->intra = f->inter = "none"; }},
      {"--block", [](BwFlags* f) { f->block = -128, f->inter = "int4"; }},
      {"--rounding", [](BwFlags* f) { f->rounding = "up"; }},
      {"--code", [](BwFlags* f) { f->code = "log", f->intra = "int8"; }},
      {"--inter", [](BwFlags* f) { f->inter = "int4/100", f->block = 64; }},
      {"--intra", [](BwFlags* f) { f->intra = "int3"; }},
      {"--code", [](BwFlags* f) { f->collective = "broadcast", f->code = "sqrt"; }},
      {"--rounding", [](BwFlags* f) { f->collective = "all_to_all", f->rounding = "nearest"; }},
      {"-d", [](BwFlags* f) { f->dtype = "int8"; }},
  };
  for (const auto& [flag, change] : bad) {
    BwFlags flags = Flags();
    change(&flags);
    const std::string text = Resolve(flags).message();
    EXPECT_THAT(text, HasSubstr(flag));
    for (const char* other : {"--block", "--rounding", "--code", "--inter", "--intra"}) {
      if (other == flag) continue;
      EXPECT_THAT(text, testing::Not(HasSubstr(other)));
    }
    EXPECT_THAT(text, testing::Not(HasSubstr("byte")));
  }
}

TEST(ResolveBw, BlockCodeAndRoundingApplyToWhatIsCompressed) {
  BwFlags flags = Flags("all_gather");
  flags.intra = "none";
  flags.inter = "int4";
  flags.block = 64;
  flags.code = "sqrt";
  flags.rounding = "stochastic";
  const CollectivePolicy policy = ResolveBw(flags, nullptr)->policy;
  EXPECT_FALSE(policy.intra.compressed());
  EXPECT_EQ(policy.inter.block_elems, 64);
  EXPECT_EQ(policy.inter.code, Code::kSqrt);
  EXPECT_EQ(policy.inter.rounding, Rounding::kStochastic);
}

TEST(ResolveCodec, DefaultsAreThoseOfTheTable) {
  const CodecBenchArgs args = *ResolveCodec(Flags("codec"));
  EXPECT_THAT(args.counts, ElementsAre(64 << 10, 64 << 20));
  EXPECT_EQ(args.specs.size(), 3u);
  EXPECT_THAT(args.dtypes, ElementsAre(DType::kF32, DType::kBF16));
}

TEST(ResolveCodec, FlagsNarrowItDown) {
  BwFlags flags = Flags("codec");
  flags.one_size = "1K";
  flags.dtype = "bf16";
  flags.inter = "int4";
  flags.block = 64;
  flags.rounding = "stochastic";
  const CodecBenchArgs args = *ResolveCodec(flags);
  EXPECT_THAT(args.counts, ElementsAre(512));
  ASSERT_EQ(args.specs.size(), 1u);
  EXPECT_EQ(args.specs[0].block_elems, 64);
  EXPECT_EQ(args.specs[0].rounding, Rounding::kStochastic);
  flags = Flags("codec");
  flags.code = "sqrt";  // of int4; linear and sqrt become one
  EXPECT_EQ(ResolveCodec(flags)->specs.size(), 2u);
}

// A flag that does nothing would mislead, also when it asks for the default.
TEST(ResolveCodec, RefusesEveryFlagThatItHasNoUseForAndBadValues) {
  const std::vector<std::pair<std::string, std::function<void(BwFlags*)>>> bad = {
      {"--ranks does not apply", [](BwFlags* f) { f->ranks = 2; }},
      {"--nodes does not apply", [](BwFlags* f) { f->nodes = 2; }},
      {"--inter-gbits does not apply", [](BwFlags* f) { f->inter_gbits = 1; }},
      {"--link-gbits does not apply", [](BwFlags* f) { f->link_gbits = 1; }},
      {"--timeout does not apply", [](BwFlags* f) { f->timeout_s = 1; }},
      {"--threads does not apply", [](BwFlags* f) { f->threads = 2; }},
      {"--chunk does not apply", [](BwFlags* f) { f->chunk = "1M"; }},
      {"--explain does not apply", [](BwFlags* f) { f->explain = true; }},
      {"--flat does not apply", [](BwFlags* f) { f->flat = true; }},
      {"--report_gbits does not apply", [](BwFlags* f) { f->report_gbits = true; }},
      {"-o does not apply", [](BwFlags* f) { f->op = "sum"; }},
      {"-n does not apply to codec, which measures by time: -D", [](BwFlags* f) { f->iters = 20; }},
      {"-w does not apply to codec, which measures by time: -D", [](BwFlags* f) { f->warmup = 3; }},
      {"none", [](BwFlags* f) { f->intra = "none"; }},
      {"--block", [](BwFlags* f) { f->block = 100; }},
      {"-d takes fp32, fp16 or bf16, not 'int8'", [](BwFlags* f) { f->dtype = "int8"; }},
      {"--rounding takes", [](BwFlags* f) { f->rounding = "up"; }},
      {"-D", [](BwFlags* f) { f->seconds = NAN; }},
      {"too large", [](BwFlags* f) { f->one_size = "100000G"; }},
  };
  for (const auto& [says, change] : bad) {
    BwFlags flags = Flags("codec");
    change(&flags);
    const Result<CodecBenchArgs> args = ResolveCodec(flags);
    ASSERT_FALSE(args.ok()) << says;
    EXPECT_THAT(args.status().message(), HasSubstr(says));
  }
}

TEST(CountFor, EqualSharesAndNeverEmpty) {
  EXPECT_EQ(CountFor(CollectiveKind::kAllGather, 1024, DType::kF32, 3), 255);
  EXPECT_EQ(CountFor(CollectiveKind::kAllGather, 1, DType::kF32, 4), 4);
  EXPECT_EQ(CountFor(CollectiveKind::kAllReduce, 1024, DType::kBF16, 3), 512);
  EXPECT_EQ(CountFor(CollectiveKind::kBroadcast, 1, DType::kF16, 3), 1);
}

}  // namespace
}  // namespace zpp::cli
