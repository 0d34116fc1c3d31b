#include "collectives/transport/internal/node_window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/bootstrap/internal/bytes.h"
#include "common/log.h"

namespace zpp::internal {
namespace {

using Key = std::array<uint64_t, 2>;
using Readers = std::atomic<uint32_t>;
using Mapped = std::atomic<uint8_t>;
static_assert(Readers::is_always_lock_free && Mapped::is_always_lock_free);

// The key; how many still read what begins at each unit, a cache line each; a byte per rank that
// has mapped the window; the units, where a huge page may begin.
constexpr size_t kReaders_at = 64;
constexpr size_t kReaders_stride = 64;
constexpr size_t kMapped_at = kReaders_at + NodeWindow::kUnits * kReaders_stride;
constexpr size_t kHugePage_bytes = size_t{2} << 20;

size_t UnitsAt(int world) {
  const size_t end = kMapped_at + static_cast<size_t>(world);
  return (end + kHugePage_bytes - 1) / kHugePage_bytes * kHugePage_bytes;
}
size_t WindowBytes(int world) {
  return UnitsAt(world) + NodeWindow::kUnits * NodeWindow::kUnit_bytes;
}

Readers& ReadersOf(const SharedMapping& mapping, uint32_t unit) {
  return *reinterpret_cast<Readers*>(mapping.data() + kReaders_at + unit * kReaders_stride);
}
Mapped& MappedFlag(const SharedMapping& mapping, int rank) {
  return *reinterpret_cast<Mapped*>(mapping.data() + kMapped_at + static_cast<size_t>(rank));
}

int UnitsFor(size_t bytes) {
  return static_cast<int>((bytes + NodeWindow::kUnit_bytes - 1) / NodeWindow::kUnit_bytes);
}
uint64_t UnitMask(uint32_t first, int units) { return ((uint64_t{1} << units) - 1) << first; }

// Of a file of that size which nobody can cut short under a reader's feet.
Fd SealedMemory(size_t bytes) {
  Fd fd(::memfd_create("zpp-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return {};
  return fd;
}

// What a peer finds the memory by.
struct Card {
  uint64_t pid = 0, fd = 0, device = 0, inode = 0, world = 0;
  Key key = {};

  std::string Pack() const {
    ByteWriter out;
    for (const uint64_t field : {pid, fd, device, inode, world, key[0], key[1]}) out.Put(field);
    return out.Take();
  }
  static std::optional<Card> Unpack(const std::string& body) {
    ByteReader in(body);
    Card card;
    for (uint64_t* field : {&card.pid, &card.fd, &card.device, &card.inode, &card.world,
                            &card.key[0], &card.key[1]}) {
      *field = in.Get<uint64_t>();
    }
    if (!in.done()) return std::nullopt;
    return card;
  }
};

// The process and its descriptor may be others' by now, or in another namespace: only the very file
// that the card speaks of is opened.
Fd OpenMemory(const Card& card) {
  const std::string path = "/proc/" + std::to_string(card.pid) + "/fd/" + std::to_string(card.fd);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  const bool same = S_ISREG(info.st_mode) && info.st_dev == card.device &&
                    info.st_ino == card.inode &&
                    static_cast<size_t>(info.st_size) == WindowBytes(static_cast<int>(card.world));
  return same ? Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)) : Fd();
}

}  // namespace

SharedMapping::SharedMapping(int fd, size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return;
  (void)::madvise(data, bytes, MADV_HUGEPAGE);  // where the machine gives them
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
}
SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
SharedMapping::~SharedMapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::unique_ptr<NodeWindow> NodeWindow::Create(int world) {
  std::unique_ptr<NodeWindow> window(new NodeWindow);
  const size_t bytes = WindowBytes(world);
  window->fd_ = SealedMemory(bytes);
  if (window->fd_.valid()) window->mapping_ = SharedMapping(window->fd_.get(), bytes);
  const bool random = ::getrandom(window->key_.data(), sizeof window->key_, 0) ==
                      static_cast<ssize_t>(sizeof window->key_);
  if (window->mapping_.empty() || !random) {
    Log(LogLevel::kInfo,
        std::string("no memory to share with the ranks of this node: ") + std::strerror(errno));
    return nullptr;
  }
  std::memcpy(window->mapping_.data(), window->key_.data(), sizeof window->key_);
  window->world_ = world;
  window->held_.reserve(kUnits);
  return window;
}

std::string NodeWindow::card() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return "";
  return Card{.pid = static_cast<uint64_t>(::getpid()),
              .fd = static_cast<uint64_t>(fd_.get()),
              .device = info.st_dev,
              .inode = info.st_ino,
              .world = static_cast<uint64_t>(world_),
              .key = key_}
      .Pack();
}

bool NodeWindow::MappedBy(int rank) const {
  return MappedFlag(mapping_, rank).load(std::memory_order_acquire) != 0;
}

void NodeWindow::Reclaim() {
  std::erase_if(held_, [this](const Held& held) {
    const bool read = ReadersOf(mapping_, held.ref.first_unit).load(std::memory_order_acquire) == 0;
    if (read) free_units_ |= UnitMask(held.ref.first_unit, UnitsFor(held.ref.bytes));
    return read;
  });
}

// The lowest run of free units: what was used last is still in the caches.
std::optional<uint32_t> NodeWindow::Allocate(size_t bytes) {
  Reclaim();
  const int units = UnitsFor(bytes);
  uint64_t begins = free_units_;  // of runs that are long enough
  for (int i = 1; i < units; ++i) begins &= free_units_ >> i;
  if (begins == 0) return std::nullopt;
  const auto first = static_cast<uint32_t>(std::countr_zero(begins));
  free_units_ &= ~UnitMask(first, units);
  return first;
}

std::optional<WindowRef> NodeWindow::Share(std::span<const std::byte> message) {
  if (message.size() < kLeastMessage_bytes || message.size() > kLongestMessage_bytes) {
    return std::nullopt;
  }
  const auto same = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
    return held.source == message.data() && held.ref.bytes == message.size();
  });
  if (same != held_.end()) {
    ReadersOf(mapping_, same->ref.first_unit).fetch_add(1, std::memory_order_relaxed);
    return same->ref;
  }
  const std::optional<uint32_t> first = Allocate(message.size());
  if (!first) return std::nullopt;
  std::memcpy(mapping_.data() + UnitsAt(world_) + *first * kUnit_bytes, message.data(),
              message.size());
  // One for the reader, and one until the batch ends: the next reader may come after the first has
  // read.
  ReadersOf(mapping_, *first).store(2, std::memory_order_release);
  held_.push_back({.source = message.data(),
                   .ref = {.key = key_, .bytes = message.size(), .first_unit = *first}});
  return held_.back().ref;
}

void NodeWindow::EndBatch() {
  for (Held& held : held_) {
    if (held.source == nullptr) continue;
    held.source = nullptr;
    ReadersOf(mapping_, held.ref.first_unit).fetch_sub(1, std::memory_order_release);
  }
}

PeerWindow PeerWindow::Open(const std::string& text, int rank) {
  const std::optional<Card> card = Card::Unpack(text);
  if (!card || rank < 0 || static_cast<uint64_t>(rank) >= card->world || card->world > 1 << 16) {
    return {};
  }
  const Fd fd = OpenMemory(*card);
  PeerWindow window;
  if (!fd.valid()) return window;
  window.mapping_ = SharedMapping(fd.get(), WindowBytes(static_cast<int>(card->world)));
  if (window.empty()) return {};
  std::memcpy(window.key_.data(), window.mapping_.data(), sizeof window.key_);
  if (window.key_ != card->key) return {};
  window.units_at_ = UnitsAt(static_cast<int>(card->world));
  MappedFlag(window.mapping_, rank).store(1, std::memory_order_release);
  return window;
}

bool PeerWindow::Take(const WindowRef& ref, std::span<std::byte> out, StoreHint stores) const {
  const bool inside = ref.bytes == out.size() && ref.bytes <= NodeWindow::kLongestMessage_bytes &&
                      int64_t{ref.first_unit} + UnitsFor(ref.bytes) <= NodeWindow::kUnits;
  if (!inside) return false;
  const std::byte* from = mapping_.data() + units_at_ + ref.first_unit * NodeWindow::kUnit_bytes;
  CopyBytes({from, out.size()}, out.data(), stores);
  ReadersOf(mapping_, ref.first_unit).fetch_sub(1, std::memory_order_release);
  return true;
}

}  // namespace zpp::internal
