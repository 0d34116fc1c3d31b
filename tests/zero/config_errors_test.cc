// Bad configurations: each is refused with one sentence that names the key and its line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "zero/config.h"

namespace zpp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kWorld = 4;

// The error of `json` with single quotes; the whole text, for kWorld ranks.
Status Error(std::string json, int world = kWorld) {
  for (char& c : json) {
    if (c == '\'') c = '"';
  }
  const auto config = ParseZeroConfig(json, world);
  EXPECT_FALSE(config.ok()) << json;
  return config.ok() ? Status() : config.status();
}

// The same for the keys beside a batch size on line 1; they start on line 2.
std::string Message(const std::string& keys) {
  const Status status = Error("{'train_micro_batch_size_per_gpu': 2,\n" + keys + "}");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_LT(status.message().size(), 300u) << status.message();
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  return status.message();
}

TEST(ConfigErrors, UnknownKeysNameTheNearest) {
  EXPECT_EQ(Message("'fp16': {},\n 'zero_optimisation': {}"),
            "line 3: zero_optimisation is not a known key; did you mean 'zero_optimization'?");
  EXPECT_EQ(Message("'zero_optimization': {\n'stage': 2,\n'reduce_bucket_sise': 5}"),
            "line 4: zero_optimization.reduce_bucket_sise is not a known key; did you mean "
            "'reduce_bucket_size'?");
  EXPECT_EQ(Message("'zero_pp': {'qaunt_bits': 4}"),
            "line 2: zero_pp.qaunt_bits is not a known key; did you mean 'quant_bits'?");
  EXPECT_EQ(Message("'optimizer': {'type': 'Adam', 'params': {'beta': [0.9, 0.99]}}"),
            "line 2: optimizer.params.beta is not a known key; did you mean 'betas'?");
  EXPECT_EQ(Message("'fp16': {'enabled': true, 'loss_scale_windwo': 5}"),
            "line 2: fp16.loss_scale_windwo is not a known key; did you mean 'loss_scale_window'?");
  // Also when the nearest is a key without effect here.
  EXPECT_EQ(Message("'steps_per_prnt': 5"),
            "line 2: steps_per_prnt is not a known key; did you mean 'steps_per_print'?");
  EXPECT_EQ(Message("'zero_optimization': {'offload_optimizer': {'devise': 'cpu'}}"),
            "line 2: zero_optimization.offload_optimizer.devise is not a known key; did you mean "
            "'device'?");
}

TEST(ConfigErrors, MisplacedKeysNameTheirSection) {
  EXPECT_EQ(Message("'reduce_bucket_size': 5"),
            "line 2: reduce_bucket_size is not a known key; it belongs into 'zero_optimization'");
  EXPECT_EQ(Message("'zero_optimization': {'quant_period': 5}"),
            "line 2: zero_optimization.quant_period is not a known key; it belongs into 'zero_pp'");
  EXPECT_EQ(Message("'zero_optimization': {'gradient_clipping': 1}"),
            "line 2: zero_optimization.gradient_clipping is not a known key; it belongs into the "
            "top of the configuration");
  EXPECT_EQ(Message("'optimizer': {'type': 'SGD', 'params': {'betas': [0.9, 0.99]}}"),
            "line 2: optimizer.params.betas is not a known key");
}

TEST(ConfigErrors, UnknownKeysThatAreNearNothing) {
  EXPECT_EQ(Message("'xyzzy': 1"), "line 2: xyzzy is not a known key");
  EXPECT_EQ(Message("'': 1"), "line 2:  is not a known key");
  EXPECT_THAT(Message("'" + std::string(5000, 'q') + "': 1"), HasSubstr("is not a known key"));
  EXPECT_THAT(Message("'a\\n/~\\u00e9': 1"), StartsWith("line 2: a?/~?? is not a known key"));
}

TEST(ConfigErrors, AutoIsRefusedWithTheReason) {
  for (const char* keys :
       {"'train_batch_size': 'auto'", "'gradient_clipping': 'auto'", "'fp16': {'enabled': 'auto'}",
        "'zero_optimization': {'stage': 3, 'reduce_bucket_size': 'auto'}",
        "'optimizer': {'type': 'Adam', 'params': {'lr': 'auto'}}",
        "'optimizer': {'type': 'Adam', 'params': {'betas': 'auto'}}", "'zero_pp': 'auto'",
        "'communication_data_type': 'auto'", "'zero_optimization': {'overlap_comm': 'auto'}"}) {
    EXPECT_THAT(Message(keys), AllOf(StartsWith("line 2: "),
                                     HasSubstr("is \"auto\", which other trainers replace by a "
                                               "value of their own before DeepSpeed reads it; "
                                               "nothing does that here, so write the value")))
        << keys;
  }
}

TEST(ConfigErrors, WrongTypes) {
  EXPECT_EQ(Message("'gradient_clipping': 'one'"),
            "line 2: gradient_clipping must be a number, not \"one\"");
  EXPECT_EQ(Message("'gradient_clipping': null"),
            "line 2: gradient_clipping must be a number, not null");
  EXPECT_EQ(Message("'fp16': true"), "line 2: fp16 must be an object, not true");
  EXPECT_EQ(Message("'fp16': {'enabled': 1}"), "line 2: fp16.enabled must be true or false, not 1");
  EXPECT_EQ(Message("'zero_optimization': {'stage': '2'}"),
            "line 2: zero_optimization.stage must be a whole number, not \"2\"");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 1.5}"),
            "line 2: zero_optimization.stage must be a whole number, not 1.5");
  EXPECT_EQ(Message("'zero_optimization': {'stage': true}"),
            "line 2: zero_optimization.stage must be a whole number, not true");
  EXPECT_EQ(Message("'zero_optimization': [1]"),
            "line 2: zero_optimization must be an object, not a list");
  EXPECT_EQ(Message("'zero_pp': {'error_feedback': true}"),
            "line 2: zero_pp.error_feedback must be 'off', 'second_hop' or 'both', not true");
  EXPECT_EQ(Message("'optimizer': {'type': 'Adam', 'params': {'betas': 0.9}}"),
            "line 2: optimizer.params.betas must be a list of two numbers, not 0.9");
  EXPECT_EQ(Message("'optimizer': {'type': 'Adam', 'params': {'betas': [0.9]}}"),
            "line 2: optimizer.params.betas must be a list of two numbers, not a list");
}

TEST(ConfigErrors, ValuesOutOfRange) {
  EXPECT_EQ(Message("'zero_optimization': {'stage': 4}"),
            "line 2: zero_optimization.stage must be 0 to 3, not 4");
  EXPECT_EQ(Message("'zero_optimization': {'stage': -1}"),
            "line 2: zero_optimization.stage must be 0 to 3, not -1");
  EXPECT_EQ(Message("'zero_optimization': {'reduce_bucket_size': -5e8}"),
            "line 2: zero_optimization.reduce_bucket_size must be at least 0, not -500000000.0");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 1e300}"),
            "line 2: zero_optimization.stage must be 0 to 3, not 1e+300");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 18446744073709551615}"),
            "line 2: zero_optimization.stage must be 0 to 3, not 18446744073709551615");
  EXPECT_THAT(Message("'gradient_clipping': -1"),
              StartsWith("line 2: gradient_clipping must be 0.0 to"));
  EXPECT_THAT(Message("'fp16': {'initial_scale_power': 200}"), HasSubstr("must be 0 to 126"));
  EXPECT_THAT(Message("'fp16': {'loss_scale_window': 0}"), HasSubstr("fp16.loss_scale_window"));
  EXPECT_THAT(Message("'fp16': {'hysteresis': 0}"), HasSubstr("fp16.hysteresis"));
  EXPECT_THAT(Message("'fp16': {'min_loss_scale': 0}"), HasSubstr("fp16.min_loss_scale"));
  EXPECT_THAT(Message("'fp16': {'min_loss_scale': 70000}"),
              HasSubstr("is above the first loss scale"));
  EXPECT_EQ(Message("'zero_pp': {'quant_bits': 5}"),
            "line 2: zero_pp.quant_bits must be 4, 8 or 16, not 5");
  EXPECT_EQ(Message("'zero_pp': {'intra_bits': 0}"),
            "line 2: zero_pp.intra_bits must be 4, 8 or 16, not 0");
  EXPECT_EQ(Message("'zero_pp': {'weight_bits': -4}"),
            "line 2: zero_pp.weight_bits must be 4, 8 or 16, not -4");
  EXPECT_THAT(Message("'zero_pp': {'quant_period': -1}"),
              StartsWith("line 2: zero_pp.quant_period must be 0 to"));
  for (const char* block : {"100", "16", "4096", "-128", "1"}) {
    EXPECT_EQ(Message("'zero_pp': {'block_size': " + std::string(block) + "}"),
              "line 2: zero_pp.block_size must be 0 or a power of two from 32 to 2048, not " +
                  std::string(block));
  }
  EXPECT_EQ(Message("'zero_pp': {'max_rel_error': 1.5}"),
            "line 2: zero_pp.max_rel_error must be 0.0 to 1.0, not 1.5");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 3, 'zero_hpz_partition_size': 0}"),
            "line 2: zero_optimization.zero_hpz_partition_size must be 1 to 65536, not 0");
  EXPECT_EQ(Message("'optimizer': {'type': 'Adam', 'params': {'betas': [0.9, 1]}}"),
            "line 2: optimizer.params.betas must be below 1");
  EXPECT_THAT(Message("'optimizer': {'type': 'Adam', 'params': {'betas': [0.9, 2]}}"),
              HasSubstr("must hold numbers from 0.0 to 1.0, not 2"));
  EXPECT_THAT(Message("'optimizer': {'type': 'SGD', 'params': {'nesterov': true}}"),
              HasSubstr("needs a momentum above 0"));
}

TEST(ConfigErrors, UnknownWords) {
  EXPECT_EQ(Message("'optimizer': {'type': 'Lamb'}"),
            "line 2: optimizer.type must be 'Adam', 'AdamW' or 'SGD', not \"Lamb\"");
  EXPECT_EQ(Message("'communication_data_type': 'int8'"),
            "line 2: communication_data_type must be 'fp32', 'fp16' or 'bf16', not \"int8\"");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 1, 'offload_optimizer': {'device': 'nvme'}}"),
            "line 2: zero_optimization.offload_optimizer.device must be 'none' or 'cpu', not "
            "\"nvme\"");
  EXPECT_EQ(Message("'zero_pp': {'rounding': 'up'}"),
            "line 2: zero_pp.rounding must be 'nearest' or 'stochastic', not \"up\"");
  EXPECT_EQ(Message("'optimizer': {}"),
            "line 2: optimizer needs the key 'type': 'Adam', 'AdamW' or 'SGD'");
}

TEST(ConfigErrors, CombinationsThatCannotBe) {
  EXPECT_EQ(Message("'fp16': {'enabled': true},\n'bf16': {'enabled': true}"),
            "line 3: bf16.enabled and fp16.enabled cannot both be true: choose one of the two "
            "types");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 2, 'zero_hpz_partition_size': 2}"),
            "line 2: zero_optimization.zero_hpz_partition_size of 2 needs stage 3, not 2: only "
            "there are weights gathered");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 3, 'zero_hpz_partition_size': 3}"),
            "line 2: zero_optimization.zero_hpz_partition_size of 3 does not divide the 4 ranks");
  EXPECT_EQ(Message("'zero_optimization': {'stage': 3, 'zero_hpz_partition_size': 8}"),
            "line 2: zero_optimization.zero_hpz_partition_size of 8 does not divide the 4 ranks");
  for (const char* key : {"zero_quantized_weights", "zero_quantized_gradients"}) {
    EXPECT_THAT(
        Message("'zero_optimization': {'stage': 0, '" + std::string(key) + "': true}"),
        StartsWith("line 2: zero_optimization." + std::string(key) + " needs stage 1, 2 or 3"));
  }
  EXPECT_THAT(Message("'zero_pp': {'enabled': true}"),
              StartsWith("line 2: zero_pp.enabled needs zero_optimization.stage 1, 2 or 3"));
  EXPECT_THAT(Message("'zero_pp': {'reduce_every_micro_batch': true}"),
              StartsWith("line 2: zero_pp.reduce_every_micro_batch needs"));
  EXPECT_EQ(Message("'zero_optimization': {'offload_optimizer': {'device': 'cpu'}}"),
            "line 2: zero_optimization.offload_optimizer needs stage 1, 2 or 3");
  EXPECT_THAT(Message("'zero_optimization': {'stage': 3, 'zeropp_loco_param': {}}"),
              HasSubstr("needs zero_quantized_gradients"));
  EXPECT_THAT(Message("'zero_optimization': {'stage3_max_live_parameters': 1,\n"
                      "'max_live_parameters': 2}"),
              StartsWith("line 3: zero_optimization.max_live_parameters is another name for "
                         "'stage3_max_live_parameters'"));
}

TEST(ConfigErrors, KeysThatWouldChangeTheTraining) {
  for (const char* keys :
       {"'scheduler': {'type': 'WarmupLR'}", "'amp': {'enabled': true}",
        "'gradient_allreduce_op': 'sum'", "'sparse_gradients': true",
        "'curriculum_learning': {'enabled': true}", "'sparse_attention': {'mode': 'fixed'}",
        "'zero_optimization': {'stage': 3, 'offload_param': {'device': 'cpu'}}",
        "'zero_optimization': {'stage': 3, 'mics_shard_size': 4}",
        "'fp16': {'enabled': true, 'fp16_master_weights_and_grads': true}",
        "'optimizer': {'type': 'Adam', 'params': {'amsgrad': true}}",
        "'optimizer': {'type': 'Adam', 'params': {'max_grad_norm': 1.0}}",
        "'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'cpu', 'ratio': "
        "0.3}}"}) {
    EXPECT_THAT(Message(keys), AllOf(StartsWith("line 2: "), HasSubstr(" is refused: "))) << keys;
  }
}

TEST(ConfigErrors, BatchSizesThatDoNotMultiply) {
  EXPECT_EQ(Error("{'train_batch_size': 100, 'train_micro_batch_size_per_gpu': 3,\n"
                  "'gradient_accumulation_steps': 4}")
                .message(),
            "line 1: train_batch_size is 100, which is not train_micro_batch_size_per_gpu 3 x "
            "gradient_accumulation_steps 4 x 4 ranks");
  EXPECT_EQ(Error("{'train_batch_size': 100,'train_micro_batch_size_per_gpu': 3}").message(),
            "line 1: train_batch_size is 100, which is not a multiple of "
            "train_micro_batch_size_per_gpu 3 x 4 ranks");
  EXPECT_EQ(Error("{'train_batch_size': 100,'gradient_accumulation_steps': 3}").message(),
            "line 1: train_batch_size is 100, which is not a multiple of "
            "gradient_accumulation_steps 3 x 4 ranks");
  EXPECT_EQ(Error("{'train_batch_size': 3}").message(),
            "line 1: train_batch_size is 3, which is not a multiple of 4 ranks");
  // Smaller than one micro-batch on each rank.
  EXPECT_EQ(Error("{'train_batch_size': 2,'train_micro_batch_size_per_gpu': 1}").message(),
            "line 1: train_batch_size is 2, which is not a multiple of "
            "train_micro_batch_size_per_gpu 1 x 4 ranks");
  for (const char* json : {"{}", "{'gradient_accumulation_steps': 2}"}) {
    EXPECT_EQ(Error(json).message(),
              "the configuration needs train_batch_size or train_micro_batch_size_per_gpu");
  }
  EXPECT_THAT(Error("{'train_batch_size': 0}").message(),
              StartsWith("line 1: train_batch_size must be 1 to"));
  // The largest of each: nothing overflows.
  EXPECT_THAT(Error("{'train_batch_size': 1, 'train_micro_batch_size_per_gpu': 100000000, "
                    "'gradient_accumulation_steps': 1000000}",
                    65536)
                  .message(),
              HasSubstr("which is not train_micro_batch_size_per_gpu"));
}

// What is derived has the limits of what is written.
TEST(ConfigErrors, BatchSizesThatMakeOthersTooLarge) {
  EXPECT_EQ(Error("{'train_batch_size': 800000000}", 4).message(),
            "line 1: train_batch_size makes train_micro_batch_size_per_gpu 200000000, which is "
            "above 100000000");
  EXPECT_EQ(
      Error("{'train_batch_size': 4294967297, 'train_micro_batch_size_per_gpu': 1}", 1).message(),
      "line 1: train_batch_size makes gradient_accumulation_steps 4294967297, which is above "
      "1000000");
}

TEST(ConfigErrors, NotAConfiguration) {
  for (const char* text : {"", "{", "{'a': 1,}", "{'train_batch_size': 4} x"}) {
    EXPECT_EQ(Error(text).code(), StatusCode::kDataLoss) << text;
  }
  EXPECT_THAT(Error("{'train_batch_size': 4,\n\n 'train_batch_size': 4}").message(),
              HasSubstr("'train_batch_size' twice in one object, again on line 3"));
  EXPECT_EQ(Error("[1]").message(), "a configuration must be an object, not a list");
  EXPECT_EQ(Error("3").message(), "a configuration must be an object, not 3");
  for (const int world : {0, -1, 65537}) {
    EXPECT_EQ(Error("{'train_batch_size': 4}", world).message(),
              "a configuration is for 1 to 65536 ranks, not " + std::to_string(world));
  }
}

// Of several faults the first key that is read wins, and what was read before changes nothing.
TEST(ConfigErrors, OneFaultIsReported) {
  const std::string message = Message("'zero_pp': {'quant_bits': 5, 'x': 1},\n'y': 2,\n'fp16': 3");
  EXPECT_EQ(message, "line 4: fp16 must be an object, not 3");
}

}  // namespace
}  // namespace zpp
