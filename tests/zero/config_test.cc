// What a configuration means: defaults, DeepSpeed's names and their other names, derived values.
#include "zero/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace zpp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// `json` with single quotes, beside a batch size and an optimizer, for 4 ranks.
ZeroConfig Parse(std::string json, int world = 4) {
  for (char& c : json) {
    if (c == '\'') c = '"';
  }
  const auto config =
      ParseZeroConfig(R"({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"})" +
                          (json.empty() ? "}" : ", " + json + "}"),
                      world);
  EXPECT_TRUE(config.ok()) << config.status().ToString() << " in " << json;
  return config.ok() ? *config : ZeroConfig{};
}

// DeepSpeed 0.16's own defaults, by its sources.
TEST(Config, DefaultsAreDeepSpeeds) {
  const ZeroConfig config = Parse("");
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_EQ(config.compute, DType::kF32);
  EXPECT_FALSE(config.communication.has_value());
  EXPECT_EQ(config.fp16.loss_scale, 0);
  EXPECT_EQ(config.fp16.initial_scale_power, 16);
  EXPECT_EQ(config.fp16.loss_scale_window, 1000);
  EXPECT_EQ(config.fp16.hysteresis, 2);
  EXPECT_FALSE(config.fp16.consecutive_hysteresis);
  EXPECT_EQ(config.fp16.min_loss_scale, 1);
  EXPECT_EQ(config.adam.lr, 1e-3);
  EXPECT_EQ(config.adam.beta1, 0.9);
  EXPECT_EQ(config.adam.beta2, 0.999);
  EXPECT_EQ(config.adam.eps, 1e-8);
  EXPECT_EQ(config.adam.weight_decay, 0);
  EXPECT_EQ(config.stage, 0);
  EXPECT_FALSE(config.overlap_comm);
  EXPECT_TRUE(config.contiguous_gradients);
  EXPECT_EQ(config.reduce_bucket_elems, 500'000'000);
  EXPECT_EQ(config.allgather_bucket_elems, 500'000'000);
  EXPECT_EQ(config.prefetch_bucket_elems, 50'000'000);
  EXPECT_EQ(config.persistence_threshold_elems, 100'000);
  EXPECT_EQ(config.model_persistence_elems, INT64_MAX);
  EXPECT_EQ(config.max_live_elems, 1'000'000'000);
  EXPECT_EQ(config.max_reuse_distance_elems, 1'000'000'000);
  EXPECT_EQ(config.sub_group_elems, 1'000'000'000);
  EXPECT_FALSE(config.gather_16bit_on_save);
  EXPECT_EQ(config.offload_optimizer, OffloadConfig{});
  EXPECT_EQ(config.hpz_partition_size, 1);
  EXPECT_FALSE(config.quantized_weights);
  EXPECT_FALSE(config.quantized_gradients);
  EXPECT_FALSE(config.loco.has_value());
  EXPECT_EQ(config.zero_pp, ZeroPpConfig{});
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(Config, EveryKeyIsRead) {
  const ZeroConfig config = Parse(
      R"('gradient_clipping': 0.5, 'communication_data_type': 'FP32',
         'fp16': {'enabled': true, 'loss_scale': 128, 'initial_scale_power': 10,
                  'loss_scale_window': 500, 'hysteresis': 4, 'consecutive_hysteresis': true,
                  'min_loss_scale': 0.5},
         'zero_optimization': {'stage': 3, 'overlap_comm': false, 'reduce_bucket_size': 5e6,
           'allgather_bucket_size': 7, 'stage3_prefetch_bucket_size': 8,
           'stage3_param_persistence_threshold': 9, 'stage3_model_persistence_threshold': 10,
           'stage3_max_live_parameters': 11, 'stage3_max_reuse_distance': 12, 'sub_group_size': 13,
           'stage3_gather_16bit_weights_on_model_save': true,
           'offload_optimizer': {'device': 'cpu', 'pin_memory': true, 'buffer_count': 14,
                                 'fast_init': true},
           'zero_quantized_weights': true, 'zero_quantized_gradients': true,
           'zero_hpz_partition_size': 2, 'zeropp_loco_param': {'err_beta': 0.5, 'reset_T': 99}},
         'zero_pp': {'enabled': true, 'quant_bits': 8, 'intra_bits': 16, 'weight_bits': 4,
                     'quant_period': 0, 'use_contiguous_buffers': false, 'block_size': 64,
                     'error_feedback': 'off', 'residual': 'int8', 'max_rel_error': 0.25,
                     'rounding': 'stochastic', 'gradient_code': 'linear', 'compress_1d': true,
                     'reduce_every_micro_batch': true})");
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.compute, DType::kF16);
  EXPECT_EQ(config.communication, DType::kF32);
  EXPECT_TRUE(config.fp16.enabled);
  EXPECT_EQ(config.fp16.loss_scale, 128);
  EXPECT_EQ(config.fp16.initial_scale_power, 10);
  EXPECT_EQ(config.fp16.loss_scale_window, 500);
  EXPECT_EQ(config.fp16.hysteresis, 4);
  EXPECT_TRUE(config.fp16.consecutive_hysteresis);
  EXPECT_EQ(config.fp16.min_loss_scale, 0.5);
  EXPECT_EQ(config.stage, 3);
  EXPECT_FALSE(config.overlap_comm);
  EXPECT_EQ(config.reduce_bucket_elems, 5'000'000);
  EXPECT_EQ(config.allgather_bucket_elems, 7);
  EXPECT_EQ(config.prefetch_bucket_elems, 8);
  EXPECT_EQ(config.persistence_threshold_elems, 9);
  EXPECT_EQ(config.model_persistence_elems, 10);
  EXPECT_EQ(config.max_live_elems, 11);
  EXPECT_EQ(config.max_reuse_distance_elems, 12);
  EXPECT_EQ(config.sub_group_elems, 13);
  EXPECT_TRUE(config.gather_16bit_on_save);
  EXPECT_EQ(
      config.offload_optimizer,
      (OffloadConfig{.enabled = true, .pin_memory = true, .buffer_count = 14, .fast_init = true}));
  EXPECT_TRUE(config.quantized_weights);
  EXPECT_TRUE(config.quantized_gradients);
  EXPECT_EQ(config.hpz_partition_size, 2);
  EXPECT_EQ(config.loco, (LocoConfig{.err_beta = 0.5, .reset_steps = 99}));
  EXPECT_EQ(config.zero_pp, (ZeroPpConfig{.enabled = true,
                                          .quant_bits = 8,
                                          .intra_bits = 16,
                                          .weight_bits = 4,
                                          .quant_period = 0,
                                          .use_contiguous_buffers = false,
                                          .block_size = 64,
                                          .error_feedback = ErrorFeedbackMode::kOff,
                                          .residual = ResidualType::kInt8,
                                          .max_rel_error = 0.25,
                                          .rounding = Rounding::kStochastic,
                                          .gradient_code = Code::kLinear,
                                          .compress_1d = true,
                                          .reduce_every_micro_batch = true}));
}

TEST(Config, OtherNames) {
  const ZeroConfig config = Parse(
      R"('bfloat16': {'enabled': true},
         'zero_optimization': {'stage': 3, 'prefetch_bucket_size': 1, 'max_live_parameters': 2,
           'param_persistence_threshold': 3, 'model_persistence_threshold': 4,
           'max_reuse_distance': 5, 'gather_16bit_weights_on_model_save': true,
           'cpu_offload': true})");
  EXPECT_EQ(config.compute, DType::kBF16);
  EXPECT_EQ(config.prefetch_bucket_elems, 1);
  EXPECT_EQ(config.max_live_elems, 2);
  EXPECT_EQ(config.persistence_threshold_elems, 3);
  EXPECT_EQ(config.model_persistence_elems, 4);
  EXPECT_EQ(config.max_reuse_distance_elems, 5);
  EXPECT_TRUE(config.gather_16bit_on_save);
  EXPECT_TRUE(config.offload_optimizer.enabled);
  EXPECT_TRUE(Parse("'zero_optimization': {'stage': 3, "
                    "'stage3_gather_fp16_weights_on_model_save': true}")
                  .gather_16bit_on_save);
  EXPECT_EQ(Parse("'zero_optimization': true").stage, 1);
  EXPECT_EQ(Parse("'zero_optimization': false").stage, 0);
}

// What may be null in DeepSpeed is then as if it were not there.
TEST(Config, NullIsTheDefaultWhereDeepSpeedHasIt) {
  const ZeroConfig config = Parse(
      "'train_batch_size': null, 'communication_data_type': null, 'steps_per_print': null,"
      "'zero_optimization': {'stage': 3, 'overlap_comm': null, 'offload_optimizer': null, "
      "'offload_param': null, 'zeropp_loco_param': null}");
  EXPECT_TRUE(config.overlap_comm);
  EXPECT_FALSE(config.communication.has_value());
  EXPECT_FALSE(config.loco.has_value());
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(Config, OverlapFollowsTheStage) {
  EXPECT_TRUE(Parse("'zero_optimization': {'stage': 3}").overlap_comm);
  EXPECT_FALSE(Parse("'zero_optimization': {'stage': 2}").overlap_comm);
  EXPECT_TRUE(Parse("'zero_optimization': {'stage': 2, 'overlap_comm': true}").overlap_comm);
}

ZeroConfig ParseOptimizer(const std::string& optimizer) {
  std::string json = "{'train_batch_size': 4, 'optimizer': " + optimizer + "}";
  for (char& c : json) {
    if (c == '\'') c = '"';
  }
  const auto config = ParseZeroConfig(json, 1);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ZeroConfig{};
}

// DeepSpeed's "Adam" decouples the weight decay unless told otherwise.
TEST(Config, AdamIsDecoupledUnlessAdamWModeIsFalse) {
  EXPECT_TRUE(ParseOptimizer("{'type': 'Adam'}").adam.decoupled);
  EXPECT_FALSE(ParseOptimizer("{'type': 'Adam', 'params': {'adam_w_mode': false}}").adam.decoupled);
  const ZeroConfig adamw = ParseOptimizer("{'type': 'adamw', 'params': {'adam_w_mode': false}}");
  EXPECT_TRUE(adamw.adam.decoupled);
  EXPECT_THAT(adamw.notes, ElementsAre(HasSubstr("optimizer.params.adam_w_mode")));
}

TEST(Config, AdamParameters) {
  const ZeroConfig config = ParseOptimizer(
      "{'type': 'ADAM', 'params': {'lr': 3e-4, 'betas': [0.8, 0.95], 'eps': 1e-6, "
      "'weight_decay': 0.1, 'bias_correction': false, 'torch_adam': true, 'amsgrad': false}}");
  EXPECT_EQ(config.optimizer, OptimizerType::kAdam);
  EXPECT_EQ(config.adam.lr, 3e-4);
  EXPECT_EQ(config.adam.beta1, 0.8);
  EXPECT_EQ(config.adam.beta2, 0.95);
  EXPECT_EQ(config.adam.eps, 1e-6);
  EXPECT_EQ(config.adam.weight_decay, 0.1);
  EXPECT_FALSE(config.adam.bias_correction);
  // PyTorch's AdamW, which torch_adam asks for, has a decay of its own; its Adam has none.
  EXPECT_EQ(ParseOptimizer("{'type': 'AdamW', 'params': {'torch_adam': true}}").adam.weight_decay,
            0.01);
  EXPECT_EQ(ParseOptimizer("{'type': 'Adam', 'params': {'torch_adam': true, 'adam_w_mode': false}}")
                .adam.weight_decay,
            0);
}

TEST(Config, SgdParameters) {
  const ZeroConfig config = ParseOptimizer(
      "{'type': 'SGD', 'params': {'lr': 1, 'momentum': 0.9, 'weight_decay': 0.2, "
      "'nesterov': true}}");
  EXPECT_EQ(config.optimizer, OptimizerType::kSgd);
  EXPECT_EQ(config.sgd.lr, 1);
  EXPECT_EQ(config.sgd.momentum, 0.9);
  EXPECT_EQ(config.sgd.weight_decay, 0.2);
  EXPECT_TRUE(config.sgd.nesterov);
  EXPECT_EQ(ParseOptimizer("{'type': 'SGD', 'params': {'dampening': 0.5}}").sgd.dampening, 0.5);
}

TEST(Config, NoOptimizerIsAdamWAndSaysSo) {
  const auto config = ParseZeroConfig(R"({"train_batch_size": 4})", 2);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->optimizer, OptimizerType::kAdamW);
  EXPECT_THAT(config->notes, ElementsAre(HasSubstr("optimizer is missing")));
}

// zero_pp turns both kinds of compression on; DeepSpeed's keys choose them one by one.
TEST(Config, WhatIsCompressed) {
  const auto both = Parse("'zero_optimization': {'stage': 2}, 'zero_pp': {'enabled': true}");
  EXPECT_TRUE(both.quantized_weights);
  EXPECT_TRUE(both.quantized_gradients);
  const auto gradients =
      Parse("'zero_optimization': {'stage': 3, 'zero_quantized_gradients': true}");
  EXPECT_FALSE(gradients.quantized_weights);
  EXPECT_TRUE(gradients.quantized_gradients);
  const auto weights = Parse(
      "'zero_optimization': {'stage': 3, 'zero_quantized_gradients': false}, "
      "'zero_pp': {'enabled': true}");
  EXPECT_TRUE(weights.quantized_weights);
  EXPECT_FALSE(weights.quantized_gradients);
  EXPECT_FALSE(Parse("'zero_pp': {'enabled': false, 'quant_bits': 8}").quantized_gradients);
}

TEST(Config, EncodingsOfTheBits) {
  ZeroPpConfig pp;
  EXPECT_EQ(ToString(pp.InterGradients()), "int4/128/sqrt");
  EXPECT_EQ(ToString(pp.IntraGradients()), "int8/256");
  EXPECT_EQ(ToString(pp.WeightDifferences()), "int4/128/linear");
  EXPECT_EQ(ToString(pp.WeightGathers()), "int8/256");
  pp.quant_bits = 16;
  pp.intra_bits = 4;
  pp.gradient_code = Code::kLinear;
  pp.rounding = Rounding::kStochastic;
  pp.block_size = 64;
  EXPECT_EQ(pp.InterGradients(), QuantSpec::None());
  EXPECT_FALSE(pp.WeightDifferences().compressed());
  EXPECT_EQ(ToString(pp.IntraGradients()), "int4/64/linear/stochastic");
  EXPECT_EQ(ToString(pp.WeightGathers()), "int8/64/stochastic");
  for (const int bits : {4, 8, 16}) {
    for (const int32_t block : {0, 32, 2048}) {
      pp.quant_bits = pp.intra_bits = pp.weight_bits = bits;
      pp.block_size = block;
      for (const QuantSpec& spec :
           {pp.InterGradients(), pp.IntraGradients(), pp.WeightDifferences(), pp.WeightGathers()}) {
        EXPECT_TRUE(Validate(spec).ok()) << ToString(spec);
      }
    }
  }
}

// LoCo is feedback on both hops; what zero_pp says goes before it.
TEST(Config, LocoAsksForFeedbackOnBothHops) {
  const std::string loco =
      "'zero_optimization': {'stage': 3, 'zero_quantized_gradients': true, "
      "'zeropp_loco_param': {'err_beta': 0.8, 'reset_T': 1024}}";
  const ZeroConfig config = Parse(loco);
  EXPECT_EQ(config.zero_pp.error_feedback, ErrorFeedbackMode::kBoth);
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("err_beta has no effect here"),
                                        HasSubstr("reset_T has no effect here")));
  EXPECT_EQ(Parse(loco + ", 'zero_pp': {'error_feedback': 'second_hop'}").zero_pp.error_feedback,
            ErrorFeedbackMode::kSecondHop);
}

TEST(Config, BatchSizesAreDerived) {
  struct Case {
    const char* keys;
    int world;
    int64_t train, micro;
    int accumulation;
  };
  for (const Case& c : {
           Case{R"("train_batch_size": 24)", 4, 24, 6, 1},
           Case{R"("train_micro_batch_size_per_gpu": 3)", 4, 12, 3, 1},
           Case{R"("train_batch_size": 24, "train_micro_batch_size_per_gpu": 3)", 4, 24, 3, 2},
           Case{R"("train_batch_size": 24, "gradient_accumulation_steps": 3)", 4, 24, 2, 3},
           Case{R"("train_micro_batch_size_per_gpu": 5, "gradient_accumulation_steps": 7)", 3, 105,
                5, 7},
           Case{R"("train_batch_size": 24, "train_micro_batch_size_per_gpu": 3,
                   "gradient_accumulation_steps": 8)",
                1, 24, 3, 8},
           Case{R"("train_batch_size": 6553600)", 65536, 6553600, 100, 1},
           Case{R"("train_micro_batch_size_per_gpu": 100000000,
                   "gradient_accumulation_steps": 1000000)",
                65536, 6553600000000000000, 100000000, 1000000},
       }) {
    const auto config = ParseZeroConfig("{" + std::string(c.keys) + "}", c.world);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const auto again = ParseZeroConfig(ToJson(*config).dump(), c.world);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(ToJson(*again), ToJson(*config)) << c.keys;
    EXPECT_EQ(config->train_batch_size, c.train) << c.keys;
    EXPECT_EQ(config->micro_batch_size, c.micro) << c.keys;
    EXPECT_EQ(config->accumulation_steps, c.accumulation) << c.keys;
  }
}

// Keys of DeepSpeed's that set nothing here are never dropped in silence, unless they ask for
// nothing.
TEST(Config, HarmlessKeysAreNoted) {
  EXPECT_THAT(Parse("'steps_per_print': 100,\n 'wall_clock_breakdown': true").notes,
              ElementsAre(StartsWith("line 1: steps_per_print has no effect here"),
                          StartsWith("line 2: wall_clock_breakdown has no effect here")));
  EXPECT_THAT(Parse("'wall_clock_breakdown': false, 'zero_optimization': {'reduce_scatter': true},"
                    "'flops_profiler': {'enabled': false, 'profile_step': 1}, 'amp': {},"
                    "'gradient_predivide_factor': 1.0, 'gradient_allreduce_op': 'mean',"
                    "'elasticity': {'enabled': false}, 'steps_per_print': null")
                  .notes,
              IsEmpty());
  EXPECT_THAT(Parse("'zero_optimization': {'stage': 2, 'reduce_scatter': false, "
                    "'stage3_max_live_parameters': 1e9}")
                  .notes,
              ElementsAre(HasSubstr("stage3_max_live_parameters has no effect below stage 3"),
                          HasSubstr("zero_optimization.reduce_scatter has no effect")));
}

TEST(Config, CostlyChoicesAreNoted) {
  const std::string stage2 = "'zero_optimization': {'stage': 2}, ";
  const std::string stage3 = "'zero_optimization': {'stage': 3}, ";
  const auto notes = [](const std::string& json) { return Parse(json).notes; };
  EXPECT_THAT(notes(stage2 + "'zero_pp': {'enabled': true, 'block_size': 512}"),
              ElementsAre(HasSubstr("zero_pp.block_size is long for int4")));
  EXPECT_THAT(notes(stage2 + "'zero_pp': {'enabled': true, 'block_size': 256}"), IsEmpty());
  EXPECT_THAT(notes(stage2 + "'zero_pp': {'enabled': true, 'block_size': 512, 'quant_bits': 8}"),
              IsEmpty());
  EXPECT_THAT(notes(stage2 + "'zero_pp': {'enabled': false, 'block_size': 512}"), IsEmpty());
  EXPECT_THAT(notes(stage3 + "'zero_pp': {'enabled': true, 'weight_bits': 4}"),
              ElementsAre(HasSubstr("zero_pp.weight_bits of 4 costs")));
  EXPECT_THAT(notes(stage2 + "'zero_pp': {'enabled': true, 'intra_bits': 4}"),
              ElementsAre(HasSubstr("error_feedback 'both'")));
  EXPECT_THAT(
      notes(stage2 + "'zero_pp': {'enabled': true, 'max_rel_error': 0.1, 'quant_period': 0}"),
      ElementsAre(HasSubstr("max_rel_error has no effect while quant_period is 0")));
}

// The effective configuration says all there is: read again, it is the same.
TEST(Config, SurvivesTheRoundTrip) {
  for (const char* json :
       {"", "'bf16': {'enabled': true}, 'communication_data_type': 'fp16'",
        "'fp16': {'enabled': true, 'loss_scale_window': 7, 'min_loss_scale': 1e-3}",
        "'gradient_clipping': 0.1, 'zero_optimization': {'stage': 3, 'sub_group_size': 0, "
        "'zero_quantized_gradients': true, 'zeropp_loco_param': {'err_beta': 0.1}}",
        "'zero_optimization': {'stage': 1, 'zero_quantized_weights': false, 'offload_optimizer': "
        "{'device': 'cpu', 'fast_init': true}}, 'zero_pp': {'enabled': true, 'max_rel_error': 0.1, "
        "'residual': 'int8', 'rounding': 'stochastic', 'gradient_code': 'linear'}"}) {
    const ZeroConfig config = Parse(json);
    const auto again = ParseZeroConfig(ToJson(config).dump(2), 4);
    ASSERT_TRUE(again.ok()) << again.status().ToString() << ToJson(config).dump(2);
    EXPECT_EQ(ToJson(*again), ToJson(config)) << json;
    EXPECT_EQ(again->compute, config.compute);
    EXPECT_EQ(again->loco, config.loco);
    EXPECT_EQ(again->zero_pp, config.zero_pp);
  }
  for (const char* optimizer :
       {"{'type': 'SGD', 'params': {'momentum': 0.1, 'nesterov': true}}",
        "{'type': 'Adam', 'params': {'adam_w_mode': false, 'betas': [0.5, 0.25]}}",
        "{'type': 'AdamW', 'params': {'torch_adam': true}}"}) {
    const ZeroConfig config = ParseOptimizer(optimizer);
    const auto again = ParseZeroConfig(ToJson(config).dump(), 1);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(ToJson(*again), ToJson(config)) << optimizer;
  }
}

// What is accepted, the optimizer and the loss scaler take.
TEST(Config, DefaultsPassTheOptimizersOwnChecks) {
  const ZeroConfig config = Parse("");
  EXPECT_TRUE(Validate(config.adam).ok());
  EXPECT_TRUE(Validate(config.sgd).ok());
  EXPECT_TRUE(Validate(config.fp16).ok());
}

TEST(Config, ReadsAFile) {
  const std::string path = ::testing::TempDir() + "/zpp_config_test.json";
  std::ofstream(path) << "{\"train_batch_size\": 8,\n \"stage\": 2}";
  const auto misplaced = ReadZeroConfig(path, 2);
  EXPECT_EQ(misplaced.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(misplaced.status().message(),
            "'" + path +
                "': line 2: stage is not a known key; it belongs into "
                "'zero_optimization'");
  std::ofstream(path) << "{\"train_batch_size\": 8}";
  const auto config = ReadZeroConfig(path, 2);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->micro_batch_size, 4);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadZeroConfig(path, 2).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadZeroConfig(::testing::TempDir(), 2).ok());
}

}  // namespace
}  // namespace zpp
