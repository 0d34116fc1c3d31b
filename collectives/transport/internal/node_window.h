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

// A mapping of shared memory; unmapped on destruction.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(int fd, size_t bytes);  // empty when it cannot be mapped
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  std::byte* data() const { return data_; }
  bool empty() const { return data_ == nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// This rank's own. One thread uses it. Pages are taken from the machine when they are first used.
class NodeWindow {
 public:
  // Messages below gain nothing; longer ones would push each other out.
  static constexpr size_t kLeastMessage_bytes = size_t{32} << 10;
  static constexpr size_t kLongestMessage_bytes = size_t{1} << 20;
  static constexpr size_t kUnit_bytes = size_t{128} << 10;
  static constexpr int kUnits = 64;

  // Null, with a line in the log, when this machine has no such memory. `world`: ranks that may
  // map it.
  static std::unique_ptr<NodeWindow> Create(int world);

  // What PeerWindow::Open() takes, while the descriptor is open.
  std::string card() const;
  void CloseDescriptor() { fd_.Reset(); }
  // Whether `rank` has mapped it and so understands a reference.
  bool MappedBy(int rank) const;

  // The message in the window, for one more reader: copied unless the same bytes are shared since
  // the last EndBatch() already. Empty when they have the wrong size or no room is left: send them
  // otherwise.
  std::optional<WindowRef> Share(std::span<const std::byte> message);
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
  int world_ = 0;
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
  bool Made(const WindowRef& ref) const { return !empty() && ref.key == key_; }
  // Copies the message out and lets go of it. False when the reference points outside.
  bool Take(const WindowRef& ref, std::span<std::byte> out, StoreHint stores) const;

 private:
  SharedMapping mapping_;
  std::array<uint64_t, 2> key_ = {};
  size_t units_at_ = 0;
};

}  // namespace zpp::internal
