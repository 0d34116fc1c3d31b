// A training as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/train_run.h"

namespace zpp::cli {

// {"version","ranks","nodes","model","parameters","data","steps":[{"step","loss","grad_norm",
//  "loss_scale","time_ms","wire_bytes":{"intra","inter"},"rel_error",...}],"validation":[..],
//  "final":{..} or null,"memory":{..},"audit":{..},"config":{..}}; of --compare
// {..,"baseline":{..},"compressed":{..},"speedup",...} with the same inside. "error" when it
// failed.
nlohmann::json ToJson(const TrainReport& report);

// Of a training that never began: the same keys, empty.
nlohmann::json TrainErrorJson(const std::string& error);

}  // namespace zpp::cli
