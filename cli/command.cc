#include "cli/command.h"

#include <cstdio>

namespace zpp::cli {

int ExitCodeFor(const Status& status) {
  switch (RemedyFor(status.code())) {
    case Remedy::kNone:
      return kExitOk;
    case Remedy::kFixArgument:
      return kExitUsage;
    case Remedy::kRetry:
    case Remedy::kRebuild:
    case Remedy::kGiveUp:
      return kExitFailed;
  }
  return kExitFailed;
}

int Report(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "zpp: %s\n", status.message().c_str());
  return ExitCodeFor(status);
}

}  // namespace zpp::cli
