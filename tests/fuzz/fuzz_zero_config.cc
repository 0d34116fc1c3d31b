// Any text either is refused with one sentence or gives a configuration that survives a round trip
// and that everything it configures accepts.
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/check.h"
#include "zero/config.h"
#include "zero/memory_estimate.h"

namespace zpp {
namespace {

void CheckConfig(const ZeroConfig& config, int world) {
  ZPP_FUZZ_CHECK(config.micro_batch_size > 0 && config.accumulation_steps > 0);
  ZPP_FUZZ_CHECK(config.train_batch_size ==
                 config.micro_batch_size * config.accumulation_steps * world);
  ZPP_FUZZ_CHECK(Validate(config.adam).ok());
  ZPP_FUZZ_CHECK(Validate(config.sgd).ok());
  ZPP_FUZZ_CHECK(Validate(config.fp16).ok());
  for (const QuantSpec& spec :
       {config.zero_pp.IntraGradients(), config.zero_pp.InterGradients(),
        config.zero_pp.WeightDifferences(), config.zero_pp.WeightGathers()}) {
    ZPP_FUZZ_CHECK(Validate(spec).ok());
  }
  for (const std::string& note : config.notes) CheckSentence(InvalidArgument(note));
  const nlohmann::json json = ToJson(config);
  const Result<ZeroConfig> again = ParseZeroConfig(json.dump(), world);
  ZPP_FUZZ_CHECK(again.ok());
  ZPP_FUZZ_CHECK(ToJson(*again) == json);
  const ModelSize model = {.elems = 1000, .compressed_elems = 900, .largest_unit_elems = 500};
  const MemoryEstimate memory =
      EstimateMemory(config, model, {.world = world, .node_ranks = world});
  ZPP_FUZZ_CHECK(memory.total_bytes() >= 4 * 1000 && memory.total_bytes() < 50 * 1000);
}

}  // namespace
}  // namespace zpp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const int world : {1, 4}) {
    const zpp::Result<zpp::ZeroConfig> config = zpp::ParseZeroConfig(text, world);
    if (config.ok()) {
      zpp::CheckConfig(*config, world);
    } else {
      zpp::CheckSentence(config.status());
    }
  }
  return 0;
}
