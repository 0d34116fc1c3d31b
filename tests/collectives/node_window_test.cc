// The memory that ranks of a node share, both sides of it in one process.
#include "collectives/transport/internal/node_window.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace zpp::internal {
namespace {

using Bytes = std::vector<std::byte>;

constexpr size_t kLeast = NodeWindow::kLeastMessage_bytes;
constexpr size_t kLongest = NodeWindow::kLongestMessage_bytes;
constexpr size_t kUnit = NodeWindow::kUnit_bytes;

Bytes Message(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes message(bytes);
  for (std::byte& b : message) b = static_cast<std::byte>(random());
  return message;
}

class NodeWindowTest : public testing::Test {
 protected:
  void SetUp() override {
    window_ = NodeWindow::Create();
    ASSERT_NE(window_, nullptr);
    peer_ = PeerWindow::Open(window_->card(), 1);
    ASSERT_FALSE(peer_.empty());
  }
  std::optional<WindowRef> Share(std::span<const std::byte> message) {
    return window_->Share(message, StoreHint::kAuto);
  }
  Bytes Take(const WindowRef& ref) {
    Bytes out(ref.bytes);
    EXPECT_TRUE(peer_.Take(ref, out, StoreHint::kAuto));
    return out;
  }

  std::unique_ptr<NodeWindow> window_;
  PeerWindow peer_;
};

TEST_F(NodeWindowTest, AMessageArrivesWhole) {
  for (const size_t bytes :
       {kLeast, kLeast + 1, kUnit - 1, kUnit, kUnit + 1, kLongest - 1, kLongest}) {
    for (const size_t offset : {0, 1, 33}) {
      for (const StoreHint stores : {StoreHint::kAuto, StoreHint::kStream}) {
        const Bytes message = Message(bytes + offset, static_cast<unsigned>(bytes));
        const std::span<const std::byte> sent = std::span(message).subspan(offset);
        const auto ref = window_->Share(sent, stores);
        ASSERT_TRUE(ref.has_value()) << bytes;
        window_->EndBatch();
        Bytes out(offset + bytes + 1, std::byte{0x5a});
        ASSERT_TRUE(peer_.Owns(*ref));
        ASSERT_TRUE(peer_.Take(*ref, std::span(out).subspan(offset, bytes), stores));
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), out.begin() + static_cast<long>(offset)));
        EXPECT_EQ(out.back(), std::byte{0x5a});
      }
    }
  }
}

TEST_F(NodeWindowTest, OtherSizesGoAnotherWay) {
  const Bytes message = Message(kLongest + 1, 1);
  for (const size_t bytes : {size_t{0}, size_t{32}, kLeast - 1, kLongest + 1}) {
    EXPECT_FALSE(Share(std::span(message).first(bytes)).has_value()) << bytes;
  }
}

TEST_F(NodeWindowTest, OneCopyServesAllReadersOfABatch) {
  const Bytes message = Message(kUnit, 2);
  const auto first = Share(message);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(Take(*first), message);  // before the second reader is known
  const auto second = Share(message);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->first_unit, first->first_unit);
  window_->EndBatch();
  // One reader is left: the next message must lie elsewhere.
  const Bytes next = Message(kUnit, 3);
  const auto elsewhere = Share(next);
  ASSERT_TRUE(elsewhere.has_value());
  EXPECT_NE(elsewhere->first_unit, first->first_unit);
  EXPECT_EQ(Take(*second), message);
  EXPECT_EQ(Take(*elsewhere), next);
}

TEST_F(NodeWindowTest, ANewBatchCopiesAnew) {
  Bytes message = Message(kUnit, 4);
  const auto before = Share(message);
  window_->EndBatch();
  const Bytes was = message;
  message = Message(kUnit, 5);
  const auto after = Share(message);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(Take(*before), was);
  EXPECT_EQ(Take(*after), message);
}

// Until there is no room; nothing that waits to be read is written over; then all over again.
TEST_F(NodeWindowTest, AFullWindowRefusesAndRecovers) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Bytes> messages;
    std::vector<WindowRef> refs;
    for (unsigned i = 0;; ++i) {
      messages.push_back(Message(kUnit + 1, i));  // two units
      const auto ref = Share(messages.back());
      window_->EndBatch();
      if (!ref) break;
      refs.push_back(*ref);
    }
    ASSERT_EQ(refs.size(), NodeWindow::kUnits / 2u) << round;
    for (size_t i = 0; i < refs.size(); ++i) EXPECT_EQ(Take(refs[i]), messages[i]);
  }
}

// Free, but not in one piece.
TEST_F(NodeWindowTest, HolesTakeWhatFits) {
  const Bytes message = Message(2 * kUnit, 6);
  std::vector<WindowRef> refs;
  for (int i = 0; i < NodeWindow::kUnits; ++i) {
    const auto ref = Share(std::span(message).first(kUnit));
    ASSERT_TRUE(ref.has_value());
    window_->EndBatch();
    refs.push_back(*ref);
  }
  for (size_t i = 0; i < refs.size(); i += 2) (void)Take(refs[i]);
  EXPECT_FALSE(Share(message).has_value());
  EXPECT_TRUE(Share(std::span(message).first(kUnit)).has_value());
}

TEST_F(NodeWindowTest, TheOwnerKnowsWhoHasMappedIt) {
  EXPECT_FALSE(window_->MappedBy(0));
  EXPECT_TRUE(window_->MappedBy(1));
  EXPECT_FALSE(window_->MappedBy(2));
}

TEST_F(NodeWindowTest, DamagedReferencesAreRefused) {
  const Bytes message = Message(kUnit, 7);
  const auto ref = Share(message);
  ASSERT_TRUE(ref.has_value());
  Bytes out(kLongest + kUnit);
  const auto takes = [&](WindowRef damaged, size_t room) {
    return peer_.Take(damaged, std::span(out).first(room), StoreHint::kAuto);
  };
  WindowRef other = *ref;
  other.key[1] ^= 1;
  EXPECT_FALSE(peer_.Owns(other));
  EXPECT_FALSE(takes(*ref, kUnit - 1));
  EXPECT_FALSE(takes(*ref, kUnit + 1));
  for (const uint32_t unit : {64u, 65u, 0x7fffffffu, 0xffffffffu}) {
    other = *ref;
    other.first_unit = unit;
    EXPECT_FALSE(takes(other, kUnit)) << unit;
  }
  other = *ref;
  other.first_unit = NodeWindow::kUnits - 1;
  other.bytes = kUnit + 1;
  EXPECT_FALSE(takes(other, kUnit + 1));
  other.first_unit = 0;
  other.bytes = kLongest + kUnit;
  EXPECT_FALSE(takes(other, kLongest + kUnit));
  other = *ref;
  other.first_unit = ref->first_unit + 1;  // nothing begins there
  EXPECT_FALSE(takes(other, kUnit));
  // None of these has let go of the message; a second reading is one too many.
  window_->EndBatch();
  const Bytes next = Message(kUnit, 10);
  const auto elsewhere = Share(next);
  ASSERT_TRUE(elsewhere.has_value());
  EXPECT_NE(elsewhere->first_unit, ref->first_unit);
  EXPECT_EQ(Take(*ref), message);
  EXPECT_FALSE(takes(*ref, kUnit));
}

// It would keep the memory of a job that has ended.
TEST_F(NodeWindowTest, AForkedChildHasNothingOfIt) {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("zpp-window") != line.npos;
    return count;
  };
  ASSERT_GE(mappings(), 2);
  const pid_t child = ::fork();
  if (child == 0) {
    window_.reset();
    peer_ = {};
    ::_exit(mappings());
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NodeWindowTest, OnlyTheVeryMemoryOfTheCardIsMapped) {
  const std::string card = window_->card();
  for (const std::string& bad : {std::string(), std::string("x"), card.substr(0, card.size() - 1),
                                 card + "x", std::string(card.size(), '\xff')}) {
    EXPECT_TRUE(PeerWindow::Open(bad, 1).empty());
  }
  for (const int rank : {-1, NodeWindow::kMaxRanks, 1 << 30})
    EXPECT_TRUE(PeerWindow::Open(card, rank).empty());
  std::string forged = card;  // the very file, another key
  forged.back() = static_cast<char>(forged.back() ^ 1);
  EXPECT_TRUE(PeerWindow::Open(forged, 2).empty());
  EXPECT_FALSE(window_->MappedBy(2));
  // The same numbers, once the descriptor is closed and once it is something else's.
  window_->CloseDescriptor();
  EXPECT_TRUE(PeerWindow::Open(card, 2).empty());
  std::vector<std::unique_ptr<NodeWindow>> others;
  for (int i = 0; i < 8; ++i) others.push_back(NodeWindow::Create());
  EXPECT_TRUE(PeerWindow::Open(card, 2).empty());
  EXPECT_FALSE(window_->MappedBy(2));
  // What was mapped before stays.
  const Bytes message = Message(kUnit, 8);
  const auto ref = Share(message);
  ASSERT_TRUE(ref.has_value());
  EXPECT_EQ(Take(*ref), message);
}

// A peer that cut the memory short would kill its owner with SIGBUS.
TEST_F(NodeWindowTest, NobodyCanResizeIt) {
  for (int fd = 0; fd < 256; ++fd) {
    std::vector<char> target(256, '\0');
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), target.data(), target.size() - 1) < 0) continue;
    if (std::string(target.data()).find("zpp-window") == std::string::npos) continue;
    EXPECT_NE(::ftruncate(fd, 0), 0);
    EXPECT_NE(::ftruncate(fd, 1 << 30), 0);
    return;
  }
  FAIL() << "no descriptor of the window was found";
}

// An owner that is gone takes nothing from under those who still read.
TEST_F(NodeWindowTest, OutlivesItsOwner) {
  const Bytes message = Message(kUnit, 9);
  const auto ref = Share(message);
  ASSERT_TRUE(ref.has_value());
  window_.reset();
  EXPECT_EQ(Take(*ref), message);
}

}  // namespace
}  // namespace zpp::internal
