// Compiled, never run: keeps codec_math.h and noise.h valid device code, with kernels of one block
// per format.
#include <cstdint>

#include "quant/codec_math.h"
#include "quant/noise.h"

namespace zpp {

struct BlockArgs {
  QuantSpec spec;
  int elems;
  uint64_t seed, step, first_elem;
};

// One thread block encodes one block of elements into one code per byte.
__global__ void EncodeBlock(BlockArgs args, const float* in, float* scale, int8_t* codes) {
  __shared__ uint32_t positive, negative;
  if (threadIdx.x == 0) positive = negative = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < args.elems; i += blockDim.x) {
    const uint32_t bits = BitsOf(in[i]);
    atomicMax((bits >> 31) != 0 ? &negative : &positive, bits & 0x7fffffffu);
  }
  __syncthreads();
  const BlockScale block = MakeScale(args.spec, positive, negative);
  if (threadIdx.x == 0) *scale = block.scale;
  for (int i = threadIdx.x; i < args.elems; i += blockDim.x) {
    int32_t code = 0;
    if (block.inverse != 0.0f) {
      const float t = in[i] * block.inverse;
      code = args.spec.rounding == Rounding::kNearest
                 ? NearestCode(args.spec, t)
                 : StochasticCode(args.spec, t, NoiseOf(args.seed, args.step, args.first_elem + i));
    }
    codes[i] = static_cast<int8_t>(code);
  }
}

// One thread block decodes one block into fp32, fp16 and bf16.
__global__ void DecodeBlock(BlockArgs args, uint32_t scale_bits, const int8_t* codes, float* f32,
                            uint16_t* f16, uint16_t* bf16) {
  const float scale = CanonicalScale(scale_bits);
  for (int i = threadIdx.x; i < args.elems; i += blockDim.x) {
    const float value = ValueOf(scale, LevelOf(args.spec, codes[i]));
    f32[i] = value;
    f16[i] = DecodedToF16(value);
    bf16[i] = DecodedToBF16(value);
  }
}

}  // namespace zpp
