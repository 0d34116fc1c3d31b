// JSON to a file or to standard output; an existing file stays whole until the new one is complete.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/status.h"

namespace zpp::cli {

// "-" is standard output. A file is written beside its place and then renamed; a device or a pipe
// is written to. Text that is not UTF-8 is replaced, numbers that JSON has no words for (NaN,
// infinity) become null. kNotFound when the folder is missing or not writable, kResourceExhausted
// when the disk is full.
Status WriteJson(const std::string& path, const nlohmann::json& value);

// Whether WriteJson could write there, before an hour of measuring.
Status CheckJsonPath(const std::string& path);

}  // namespace zpp::cli
