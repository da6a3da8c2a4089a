// The progress of messages over rings: every piece of a phase moves as far as it can, then the rank sleeps at its
// doorbell.
#include "hccl/transfer.h"

#include <algorithm>
#include <cstring>

#include "runtime/runtime.h"

namespace cann_sim {
namespace {

constexpr int kIdleMs = 50;  // after waiting for so long, a rank checks which others are alive
constexpr const char* kOps[] = {"HcclAllReduce",  "HcclBroadcast",     "HcclReduce",         "HcclAllGather",
                                "HcclAllGatherV", "HcclReduceScatter", "HcclReduceScatterV", "HcclScatter",
                                "HcclAlltoAll",   "HcclAlltoAllV",     "HcclAlltoAllVC",     "HcclSend or HcclRecv",
                                "HcclBarrier"};

size_t padded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class Transfer {
 public:
  Transfer(const Exchange& exchange, const Piece& piece, char* at)
      : exchange_(exchange),
        piece_(piece),
        at_(at),
        sends_(piece.move == Move::send),
        ring_(sends_ ? exchange.segment.ring(exchange.rank, piece.peer)
                     : exchange.segment.ring(piece.peer, exchange.rank)) {}

  // The transfer before this one on the same ring; and, for reductions, the one whose bytes are added first, so that
  // sums do not depend on who is fast.
  const Transfer* same_ring = nullptr;
  const Transfer* added_first = nullptr;

  bool done() const { return framed_ && moved_ == padded(piece_.bytes); }
  uint32_t peer() const { return piece_.peer; }
  bool sends() const { return sends_; }
  bool reduces() const { return piece_.move == Move::reduce; }

  bool step() {  // whether anything moved
    if (done() || (same_ring && !same_ring->done())) return false;
    bool moved = sends_ ? push() : pull();
    if (moved) exchange_.segment.wake(piece_.peer);
    return moved;
  }

 private:
  bool push() {
    uint64_t written = ring_.written.load(std::memory_order_relaxed);
    size_t room = kRingBytes - (written - ring_.read.load(std::memory_order_acquire));
    bool moved = false;
    if (!framed_ && room >= sizeof(Frame)) {
      Frame frame = exchange_.frame;
      frame.bytes = piece_.bytes;
      std::memcpy(ring_.data + written % kRingBytes, &frame, sizeof frame);
      written += sizeof frame, room -= sizeof frame;
      framed_ = moved = true;
    }
    while (framed_ && room && moved_ < padded(piece_.bytes)) {
      size_t at = written % kRingBytes, n = std::min({room, kRingBytes - at, padded(piece_.bytes) - moved_});
      if (moved_ < piece_.bytes) std::memcpy(ring_.data + at, at_ + moved_, std::min(n, piece_.bytes - moved_));
      written += n, room -= n, moved_ += n;
      moved = true;
    }
    if (moved) ring_.written.store(written, std::memory_order_release);
    return moved;
  }

  bool pull() {
    uint64_t read = ring_.read.load(std::memory_order_relaxed);
    size_t there = ring_.written.load(std::memory_order_acquire) - read;
    bool moved = false;
    if (!framed_ && there >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, ring_.data + read % kRingBytes, sizeof frame);
      check(frame);
      read += sizeof frame, there -= sizeof frame;
      framed_ = moved = true;
    }
    size_t limit = padded(piece_.bytes);
    if (added_first) limit = std::min(limit, added_first->moved_);
    while (framed_ && there && moved_ < limit) {
      size_t at = read % kRingBytes, n = std::min({there, kRingBytes - at, limit - moved_});
      size_t useful = moved_ < piece_.bytes ? std::min(n, piece_.bytes - moved_) : 0;
      if (reduces()) exchange_.reduce(at_ + moved_, ring_.data + at, useful / exchange_.element);
      else if (useful) std::memcpy(at_ + moved_, ring_.data + at, useful);
      read += n, there -= n, moved_ += n;
      moved = true;
    }
    if (moved) ring_.read.store(read, std::memory_order_release);
    return moved;
  }

  void check(const Frame& frame) const {
    if (frame.op == exchange_.frame.op && frame.dtype == exchange_.frame.dtype && frame.bytes == piece_.bytes) return;
    throw DeviceFault(ACL_ERROR_RT_AICPU_EXCEPTION,
                      std::string(exchange_.name) + ": rank " + std::to_string(exchange_.rank) + " expects " +
                          std::to_string(piece_.bytes) + " bytes of data type " +
                          std::to_string(exchange_.frame.dtype) + " from rank " + std::to_string(piece_.peer) +
                          ", which sends " + std::to_string(frame.bytes) + " of data type " +
                          std::to_string(frame.dtype) + " in " + op_name(frame.op));
  }

  const Exchange& exchange_;
  const Piece& piece_;
  char* at_;
  bool sends_, framed_ = false;
  Ring& ring_;
  size_t moved_ = 0;
};

void link(std::vector<Transfer>& transfers) {
  const Transfer* reducing = nullptr;
  for (size_t i = 0; i < transfers.size(); ++i) {
    Transfer& t = transfers[i];
    for (size_t k = 0; k < i; ++k)
      if (transfers[k].peer() == t.peer() && transfers[k].sends() == t.sends()) t.same_ring = &transfers[k];
    if (t.reduces()) t.added_first = reducing, reducing = &t;
  }
}

// Nothing moved: sleeps, or says why nothing ever will.
void wait(const Exchange& x, const std::vector<Transfer>& transfers, uint32_t seen, bool* warned) {
  auto fault = [&](int code, const std::string& why) { throw DeviceFault(code, std::string(x.name) + ": " + why); };
  if (x.aborted.load(std::memory_order_acquire))
    fault(ACL_ERROR_RT_STREAM_ABORT, "the communicator was destroyed or suspended");
  if (interrupted()) fault(ACL_ERROR_RT_STREAM_ABORT, "the stream was aborted");
  if (x.segment.sleep(seen, kIdleMs)) return;
  for (const Transfer& t : transfers) {
    std::string gone = t.done() ? "" : x.segment.gone(t.peer());
    if (gone.empty()) continue;
    // What a rank sent before it went is still in its ring: it is final only when nothing moves at a second look.
    if (*warned) fault(ACL_ERROR_RT_LINK_ERROR, "rank " + std::to_string(t.peer()) + " " + gone);
    *warned = true;
    return;
  }
  if (std::chrono::steady_clock::now() > x.deadline)
    fault(ACL_ERROR_RT_AICPU_TIMEOUT, "rank " + std::to_string(x.rank) + " waited longer than HCCL_EXEC_TIMEOUT");
}

}  // namespace

uint32_t op_number(const char* name) {
  for (uint32_t i = 0; i < std::size(kOps); ++i)
    if (!std::strcmp(kOps[i], name)) return i;
  uint32_t number = std::size(kOps);  // an op that communicates: ranks in different ops must not take each other's bytes
  for (const char* c = name; *c; ++c) number = number * 31 + static_cast<unsigned char>(*c);
  return number | 0x10000u;
}

const char* op_name(uint32_t number) { return number < std::size(kOps) ? kOps[number] : "another op"; }

void run_phase(const Exchange& exchange, const Phase& phase, const std::function<void*(void*, size_t)>& resolve) {
  std::vector<Transfer> transfers;
  transfers.reserve(phase.size());
  for (const Piece& piece : phase) {
    char* at = static_cast<char*>(resolve(piece.at, piece.bytes));
    if (piece.move != Move::copy) transfers.emplace_back(exchange, piece, at);
    else if (piece.bytes) std::memmove(at, resolve(const_cast<void*>(piece.from), piece.bytes), piece.bytes);
  }
  link(transfers);
  bool warned = false;
  for (;;) {
    uint32_t seen = exchange.segment.doorbell();
    bool moved = false, all = true;
    for (Transfer& t : transfers) moved |= t.step(), all &= t.done();
    if (all) return;
    if (moved) warned = false;
    else wait(exchange, transfers, seen, &warned);
  }
}

}  // namespace cann_sim
