// Shared memory files that killed ranks may leave behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace zpp::test {

// Paths /dev/shm/ucx_shm_posix_* that `pid` has mapped.
std::vector<std::string> ShmFilesOf(pid_t pid);
// Only when nobody needs them any more: all ranks of their job are gone.
void RemoveShmFiles(const std::vector<std::string>& paths);
// All that there are now, anyone's.
std::vector<std::string> AllShmFiles();

}  // namespace zpp::test
