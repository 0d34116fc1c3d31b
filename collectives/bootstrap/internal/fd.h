// An owned file descriptor that a forked child lets go of.
#pragma once

#include <utility>

namespace zpp::internal {

// Closes on destruction. In a child made by fork() the descriptor is closed at once: a child that
// kept a control socket open would hide its parent's death from the other ranks.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  // False in a forked child, where it has been closed.
  bool valid() const;
  void Reset();

 private:
  int fd_ = -1;
  int generation_ = 0;
};

// A counter to wake poll(2): readable from the first Ring on, until Clear.
class Bell {
 public:
  Bell();
  void Ring() const;
  void Clear() const;
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// How often this process image has been forked into: an object made before knows that it is a copy.
int ForkGeneration();

}  // namespace zpp::internal
