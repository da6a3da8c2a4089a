// The caching allocator: size classes, one shared pool under a mutex, and a cache of small blocks for each thread.
#include "allocator.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

namespace mt {
namespace {

// Size classes: multiples of 64 up to 1 KiB, then 8 per power of two, so that at most 1/9 of a larger block is waste.
constexpr int kFineClasses = 16, kPerPower = 8;
constexpr size_t kLimit = size_t(1) << 62;      // larger requests are refused without asking the system
constexpr int kClasses = kFineClasses + (62 - 10) * kPerPower;
constexpr int kSmallClasses = kFineClasses + 6 * kPerPower;  // up to 64 KiB: cached by each thread
constexpr size_t kHugePage = size_t(2) << 20;   // blocks from here on are mapped, on huge pages
constexpr int64_t kThreadBytes = 4 << 20;       // cached by one thread at most
constexpr int64_t kThreadClassBytes = 256 << 10;
constexpr int64_t kMergeBytes = 1 << 20;        // a thread keeps its count of bytes to itself up to here

inline int class_of(size_t bytes) {
  size_t n = bytes - (bytes != 0);
  if (n < 1024) return int(n >> 6);
  int e = 63 - __builtin_clzll(n);
  return kFineClasses + (e - 10) * kPerPower + int((n >> (e - 3)) & 7);
}
inline size_t class_bytes(int c) {
  if (c < kFineClasses) return size_t(c + 1) * 64;
  c -= kFineClasses;
  return size_t(9 + c % kPerPower) << (7 + c / kPerPower);
}

// ---- the system ------------------------------------------------------------------------------------------
void* map_huge(size_t size) {
  char* p = static_cast<char*>(mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (p == MAP_FAILED) return nullptr;
  size_t before = size_t(-reinterpret_cast<uintptr_t>(p)) & (kHugePage - 1);
  if (before) munmap(p, before);
  munmap(p + before + size, kHugePage - before);
#ifdef MADV_HUGEPAGE
  madvise(p + before, size, MADV_HUGEPAGE);
#endif
  return p + before;
}
void* system_allocate(size_t size) {
  if (size >= kHugePage) return map_huge(size);
  void* p = nullptr;
  return posix_memalign(&p, 64, size) == 0 ? p : nullptr;
}
void system_release(void* p, size_t size) {
  if (size >= kHugePage) munmap(p, size);
  else free(p);
}

// ---- free lists: the link lies in the first bytes of the free block --------------------------------------------
struct Block {
  Block* next;
};
struct List {
  Block* head = nullptr;
  int64_t count = 0;
  void push(void* p) {
    head = new (p) Block{head};
    ++count;
  }
  void* pop() {
    Block* b = head;
    if (b) {
      head = b->next;
      --count;
    }
    return b;
  }
};

// A counter written by one thread and read by all: no locked instruction needed.
struct Counter {
  std::atomic<int64_t> value{0};
  int64_t get() const { return value.load(std::memory_order_relaxed); }
  void set(int64_t v) { value.store(v, std::memory_order_relaxed); }
  void add(int64_t v) { set(get() + v); }
};

struct ThreadCache {
  List lists[kSmallClasses];
  Counter cached, allocated, highest, allocations, hits;  // since the last merge into the pool, but for `cached`
  ThreadCache *next = nullptr, *previous = nullptr;

  void count(int64_t bytes) {
    int64_t now = allocated.get() + bytes;
    allocated.set(now);
    if (now > highest.get()) highest.set(now);
  }
};

// ---- the shared pool -------------------------------------------------------------------------------------------
// Constant-initialised and never destroyed: tensors may be released during static destruction.
struct Pool {
  std::mutex mutex;
  List lists[kClasses];
  uint64_t used[kClasses] = {};  // tick of the last release into each class, to evict the stalest class first
  uint64_t tick = 0;
  int64_t bound = 0, cached = 0, reserved = 0, peak_reserved = 0;
  int64_t allocated = 0, peak_allocated = 0, allocations = 0, hits = 0;
  ThreadCache* threads = nullptr;
} pool;

thread_local ThreadCache* mine = nullptr;
thread_local bool exiting = false;  // this thread's cache is gone; destructors that run later use the pool

// The following need pool.mutex.
void merge_counts(ThreadCache& t) {
  pool.peak_allocated = std::max(pool.peak_allocated, pool.allocated + t.highest.get());
  pool.allocated += t.allocated.get();
  pool.allocations += t.allocations.get();
  pool.hits += t.hits.get();
  t.allocated.set(0);
  t.highest.set(0);
  t.allocations.set(0);
  t.hits.set(0);
}
void unlink(ThreadCache& t) {
  (t.previous ? t.previous->next : pool.threads) = t.next;
  if (t.next) t.next->previous = t.previous;
}
int stalest_class() {
  int found = -1;
  for (int c = 0; c < kClasses; ++c)
    if (pool.lists[c].head && (found < 0 || pool.used[c] < pool.used[found])) found = c;
  return found;
}

// Blocks on their way back to the system, which is called after the lock was given up.
struct Doomed {
  Block* head = nullptr;
  void add(void* p, int c) { head = new (p) DoomedBlock{{head}, c}; }
  ~Doomed() {
    while (head) {
      auto* b = static_cast<DoomedBlock*>(head);
      head = b->next;
      system_release(b, class_bytes(b->c));
    }
  }

 private:
  struct DoomedBlock : Block {
    int c;
    DoomedBlock(Block base, int size_class) : Block(base), c(size_class) {}
  };
};

void evict(int64_t target, Doomed& doomed) {
  while (pool.cached > target) {
    int c = stalest_class();
    int64_t size = int64_t(class_bytes(c));
    while (pool.cached > target) {
      void* p = pool.lists[c].pop();
      if (!p) break;
      doomed.add(p, c);
      pool.cached -= size;
      pool.reserved -= size;
    }
  }
}
void put(void* p, int c) {
  pool.lists[c].push(p);
  pool.used[c] = ++pool.tick;
  pool.cached += int64_t(class_bytes(c));
}
void move_to_pool(ThreadCache& t, int c, int64_t keep) {
  while (t.lists[c].count > keep) {
    put(t.lists[c].pop(), c);
    t.cached.add(-int64_t(class_bytes(c)));
  }
}
void flush(ThreadCache& t) {
  for (int c = 0; c < kSmallClasses; ++c) move_to_pool(t, c, 0);
}

int64_t cache_bound() {
  int64_t physical = int64_t(sysconf(_SC_PHYS_PAGES)) * int64_t(sysconf(_SC_PAGESIZE));
  return std::min(std::max<int64_t>(physical / 4, 64 << 20), int64_t(4) << 30);
}

// ---- threads and forks ---------------------------------------------------------------------------------------
struct Reaper {
  ~Reaper() {
    exiting = true;
    ThreadCache* t = mine;
    mine = nullptr;
    if (!t) return;
    Doomed doomed;
    {
      std::lock_guard<std::mutex> lock(pool.mutex);
      flush(*t);
      evict(pool.bound, doomed);
      merge_counts(*t);
      unlink(*t);
    }
    delete t;
  }
};

// The child keeps only the forking thread. The lists of the others may have been cut in the middle of a step, so
// their few blocks are given up; their counts still hold.
void child_after_fork() {
  for (ThreadCache* t = pool.threads; t; t = t->next)
    if (t != mine) {
      merge_counts(*t);
      pool.reserved -= t->cached.get();
      unlink(*t);
    }
  new (&pool.mutex) std::mutex();
}

ThreadCache* make_thread_cache() {
  static bool registered =
      pthread_atfork([] { pool.mutex.lock(); }, [] { pool.mutex.unlock(); }, child_after_fork) == 0;
  (void)registered;
  static thread_local Reaper reaper;
  (void)&reaper;
  auto* t = new ThreadCache;
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (pool.bound == 0) pool.bound = cache_bound();
  t->next = pool.threads;
  if (t->next) t->next->previous = t;
  pool.threads = t;
  return mine = t;
}

// ---- the slow paths ------------------------------------------------------------------------------------------
void count_block(ThreadCache* t, int64_t size, bool hit) {
  if (t) merge_counts(*t);
  pool.allocated += size;
  pool.peak_allocated = std::max(pool.peak_allocated, pool.allocated);
  pool.allocations += size > 0;
  pool.hits += hit;
}

__attribute__((noinline)) void* allocate_slow(int c) {
  int64_t size = int64_t(class_bytes(c));
  ThreadCache* t = mine ? mine : exiting ? nullptr : make_thread_cache();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (void* p = pool.lists[c].pop()) {
      pool.cached -= size;
      count_block(t, size, true);
      return p;
    }
  }
  void* p = system_allocate(size_t(size));
  if (!p) {
    empty_cache();
    p = system_allocate(size_t(size));
    if (!p) throw std::bad_alloc();
  }
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.reserved += size;
  pool.peak_reserved = std::max(pool.peak_reserved, pool.reserved);
  count_block(t, size, false);
  return p;
}

__attribute__((noinline)) void release_slow(void* p, int c) {
  int64_t size = int64_t(class_bytes(c));
  ThreadCache* t = mine ? mine : exiting ? nullptr : make_thread_cache();
  Doomed doomed;
  std::lock_guard<std::mutex> lock(pool.mutex);
  count_block(t, -size, false);
  if (size > pool.bound) {  // would push everything else out
    doomed.add(p, c);
    pool.reserved -= size;
    return;
  }
  put(p, c);
  if (t && c < kSmallClasses) {
    if (t->cached.get() > kThreadBytes - kThreadClassBytes) flush(*t);
    else move_to_pool(*t, c, t->lists[c].count / 2);
  }
  evict(pool.bound, doomed);
}

// A few blocks even of the largest small class.
inline int64_t room(int64_t size) { return std::min<int64_t>(kThreadClassBytes / size, 64); }

}  // namespace

void* allocate(size_t bytes) {
  if (bytes >= kLimit) throw std::bad_alloc();
  int c = class_of(bytes);
  ThreadCache* t = mine;
  if (c < kSmallClasses && t) {
    int64_t size = int64_t(class_bytes(c));
    if (void* p = t->lists[c].pop()) {
      t->cached.add(-size);
      t->allocations.add(1);
      t->hits.add(1);
      t->count(size);
      if (t->allocated.get() < kMergeBytes) return p;
      std::lock_guard<std::mutex> lock(pool.mutex);
      merge_counts(*t);
      return p;
    }
  }
  return allocate_slow(c);
}

void release(void* p, size_t bytes) {
  if (!p) return;
  int c = class_of(bytes);
  ThreadCache* t = mine;
  if (c < kSmallClasses && t) {
    int64_t size = int64_t(class_bytes(c)), now = t->allocated.get() - size;
    if (t->lists[c].count < room(size) && t->cached.get() + size <= kThreadBytes && now > -kMergeBytes) {
      t->lists[c].push(p);
      t->cached.add(size);
      t->allocated.set(now);
      return;
    }
  }
  release_slow(p, c);
}

void empty_cache() {
  Doomed doomed;
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (mine) flush(*mine);
  evict(0, doomed);
}

void allocator_stats(AllocatorStats* out) {
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (mine) merge_counts(*mine);
  *out = {pool.allocated, 0, pool.reserved, pool.peak_reserved, pool.cached, pool.allocations, pool.hits};
  for (ThreadCache* t = pool.threads; t; t = t->next) {
    out->allocated_bytes += t->allocated.get();
    out->cached_bytes += t->cached.get();
    out->allocations += t->allocations.get();
    out->cache_hits += t->hits.get();
  }
  pool.peak_allocated = std::max(pool.peak_allocated, out->allocated_bytes);
  out->peak_allocated_bytes = pool.peak_allocated;
}

}  // namespace mt
