// Shared memory between ranks: a memfd that the others open through /proc, so that nothing is left behind after a
// crash.
#include "hccl/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

namespace cann_sim {
namespace {

constexpr char kMagic[16] = "cann_sim hccl 1";
constexpr size_t kHeaderBytes = (sizeof(SegmentHeader) + 4095) / 4096 * 4096;

// FUTEX_WAIT and FUTEX_WAKE without the private flag: the waiters are other processes.
long futex(std::atomic<uint32_t>& word, int op, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op, value, timeout, nullptr, 0);
}

// kill() finds a process that has ended until its parent has reaped it; a pidfd reports it at once, where supported.
bool is_running(int32_t pid) {
  int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ENOSYS ? !kill(pid, 0) || errno != ESRCH : errno != ESRCH;
  pollfd ended{fd, POLLIN, 0};
  bool running = poll(&ended, 1, 0) != 1;
  close(fd);
  return running;
}

}  // namespace

RootRecord Segment::root_of(int32_t pid, int32_t fd, uint64_t nonce) {
  RootRecord root{};
  std::memcpy(root.magic, kMagic, sizeof kMagic);
  root.pid = pid, root.fd = fd, root.nonce = nonce;
  return root;
}

RootRecord Segment::make_root() {
  RootRecord root = root_of(getpid(), memfd_create("cann_sim_hccl", MFD_CLOEXEC), 0);
  if (root.fd < 0 || ftruncate(root.fd, kHeaderBytes))
    throw HcclFailure{HCCL_E_SYSCALL, std::string("no memory file: ") + std::strerror(errno)};
  while (!root.nonce)
    if (getrandom(&root.nonce, sizeof root.nonce, 0) < 0) root.nonce = static_cast<uint64_t>(root.pid) << 32 | root.fd;
  if (pwrite(root.fd, &root.nonce, sizeof root.nonce, offsetof(SegmentHeader, nonce)) != sizeof root.nonce)
    throw HcclFailure{HCCL_E_SYSCALL, std::string("cannot write the memory file: ") + std::strerror(errno)};
  return root;
}

void Segment::close_root(const RootRecord& root) {
  if (root.pid != getpid()) return;
  // Several ranks of one process may get here, and the number may have been reused by then: the nonce tells.
  uint64_t nonce = 0;
  if (pread(root.fd, &nonce, sizeof nonce, offsetof(SegmentHeader, nonce)) == sizeof nonce && nonce == root.nonce)
    close(root.fd);
}

Segment::Segment(const RootRecord& root, uint32_t ranks, uint32_t rank) : ranks_(ranks), rank_(rank) {
  if (std::memcmp(root.magic, kMagic, sizeof kMagic))
    throw HcclFailure{HCCL_E_PARA, "the root info was not made by HcclGetRootInfo"};
  bytes_ = kHeaderBytes + sizeof(Ring) * ranks * ranks;
  std::string path = "/proc/" + std::to_string(root.pid) + "/fd/" + std::to_string(root.fd);
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    throw HcclFailure{HCCL_E_OPEN_FILE_FAILURE, "cannot open " + path + " of the root: " + std::strerror(errno)};
  // After the root has closed it, another file of that process may have the number: it is not to be given a length.
  uint64_t nonce = 0;
  if (pread(fd, &nonce, sizeof nonce, offsetof(SegmentHeader, nonce)) != sizeof nonce || nonce != root.nonce) {
    close(fd);
    throw HcclFailure{HCCL_E_NOT_FOUND, "the root info is stale: its process has closed it"};
  }
  // Every rank gives the file the same length; pages are taken only where a ring is used.
  void* at = ftruncate(fd, static_cast<off_t>(bytes_))
                 ? MAP_FAILED
                 : mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED)
    throw HcclFailure{HCCL_E_MEMORY, std::string("cannot map the ranks' memory: ") + std::strerror(errno)};
  header_ = static_cast<SegmentHeader*>(at);
  uint32_t none = 0;
  if (header_->ranks.compare_exchange_strong(none, ranks) || none == ranks) return;
  munmap(header_, bytes_);
  throw HcclFailure{HCCL_E_PARA, "this rank says that there are " + std::to_string(ranks) + " ranks, another one " +
                                     std::to_string(none)};
}

Segment::~Segment() { munmap(header_, bytes_); }

void Segment::join() {
  Presence expected = Presence::absent;
  header_->slot[rank_].pid.store(getpid());
  if (!header_->slot[rank_].presence.compare_exchange_strong(expected, Presence::joined))
    throw HcclFailure{HCCL_E_PARA, "rank " + std::to_string(rank_) + " has already joined"};
  for (uint32_t r = 0; r < ranks_; ++r) wake(r);
}

template <class There>
bool Segment::wait_until(There there, Deadline deadline) {
  for (uint32_t r = 0; r < ranks_;) {
    uint32_t seen = doorbell();
    if (there(header_->slot[r])) {
      ++r;
    } else if (std::chrono::steady_clock::now() > deadline) {
      return false;
    } else {
      sleep(seen, 50);
    }
  }
  return true;
}

bool Segment::wait_for_all(Deadline deadline) {
  return wait_until([](RankSlot& slot) { return slot.presence.load() != Presence::absent; }, deadline);
}

bool Segment::meet_again(Deadline deadline) {
  const uint32_t mine = ++header_->slot[rank_].meetings;
  for (uint32_t r = 0; r < ranks_; ++r) wake(r);
  const bool met = wait_until([mine](RankSlot& slot) { return slot.meetings.load() >= mine; }, deadline);
  if (!met) --header_->slot[rank_].meetings;  // the next one has the same number on all ranks
  return met;
}

void Segment::leave() {
  header_->slot[rank_].presence.store(Presence::left);
  for (uint32_t r = 0; r < ranks_; ++r) wake(r);
}

void Segment::set_failed(bool failed) {
  header_->slot[rank_].failed = failed;
  for (uint32_t r = 0; r < ranks_; ++r) wake(r);
}

Ring& Segment::ring(uint32_t from, uint32_t to) const {
  char* rings = reinterpret_cast<char*>(header_) + kHeaderBytes;
  return *reinterpret_cast<Ring*>(rings + sizeof(Ring) * (from * ranks_ + to));
}

// The doorbell moves before the sleepers are counted, and a sleeper counts itself before it looks at the doorbell: one
// of the two sees the other, so no wake is lost and an awake rank costs no system call.
void Segment::wake(uint32_t rank) const {
  RankSlot& slot = header_->slot[rank];
  slot.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (slot.sleepers.load(std::memory_order_seq_cst)) futex(slot.doorbell, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Segment::sleep(uint32_t seen, int milliseconds) const {
  RankSlot& slot = header_->slot[rank_];
  for (int spin = 0; spin < 50; ++spin) {  // an answer is often near
    if (slot.doorbell.load(std::memory_order_acquire) != seen) return true;
    std::this_thread::yield();
  }
  timespec timeout{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  slot.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool in_time = futex(slot.doorbell, FUTEX_WAIT, seen, &timeout) == 0 || errno != ETIMEDOUT;
  slot.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return in_time;
}

std::string Segment::gone(uint32_t rank) const {
  const RankSlot& slot = header_->slot[rank];
  if (slot.presence.load() == Presence::left) return "has destroyed the communicator";
  if (slot.failed.load()) return "has failed in a collective";
  int32_t pid = slot.pid.load();
  return !pid || is_running(pid) ? "" : "is no longer running (process " + std::to_string(pid) + ")";
}

}  // namespace cann_sim
