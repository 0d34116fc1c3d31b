// The report of `zpp bw` as JSON; cli/README.md has the schema.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/bw_result.h"

namespace zpp::cli {

nlohmann::json ToJson(const BwArgs& args, const BwReport& report);

// What is written when there is nothing to report but why.
nlohmann::json ErrorJson(const std::string& collective, const std::string& error);

}  // namespace zpp::cli
