// What a fuzz target holds to be true. Unlike assert() it stays in release builds.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/status.h"

#define ZPP_FUZZ_CHECK(condition)                                                         \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

namespace zpp {

// Bad input gets one sentence: there, not endless, on one line, printable.
inline void CheckSentence(const Status& status) {
  ZPP_FUZZ_CHECK(!status.ok());
  ZPP_FUZZ_CHECK(!status.message().empty());
  ZPP_FUZZ_CHECK(status.message().size() < 400);
  for (const char c : status.message()) ZPP_FUZZ_CHECK(c >= ' ' && c <= '~');
}

}  // namespace zpp
