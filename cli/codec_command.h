// `zpp bw codec`: the codec alone, against the machine's own memory.
#pragma once

#include <vector>

#include "cli/bw_args.h"
#include "cli/codec_rows.h"

namespace zpp::cli {

// Which rows the flags ask for; `data` of the result is left empty. One sentence about the first
// flag that is wrong or that a codec has no use for.
Result<CodecBenchArgs> ResolveCodec(const BwFlags& flags);

// A line per row, headed; for people.
std::string CodecTable(const std::vector<CodecRow>& rows);

// Measures, prints, writes the JSON; returns the exit code.
int RunCodec(const BwFlags& flags);

}  // namespace zpp::cli
