// The program as its users run it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace zpp::test {

using nlohmann::json;

inline std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.rfind("zpp-", 0) == 0 || name.rfind("ucx_", 0) == 0) names.insert(name);
  }
  return names;
}

struct Ran {
  int code = -1;
  std::string out, err;
};

class ZppProgram : public testing::Test {
 protected:
  ZppProgram() : folder_(testing::TempDir() + "zpp" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ZppProgram() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // `environment` goes before the program: "RANK=0 ".
  Ran Run(const std::string& args, const std::string& environment = "") const {
    const std::string command = environment + " timeout 100 " ZPP_PROGRAM " " + args + " >" +
                                Path("out") + " 2>" + Path("err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, ReadFile(Path("out")),
            ReadFile(Path("err"))};
  }

  // A port that was free a moment ago.
  static std::string Port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    close(fd);
    return std::to_string(ntohs(address.sin_port));
  }

  // Started in the background, to be signalled.
  pid_t Start(const std::vector<std::string>& args) const {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    std::freopen(Path("out").c_str(), "w", stdout);
    std::freopen(Path("err").c_str(), "w", stderr);
    std::vector<char*> argv = {const_cast<char*>("zpp")};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv(ZPP_PROGRAM, argv.data());
    _exit(127);
  }

  // Until rank 0 has printed the table's head: all ranks are connected by then.
  bool WaitForHead(const char* file = "out") const {
    for (int i = 0; i < 1000; ++i) {
      if (ReadFile(Path(file)).find("elements") != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  std::string folder_;
};

}  // namespace zpp::test
