// A program of another project that links zpp: all-reduces over two in-process ranks.
#include <zpp/collectives/connect.h>
#include <zpp/quant/codec.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "common/status.h"
#include "quant/codec.h"

#if !defined(DECOY_QUANT_CODEC_H) || !defined(DECOY_COMMON_STATUS_H)
#error "this project's own headers must win for its own names"
#endif

int main() {
  auto ranks = zpp::ConnectInProcess(2);
  if (!ranks.ok()) {
    std::fprintf(stderr, "%s\n", ranks.status().ToString().c_str());
    return 1;
  }
  std::vector<std::vector<float>> data = {{1, 2, 3}, {10, 20, 30}};
  std::vector<zpp::Status> status(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      float* values = data[r].data();
      status[r] =
          (*ranks)[r]->AllReduce({zpp::DType::kF32, values, 3}, {zpp::DType::kF32, values, 3});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < 2; ++r) {
    if (!status[r].ok() || data[r] != std::vector<float>{11, 22, 33}) {
      std::fprintf(stderr, "rank %d: %s\n", r, status[r].ToString().c_str());
      return 1;
    }
  }
  std::puts("the consumer works");
}
