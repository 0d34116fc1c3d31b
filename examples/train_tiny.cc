// The library's API in one page: softmax regression trained by ZeRO stage 2 with compressed
// communication. Ranks come from a launcher (torchrun, mpirun, srun); without one, four threads of
// this process are the ranks of two nodes.
//
//   train_tiny            or            mpirun -n 4 train_tiny
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include <zpp/collectives/bootstrap/launch_env.h>
#include <zpp/collectives/connect.h>
#include <zpp/zero/engine.h>

namespace {

constexpr int kClasses = 10, kFeatures = 64, kRowsPerRank = 32, kSteps = 200;
// DeepSpeed's JSON; "zero_pp" turns compression on.
constexpr const char* kConfig = R"({
  "train_micro_batch_size_per_gpu": 32,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.02}},
  "zero_optimization": {"stage": 2},
  "zero_pp": {"enabled": true}
})";

// A row of a batch: noise around the pattern of its class, the same for everyone who asks for it.
int FillRow(uint64_t row, float* x) {
  uint64_t state = row * 0x9e3779b97f4a7c15u + 1;
  const int label = static_cast<int>(row % kClasses);
  for (int i = 0; i < kFeatures; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const float noise = static_cast<float>(state >> 40) / (1 << 23) - 1;  // -1 to 1
    x[i] = ((i * 7 + label * 13) % 10 < 3 ? 1.0f : 0.0f) + 1.5f * noise;
  }
  return label;
}

// Mean cross-entropy of one micro-batch; adds the gradients of weights (classes, features) and
// bias.
double Gradients(const float* weights, const float* bias, uint64_t first_row, float scale,
                 std::vector<float>* dweights, std::vector<float>* dbias) {
  double loss = 0;
  float x[kFeatures], z[kClasses];
  for (int row = 0; row < kRowsPerRank; ++row) {
    const int label = FillRow(first_row + row, x);
    float sum = 0;
    for (int c = 0; c < kClasses; ++c) {
      z[c] = bias[c];
      for (int i = 0; i < kFeatures; ++i) z[c] += weights[c * kFeatures + i] * x[i];
      sum += z[c] = std::exp(z[c]);
    }
    loss -= std::log(z[label] / sum) / kRowsPerRank;
    for (int c = 0; c < kClasses; ++c) {
      const float delta = scale * (z[c] / sum - (c == label ? 1.0f : 0.0f)) / kRowsPerRank;
      (*dbias)[c] += delta;
      for (int i = 0; i < kFeatures; ++i) (*dweights)[c * kFeatures + i] += delta * x[i];
    }
  }
  return loss;
}

zpp::Status Train(zpp::Communicator& comm) {
  ZPP_ASSIGN_OR_RETURN(const zpp::ZeroConfig config, zpp::ParseZeroConfig(kConfig, comm.world()));
  ZPP_ASSIGN_OR_RETURN(auto engine,
                       zpp::ZeroEngine::Create(comm, config,
                                               {{.name = "weights", .shape = {kClasses, kFeatures}},
                                                {.name = "bias", .shape = {kClasses}}}));
  const std::vector<float> zeros(kClasses * kFeatures);
  ZPP_RETURN_IF_ERROR(engine->LoadWeights(
      std::vector<zpp::ConstVec>{{zpp::DType::kF32, zeros.data(), kClasses * kFeatures},
                                 {zpp::DType::kF32, zeros.data(), kClasses}}));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> dweights(kClasses * kFeatures), dbias(kClasses);
    ZPP_RETURN_IF_ERROR(engine->Gather(0));
    const uint64_t first_row = (uint64_t{1} * step * comm.world() + comm.rank()) * kRowsPerRank;
    const double loss = Gradients(static_cast<const float*>(engine->Weights(0).data),
                                  static_cast<const float*>(engine->Weights(1).data), first_row,
                                  static_cast<float>(engine->loss_scale()), &dweights, &dbias);
    ZPP_RETURN_IF_ERROR(
        engine->AddGradient(0, {zpp::DType::kF32, dweights.data(), kClasses * kFeatures}));
    ZPP_RETURN_IF_ERROR(engine->AddGradient(1, {zpp::DType::kF32, dbias.data(), kClasses}));
    ZPP_RETURN_IF_ERROR(engine->Release(0));
    ZPP_RETURN_IF_ERROR(engine->EndMicroBatch());
    ZPP_ASSIGN_OR_RETURN(const zpp::StepReport report, engine->Step());
    if (comm.rank() == 0 && (step == 0 || report.step % 50 == 0)) {
      std::printf("step %3d  loss %.4f  gradient norm %.3f  error of compression %.4f%s\n",
                  static_cast<int>(report.step), loss, report.grad_norm, report.gradient_rel_error,
                  report.exact ? "  (exact step)" : "");
    }
  }
  return comm.Shutdown(zpp::Deadline::In(30));
}

int Fail(const zpp::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace

int main() {
  if (zpp::ReadLaunchEnv().status().code() != zpp::StatusCode::kNotFound) {
    auto comm = zpp::ConnectFromEnv();
    return Fail(comm.ok() ? Train(**comm) : comm.status());
  }
  zpp::ConnectOptions options;
  options.nodes = 2;
  auto ranks = zpp::ConnectInProcess(4, options);
  if (!ranks.ok()) return Fail(ranks.status());
  std::atomic<int> code = 0;
  std::vector<std::thread> threads;
  for (auto& comm : *ranks) {
    threads.emplace_back([&] { code |= Fail(Train(*comm)); });
  }
  for (std::thread& thread : threads) thread.join();
  return code;
}
