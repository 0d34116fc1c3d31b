// Memory that a rank shares with the others of its node. A large message is copied into the
// sender's window once, however many peers it goes to, and each of them copies it out for itself;
// what travels through the fabric is a reference of 32 bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/bootstrap/internal/fd.h"
#include "quant/codec.h"

namespace zpp::internal {

// Where a message lies in the window of its sender. Stands in the message's place on the wire.
struct WindowRef {
  std::array<uint64_t, 2> key = {};  // of the window: random
  uint64_t bytes = 0;
  uint32_t first_unit = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(WindowRef) == 32);

// A window's memory, mapped. A forked child does not have it: it must neither pin the memory of a
// job that has ended nor touch that of one that goes on.
class SharedMapping {
 public:
  SharedMapping() = default;
  explicit SharedMapping(int fd);  // empty when it cannot be mapped
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  std::byte* data() const { return data_; }
  bool empty() const { return data_ == nullptr; }

 private:
  std::byte* data_ = nullptr;
  int generation_ = 0;
};

// This rank's own. One thread uses it.
class NodeWindow {
 public:
  // Messages below gain nothing; longer ones would push each other out.
  static constexpr size_t kLeastMessage_bytes = size_t{32} << 10;
  static constexpr size_t kLongestMessage_bytes = size_t{1} << 20;
  // What is given to a message: whole units, side by side.
  static constexpr size_t kUnit_bytes = size_t{64} << 10;
  static constexpr int kUnits = 64;
  static constexpr int kMaxRanks = 1 << 16;

  // Null, with a line in the log, when this machine has no such memory.
  static std::unique_ptr<NodeWindow> Create();

  // What PeerWindow::Open() takes, while the descriptor is open.
  std::string card() const;
  void CloseDescriptor() { fd_.Reset(); }
  // Whether `rank` has mapped it and so understands a reference.
  bool MappedBy(int rank) const;

  // The message in the window, for one more reader: copied unless the same bytes are shared since
  // the last EndBatch() already. Empty when they have the wrong size or no room is left: send them
  // otherwise. kStream: the readers' cores may not share a cache with this one, and fetch a large
  // vector faster from memory.
  std::optional<WindowRef> Share(std::span<const std::byte> message, StoreHint stores);
  // From here on the bytes of what was shared may change.
  void EndBatch();

 private:
  struct Held {
    const std::byte* source = nullptr;  // null once its batch has ended
    WindowRef ref;
  };

  NodeWindow() = default;
  std::optional<uint32_t> Allocate(size_t bytes);
  void Reclaim();

  Fd fd_;
  SharedMapping mapping_;
  std::array<uint64_t, 2> key_ = {};
  uint64_t free_units_ = ~uint64_t{0};
  std::vector<Held> held_;
};

// Another rank's, seen from this one.
class PeerWindow {
 public:
  PeerWindow() = default;  // of a rank that has none, or whose memory is out of reach
  // Maps the window of `card` and tells its owner that `rank` has it.
  static PeerWindow Open(const std::string& card, int rank);

  bool empty() const { return mapping_.empty(); }
  // Whether these bytes are a reference into this window: 128 random bits say so.
  bool Owns(const WindowRef& ref) const { return !empty() && ref.key == key_; }
  // Copies the message out and lets go of it. False when the reference points to no message of that
  // length.
  bool Take(const WindowRef& ref, std::span<std::byte> out, StoreHint stores) const;

 private:
  SharedMapping mapping_;
  std::array<uint64_t, 2> key_ = {};
};

}  // namespace zpp::internal
