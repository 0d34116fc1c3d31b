// Names of the tensors in an engine's checkpoints; zero/README.md lists them.
#pragma once

#include <string>

#include "collectives/feedback.h"

namespace zpp::internal {

inline std::string StateName(const char* what, const std::string& param) {
  return std::string(what) + "/" + param;
}

// Encoders' statistics since the last audit, a row per rank.
inline constexpr char kStatisticsName[] = "error_statistics";

// What domain `domain` of tier `tier` owes of one parameter, "mean" when in units after the
// division by the world size.
inline std::string ResidualPrefix(const ReduceFeedback::Piece& piece, int domain) {
  return "residual/" + std::to_string(piece.tier) + (piece.averaged ? "/mean/" : "/sum/") +
         std::to_string(domain) + "/";
}

}  // namespace zpp::internal
