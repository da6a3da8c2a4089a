// The memory that the ranks of one communicator share: who is there, a doorbell for each, a ring for each pair.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "structs.h"

namespace cann_sim {

struct HcclFailure {
  int code;
  std::string message;
};

constexpr uint32_t kMaxRanks = 128;
constexpr size_t kRingBytes = 512 * 1024;
constexpr size_t kAlign = 32;  // messages begin and end on this boundary, so that no element is split by the ring's end

enum class Presence : uint32_t { absent, joined, left };

// A FIFO of bytes from one rank to another. Only the writer moves `written`, only the reader moves `read`.
struct Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(4096) char data[kRingBytes];
  void empty() { read = 0, written = 0; }  // while neither side uses it
};

struct RankSlot {
  std::atomic<Presence> presence;
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> doorbell, sleepers;
  std::atomic<uint32_t> meetings;  // that the rank has come to since it joined
  std::atomic<uint32_t> failed;    // 1: a collective of the rank has failed, and it takes no part until all resume
};

// Where the members of a sub-communicator find its segment.
struct SubSlot {
  std::atomic<uint64_t> key;  // 0: free
  std::atomic<int32_t> pid, fd;
  std::atomic<uint64_t> nonce;
};

struct SegmentHeader {
  std::atomic<uint64_t> nonce;
  std::atomic<uint32_t> ranks;  // 0 until the first rank joins
  RankSlot slot[kMaxRanks];
  SubSlot sub[256];
};

// What HcclRootInfo carries: the segment's file in the process that made it.
struct RootRecord {
  char magic[16];
  int32_t pid, fd;
  uint64_t nonce;
};

using Deadline = std::chrono::steady_clock::time_point;

class Segment {
 public:
  // Makes the file of a segment; it stays open in this process until close_root().
  static RootRecord make_root();
  static void close_root(const RootRecord& root);
  static RootRecord root_of(int32_t pid, int32_t fd, uint64_t nonce);
  // Maps the segment for one rank. Throws HcclFailure.
  Segment(const RootRecord& root, uint32_t ranks, uint32_t rank);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void join();
  bool wait_for_all(Deadline deadline);  // false: a rank did not arrive
  bool meet_again(Deadline deadline);    // all ranks that have joined; false: one did not come
  void leave();
  void set_failed(bool failed);

  Ring& ring(uint32_t from, uint32_t to) const;
  SegmentHeader& header() const { return *header_; }
  uint32_t doorbell() const { return header_->slot[rank_].doorbell.load(std::memory_order_seq_cst); }
  void wake(uint32_t rank) const;
  // Until this rank's doorbell is no longer `seen`; false: it was not rung in time.
  bool sleep(uint32_t seen, int milliseconds) const;
  // Why nothing more will come from the rank, or an empty string.
  std::string gone(uint32_t rank) const;

 private:
  SegmentHeader* header_ = nullptr;
  size_t bytes_ = 0;
  template <class There>
  bool wait_until(There there, Deadline deadline);  // there(slot) of every rank
  uint32_t ranks_, rank_;
};

}  // namespace cann_sim
