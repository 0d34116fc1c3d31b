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
static_assert(sizeof(Readers) == 4 && sizeof(Mapped) == 1);

// The key; how many still read what begins at each unit, a cache line each; a byte per rank that
// has mapped the window; the units, where a huge page may begin.
constexpr size_t kReaders_at = 64;
constexpr size_t kReaders_stride = 64;
constexpr size_t kMapped_at = kReaders_at + NodeWindow::kUnits * kReaders_stride;
constexpr size_t kUnits_at = size_t{2} << 20;
constexpr size_t kUnits_bytes = NodeWindow::kUnits * NodeWindow::kUnit_bytes;
constexpr size_t kWindow_bytes = kUnits_at + kUnits_bytes;
static_assert(kMapped_at + NodeWindow::kMaxRanks <= kUnits_at);

Readers& ReadersOf(const SharedMapping& mapping, uint32_t unit) {
  return *reinterpret_cast<Readers*>(mapping.data() + kReaders_at + unit * kReaders_stride);
}
Mapped& MappedFlag(const SharedMapping& mapping, int rank) {
  return *reinterpret_cast<Mapped*>(mapping.data() + kMapped_at + static_cast<size_t>(rank));
}
std::byte* UnitAt(const SharedMapping& mapping, uint32_t unit) {
  return mapping.data() + kUnits_at + unit * NodeWindow::kUnit_bytes;
}

int UnitsFor(size_t bytes) {
  return static_cast<int>((bytes + NodeWindow::kUnit_bytes - 1) / NodeWindow::kUnit_bytes);
}
uint64_t UnitMask(uint32_t first, int units) { return ((uint64_t{1} << units) - 1) << first; }

// Memory that nobody can cut short under a reader's feet.
Fd SealedMemory() {
  Fd fd(::memfd_create("zpp-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(kWindow_bytes)) != 0) return {};
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  return ::fcntl(fd.get(), F_ADD_SEALS, seals) == 0 ? std::move(fd) : Fd();
}

// Now rather than by a signal in the first copy that finds no memory.
bool TakePages(const SharedMapping& mapping) {
  const int taken = ::madvise(mapping.data() + kUnits_at, kUnits_bytes, MADV_POPULATE_WRITE);
  return taken == 0 || errno == EINVAL;  // before Linux 5.14 the first use takes them
}

std::unique_ptr<NodeWindow> NoWindow() {
  Log(LogLevel::kInfo,
      std::string("no memory to share with the ranks of this node: ") + std::strerror(errno));
  return nullptr;
}

// What a peer finds the memory by.
struct WindowCard {
  uint64_t pid = 0, fd = 0, device = 0, inode = 0;
  Key key = {};

  std::string Pack() const {
    ByteWriter out;
    for (const uint64_t field : {pid, fd, device, inode, key[0], key[1]}) out.Put(field);
    return out.Take();
  }
  static std::optional<WindowCard> Unpack(const std::string& body) {
    ByteReader in(body);
    WindowCard card;
    for (uint64_t* field :
         {&card.pid, &card.fd, &card.device, &card.inode, &card.key[0], &card.key[1]}) {
      *field = in.Get<uint64_t>();
    }
    if (!in.done()) return std::nullopt;
    return card;
  }
};

bool IsMemoryOf(const WindowCard& card, const struct stat& info) {
  return S_ISREG(info.st_mode) && info.st_dev == card.device && info.st_ino == card.inode &&
         static_cast<size_t>(info.st_size) == kWindow_bytes;
}

// The process and its descriptor may be others' by now, or in another namespace: only the very file
// that the card speaks of is opened, and looked at again once it is.
Fd OpenMemory(const WindowCard& card) {
  const std::string path = "/proc/" + std::to_string(card.pid) + "/fd/" + std::to_string(card.fd);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !IsMemoryOf(card, info)) return {};
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0 || !IsMemoryOf(card, info)) return {};
  return fd;
}

}  // namespace

SharedMapping::SharedMapping(int fd) : generation_(ForkGeneration()) {
  void* data = ::mmap(nullptr, kWindow_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(data);
  (void)::madvise(data_ + kUnits_at, kUnits_bytes, MADV_HUGEPAGE);  // where the machine gives them
  (void)::madvise(data_, kWindow_bytes, MADV_DONTFORK);
  (void)::madvise(data_, kWindow_bytes, MADV_DONTDUMP);
}
SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), generation_(other.generation_) {}
SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(generation_, other.generation_);
  return *this;
}
SharedMapping::~SharedMapping() {
  if (data_ != nullptr && generation_ == ForkGeneration()) ::munmap(data_, kWindow_bytes);
}

std::unique_ptr<NodeWindow> NodeWindow::Create() {
  std::unique_ptr<NodeWindow> window(new NodeWindow);
  window->fd_ = SealedMemory();
  if (!window->fd_.valid()) return NoWindow();
  window->mapping_ = SharedMapping(window->fd_.get());
  if (window->mapping_.empty() || !TakePages(window->mapping_)) return NoWindow();
  if (::getrandom(window->key_.data(), sizeof window->key_, 0) !=
      static_cast<ssize_t>(sizeof window->key_)) {
    return NoWindow();
  }
  std::memcpy(window->mapping_.data(), window->key_.data(), sizeof window->key_);
  window->held_.reserve(kUnits);
  return window;
}

std::string NodeWindow::card() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return "";
  return WindowCard{.pid = static_cast<uint64_t>(::getpid()),
                    .fd = static_cast<uint64_t>(fd_.get()),
                    .device = info.st_dev,
                    .inode = info.st_ino,
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

// The lowest run of free units, so that few of them go in and out of the caches.
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

std::optional<WindowRef> NodeWindow::Share(std::span<const std::byte> message, StoreHint stores) {
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
  CopyBytes(message, UnitAt(mapping_, *first), stores);
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
  const std::optional<WindowCard> card = WindowCard::Unpack(text);
  if (!card || rank < 0 || rank >= NodeWindow::kMaxRanks) return {};
  const Fd fd = OpenMemory(*card);
  PeerWindow window;
  if (!fd.valid()) return window;
  window.mapping_ = SharedMapping(fd.get());
  if (window.empty()) return {};
  std::memcpy(window.key_.data(), window.mapping_.data(), sizeof window.key_);
  if (window.key_ != card->key) return {};
  MappedFlag(window.mapping_, rank).store(1, std::memory_order_release);
  return window;
}

bool PeerWindow::Take(const WindowRef& ref, std::span<std::byte> out, StoreHint stores) const {
  const bool inside = ref.bytes == out.size() && ref.bytes <= NodeWindow::kLongestMessage_bytes &&
                      int64_t{ref.first_unit} + UnitsFor(ref.bytes) <= NodeWindow::kUnits;
  if (!inside) return false;
  // Acquire: the bytes were there when the owner counted this reader.
  Readers& readers = ReadersOf(mapping_, ref.first_unit);
  if (readers.load(std::memory_order_acquire) == 0) return false;
  CopyBytes({UnitAt(mapping_, ref.first_unit), out.size()}, out.data(), stores);
  readers.fetch_sub(1, std::memory_order_release);
  return true;
}

}  // namespace zpp::internal
