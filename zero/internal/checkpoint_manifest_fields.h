// The fields of a manifest whose version and checksum are right.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp::internal {

// kDataLoss names the field.
Result<Manifest> ReadManifestFields(const nlohmann::json& json);

}  // namespace zpp::internal
