// The report of `zpp bw` for people and for scripts that read nccl-tests.
#pragma once

#include <string>

#include "cli/bw_result.h"

namespace zpp::cli {

// nccl-tests' columns twice: uncompressed, compressed. The speed-up stands before them, because
// scripts count columns from the end of a line. Everything else is in lines that begin with '#'.
std::string TableHead(const BwArgs& args, const BwReport& report);
std::string TableRow(const BwArgs& args, const BwRow& row);
// Wire bytes per tier, ratio, error, reason and plan, then nccl-tests' closing lines.
std::string TableTail(const BwArgs& args, const BwReport& report);

// Whether the compressed half of the table has anything to say.
bool Compresses(const BwArgs& args);

}  // namespace zpp::cli
