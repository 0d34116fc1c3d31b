// fp16 and bf16 by their bits: the same result on every compiler, CPU and GPU.
// Widening is exact. Narrowing rounds to nearest, ties to even, keeps infinities and turns every
// NaN into a quiet NaN of the same sign; finite values beyond the largest finite one become
// infinity, as IEEE 754 has it.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define ZPP_HD __host__ __device__ __forceinline__
#else
#define ZPP_HD inline
#endif

namespace zpp {

ZPP_HD uint32_t BitsOf(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}

ZPP_HD float FloatOf(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

ZPP_HD float F32FromBF16(uint16_t bits) { return FloatOf(static_cast<uint32_t>(bits) << 16); }

ZPP_HD uint16_t BF16FromF32(float x) {
  const uint32_t u = BitsOf(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

ZPP_HD float F32FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {  // infinity or NaN, which is made quiet
    return FloatOf(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x00400000u : 0u));
  }
  if (exponent != 0) return FloatOf(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa * 2^-24, exact in fp32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return FloatOf(sign | BitsOf(magnitude));
}

ZPP_HD uint16_t F16FromF32(float x) {
  const uint32_t u = BitsOf(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and up
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal in fp16
    // Adding 0.5 puts the unit of the sum at 2^-24: the hardware rounds to nearest even for us.
    const float sum = FloatOf(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsOf(sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace zpp
