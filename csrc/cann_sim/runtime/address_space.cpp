// The addresses of device memory: one reserved range for clients, its twin for the workers, and who has which part.
#include <sys/mman.h>

#include "runtime/memory.h"

namespace cann_sim {
namespace {

constexpr uint64_t kGap = 64 << 10;           // never readable, between any two blocks
constexpr uint64_t kLeast = 256ull << 30, kMost = 8192ull << 30;

struct Space {
  Range client;
  std::mutex mutex;
  std::map<uintptr_t, uint64_t> taken;        // base: size, gap included
  std::map<uintptr_t, uint64_t> lost;         // see take_back()
  uintptr_t cursor;                           // addresses are handed out upwards, so that freed ones are reused late

  Space() {
    const Settings& set = settings();
    // Allocators with expandable segments reserve more than a device's memory, once for every stream and size of blocks.
    uint64_t size = std::min(kMost, std::max(kLeast, round_up(16 * set.memory * set.devices, 1ull << 30)));
    // The twin lies right behind. A host with little address space gives less.
    for (void* p = MAP_FAILED; p == MAP_FAILED; size /= 2) {
      if (size < (1ull << 30)) throw std::bad_alloc();   // the next use tries again
      p = mmap(nullptr, 2 * size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) continue;
      madvise(p, 2 * size + kHugePage, MADV_DONTFORK);
      client.base = round_up(reinterpret_cast<uintptr_t>(p), kHugePage);
      client.size = size;
    }
    cursor = client.base;
  }

  // The lowest free run at or above `from`; 0: none.
  uintptr_t search(uintptr_t from, uint64_t size, uint64_t alignment) {
    uintptr_t at = round_up(from, alignment), end = client.base + client.size;
    auto next = taken.upper_bound(at);
    if (next != taken.begin()) {
      auto before = std::prev(next);
      at = std::max(at, round_up(before->first + before->second, alignment));
    }
    while (at + size <= end) {
      if (next == taken.end() || at + size <= next->first) return at;
      at = round_up(next->first + next->second, alignment);
      ++next;
    }
    return 0;
  }
};

Space& space() {
  static Space& one = *new Space;
  return one;
}

// Other pages behind the workers' addresses; false: the host has reached a limit.
bool remap(uintptr_t client, uint64_t size, int protection, int flags, int file, uint64_t offset) {
  void* at = worker_address(reinterpret_cast<void*>(client));
  if (!(flags & MAP_FIXED_NOREPLACE)) flags |= MAP_FIXED;
  void* p = mmap(at, size, protection, MAP_NORESERVE | flags, file, static_cast<off_t>(offset));
  if (p == MAP_FAILED) return false;
  madvise(at, size, MADV_DONTFORK);
  return true;
}

}  // namespace

const Range& client_range() { return space().client; }

char* worker_address(const void* client) {
  return const_cast<char*>(static_cast<const char*>(client)) + space().client.size;
}

uintptr_t take_addresses(uint64_t size, uint64_t alignment, uintptr_t wanted) {
  Space& s = space();
  std::lock_guard<std::mutex> hold(s.mutex);
  uint64_t whole = round_up(size, kPage) + kGap;
  if (wanted && wanted % kPage == 0 && s.client.owns(reinterpret_cast<void*>(wanted)) &&
      s.search(wanted, whole, kPage) == wanted) {
    s.taken[wanted] = whole;
    return wanted;
  }
  uintptr_t at = s.search(s.cursor, whole, alignment);
  if (!at) at = s.search(s.client.base, whole, alignment);
  if (!at) return 0;
  s.taken[at] = whole;
  s.cursor = at + whole;
  return at;
}

void give_addresses(uintptr_t base) {
  Space& s = space();
  std::lock_guard<std::mutex> hold(s.mutex);
  auto lost = s.lost.lower_bound(base);
  auto block = s.taken.find(base);
  bool whole = lost == s.lost.end() || block == s.taken.end() || lost->first >= base + block->second;
  if (whole) s.taken.erase(base);
}

bool back_with_memory(uintptr_t client, uint64_t size) {
  if (!remap(client, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) return false;
  if (size >= kHugePage) madvise(worker_address(reinterpret_cast<void*>(client)), size, MADV_HUGEPAGE);
  return true;
}

bool back_with_file(uintptr_t client, uint64_t size, int file, uint64_t offset) {
  return remap(client, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
}

void give_pages(uintptr_t client, uint64_t size) {
  madvise(worker_address(reinterpret_cast<void*>(client)), size, MADV_DONTNEED);
}

void take_back(uintptr_t client, uint64_t size) {
  if (remap(client, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) return;
  // A process at the host's limit of mappings cannot exchange one, but it can end one and then make another. Should
  // someone else take the addresses in between, back_with_memory() would destroy his mapping: they are not used again.
  void* at = worker_address(reinterpret_cast<void*>(client));
  munmap(at, size);
  if (remap(client, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)) return;
  Space& s = space();
  std::lock_guard<std::mutex> hold(s.mutex);
  s.lost[client] = size;
}

}  // namespace cann_sim
