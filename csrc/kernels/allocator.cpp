// The caching allocator: size classes, one shared pool under a mutex, and a cache of small blocks for each thread.
// Where memory goes when it is released, and how it comes back: the thread's list of its size class (up to 64 KiB), the
// pool's list of that class, and for larger blocks the free ranges, where neighbours merge and any size is cut from.
// How much stays is decided in one place, `allowed`: it follows the live memory of the last seconds. What was not needed
// for one window is returned to the system, by a thread that exists only while there is something to wait for.
#include "allocator.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/sysinfo.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "memory_limit.h"
#include "poison.h"
#include "ranges.h"

namespace mt {
namespace {

// Size classes: multiples of 64 up to 1 KiB, then 8 per power of two, so that at most 1/9 of a larger block is waste.
constexpr int kFineClasses = 16, kPerPower = 8;
constexpr size_t kLimit = size_t(1) << 62;      // larger requests are refused without asking the system
constexpr int kClasses = kFineClasses + (62 - 10) * kPerPower;
constexpr int kSmallClasses = kFineClasses + 6 * kPerPower;  // up to 64 KiB: from malloc, cached by each thread
constexpr int64_t kThreadBytes = 4 << 20;       // cached by one thread at most
constexpr int64_t kThreadClassBytes = 256 << 10;
constexpr int64_t kMergeBytes = 1 << 20;        // a thread keeps its count of bytes to itself up to here
constexpr int64_t kAlways = 64 << 20;           // the pool may cache this much, whatever the live memory is
constexpr int64_t kIdle = 32 << 20;             // and this much stays however long it is idle
constexpr int64_t kSecond = 1000000000, kLongest = 4 * kSecond;  // a window: from one second to this
constexpr int kBatch = 1024;                    // small blocks that are freed under one lock

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
inline size_t mapped_bytes(size_t size) { return (size + kHugePage - 1) & ~(kHugePage - 1); }

// free() alone returns only what lies at the top of malloc's heap.
void trim_malloc() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

int64_t coarse_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t(t.tv_sec) * kSecond + t.tv_nsec;
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
  std::mutex returning;          // taken before `mutex`, by who gives memory back: a fork waits until it has
  int64_t freed_small = 0;       // bytes of small blocks given to free() since malloc was trimmed; under `returning`
  List lists[kClasses];
  uint64_t used[kClasses] = {};  // tick of the last release into each class, to evict the stalest class first
  uint64_t tick = 0;
  int64_t limit = 0, cached = 0, reserved = 0, peak_reserved = 0;
  int64_t allocated = 0, peak_allocated = 0, allocations = 0, hits = 0;
  ThreadCache* threads = nullptr;
  FreeRanges* ranges = nullptr;  // made with the first thread's cache

  // The window: what was live at most and cached at least, in it and (live) in the one before.
  int64_t window_start = 0, window = kSecond, window_peak = 0, last_peak = 0, least_cached = 0;
  int64_t returned = 0, returned_at = 0, mapped_again = 0;  // the last idle bytes that were returned, and what was mapped since
  bool timer = false;            // the thread runs
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

// Small blocks on their way back to malloc, which is called after the lock was given up.
struct Doomed {
  List list;
  int64_t bytes = 0;
  void add(void* p, int64_t size) {
    list.push(p);
    bytes += size;
  }
  ~Doomed() {
    while (void* p = list.pop()) free(p);
  }
};

// How much may be cached beside `live` bytes: what brings the total back to the recent peak, and a quarter of it for
// sizes that do not fit. Of a limit at most a quarter is cached, and the last eighth is left to others.
int64_t allowed(int64_t live) {
  const int64_t peak = std::max({pool.window_peak, pool.last_peak, live});
  const int64_t wanted = std::max(kAlways, peak + peak / 4 - live);
  return std::min({wanted, pool.limit / 4, std::max<int64_t>(pool.limit - pool.limit / 8 - live, 0)});
}
void take_cached(int64_t size) {
  pool.cached -= size;
  pool.least_cached = std::min(pool.least_cached, pool.cached);
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
// The blocks of a large class become ranges. Where there is no memory for a range's books, the block stays a block.
bool merge_class(int c) {
  while (void* p = pool.lists[c].pop())
    if (!pool.ranges->give({static_cast<char*>(p), class_bytes(c)})) {
      pool.lists[c].push(p);
      return false;
    }
  return true;
}
void* take_range(int c) {
  if (c < kSmallClasses) return nullptr;
  if (void* p = pool.ranges->take(class_bytes(c))) return p;
  for (int other = kSmallClasses; other < kClasses; ++other)
    if (pool.lists[other].head && !merge_class(other)) break;
  return pool.ranges->take(class_bytes(c));
}

// One step of giving memory back: a range, or some small blocks. What is in no use as a block goes first, then the class
// that was not released to for longest, and last what is left of huge pages that hold live blocks too.
Range next_to_return(int64_t wanted, Doomed& doomed) {
  for (;;) {
    Range r = pool.ranges->cut(size_t(wanted));
    if (r.size) return r;
    const int c = stalest_class();
    if (c < 0) return pool.ranges->take_largest();
    if (c >= kSmallClasses) {
      if (!merge_class(c)) return {static_cast<char*>(pool.lists[c].pop()), class_bytes(c)};
      continue;
    }
    const int64_t size = int64_t(class_bytes(c));
    for (int64_t n = 0; n < kBatch && n * size < wanted; ++n) {
      void* p = pool.lists[c].pop();
      if (!p) break;
      doomed.add(p, size);
    }
    return {};
  }
}

// Gives about this many cached bytes back to the system, and says how many it were. Not to be called with a lock.
int64_t give_back(int64_t bytes) {
  int64_t done = 0;
  std::lock_guard<std::mutex> first(pool.returning);
  while (done < bytes) {
    Doomed doomed;
    Range r;
    int64_t size = 0;
    {
      std::lock_guard<std::mutex> lock(pool.mutex);
      if (pool.cached > 0) r = next_to_return(bytes - done, doomed);
      size = r.size ? int64_t(r.size) : doomed.bytes;
      take_cached(size);
      pool.reserved -= size;
    }
    if (!size) break;
    if (r.size && !unmap_range(r)) {  // too many holes in the address space: it stays cached
      std::lock_guard<std::mutex> lock(pool.mutex);
      pool.reserved += size;
      if (pool.ranges->give(r)) pool.cached += size;
      break;
    }
    done += size;
    pool.freed_small += doomed.bytes;
  }
  if (pool.freed_small >= kIdle) {
    trim_malloc();
    pool.freed_small = 0;
  }
  return done;
}

// ---- windows -------------------------------------------------------------------------------------------------
// Ends the window if it is over: what was cached all through it, less kIdle, is of no use. Needs the lock.
int64_t idle_bytes(int64_t now) {
  if (now - pool.window_start < pool.window) return 0;
  const int64_t idle = std::max<int64_t>(std::min(pool.least_cached, pool.cached) - kIdle, 0);
  pool.window_start = now;
  pool.last_peak = pool.window_peak;
  pool.window_peak = pool.allocated;
  pool.least_cached = pool.cached;
  if (now - pool.returned_at > 8 * pool.window) pool.window = std::max(kSecond, pool.window / 2);
  return idle;
}
void return_idle(int64_t idle) {
  if (!idle) return;
  const int64_t done = give_back(idle);
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.returned = done;
  pool.mapped_again = 0;
  pool.returned_at = coarse_now();
}
// Memory that was returned as idle is mapped again soon: the program's steps take longer than the window. Needs the lock.
void note_mapping(int64_t size) {
  if (!pool.returned || coarse_now() - pool.returned_at > 2 * pool.window) return;
  pool.mapped_again += size;
  if (pool.mapped_again < pool.returned / 2) return;
  pool.window = std::min(2 * pool.window, kLongest);
  pool.returned = 0;
}

// Runs while more than kIdle is cached: a program that sleeps, or that makes small tensors only, calls nothing else here.
void* run_timer(void*) {
  for (;;) {
    int64_t idle, rest;
    {
      std::lock_guard<std::mutex> lock(pool.mutex);
      const int64_t now = coarse_now();
      idle = idle_bytes(now);
      rest = pool.window_start + pool.window - now;
    }
    return_idle(idle);
    {
      std::lock_guard<std::mutex> lock(pool.mutex);
      if (pool.cached <= kIdle) {
        pool.timer = false;
        return nullptr;
      }
    }
    const timespec t = {rest / kSecond, rest % kSecond};
    nanosleep(&t, nullptr);
  }
}
// Without the thread (no more can be made) the next slow call looks at the clock. Needs the lock.
void start_timer() {
  if (pool.timer || pool.cached <= kIdle) return;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;  // a signal is for the threads of the program
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  pool.timer = pthread_create(&thread, &attributes, run_timer, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
}

// ---- threads and forks ---------------------------------------------------------------------------------------
struct Reaper {
  ~Reaper() {
    exiting = true;
    ThreadCache* t = mine;
    mine = nullptr;
    if (!t) return;
    int64_t excess;
    {
      std::lock_guard<std::mutex> lock(pool.mutex);
      flush(*t);
      merge_counts(*t);
      unlink(*t);
      excess = pool.cached - allowed(pool.allocated);
    }
    delete t;
    if (excess > 0) give_back(excess);
  }
};

void before_fork() {
  pool.returning.lock();
  pool.mutex.lock();
}
void parent_after_fork() {
  pool.mutex.unlock();
  pool.returning.unlock();
}
// The child keeps only the forking thread. The lists of the others may have been cut in the middle of a step, so
// their few blocks are given up; their counts still hold.
void child_after_fork() {
  for (ThreadCache* t = pool.threads; t; t = t->next)
    if (t != mine) {
      merge_counts(*t);
      pool.reserved -= t->cached.get();
      unlink(*t);
    }
  pool.timer = false;
  new (&pool.mutex) std::mutex();
  new (&pool.returning) std::mutex();
}

// Needs the lock.
void start_pool() {
  if (pool.limit) return;
  if (!pool.ranges) pool.ranges = new FreeRanges;
  const int64_t limit = memory_limit("");
  pthread_atfork(before_fork, parent_after_fork, child_after_fork);
  pool.window_start = coarse_now();
  pool.limit = limit;
}
ThreadCache* thread_cache() {
  if (mine || exiting) return mine;
  static thread_local Reaper reaper;
  (void)&reaper;
  auto* t = new (std::nothrow) ThreadCache;
  if (!t) return nullptr;  // a release must not fail for lack of memory
  std::lock_guard<std::mutex> lock(pool.mutex);
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
  pool.window_peak = std::max(pool.window_peak, pool.allocated);
  pool.allocations += size > 0;
  pool.hits += hit;
}

// More than the machine has can never be written. Linux refuses such a mapping unless vm.overcommit_memory is 1, as on many
// hosts of containers, where filling it would end the process.
size_t machine_memory() {
  struct sysinfo info;
  if (sysinfo(&info)) return SIZE_MAX;
  return (size_t(info.totalram) + info.totalswap) * info.mem_unit;
}

void* system_allocate(int c) {
  static const size_t most = machine_memory();
  const size_t size = class_bytes(c);
  if (size > most) return nullptr;
  if (c >= kSmallClasses) return map_range(mapped_bytes(size)).start;
  void* p = nullptr;
  return posix_memalign(&p, 64, size) == 0 ? p : nullptr;
}

__attribute__((noinline)) void* allocate_slow(int c) {
  const int64_t size = int64_t(class_bytes(c));
  ThreadCache* t = thread_cache();
  int64_t excess;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    start_pool();
    void* p = pool.lists[c].pop();
    if (!p) p = take_range(c);
    if (p) {
      take_cached(size);
      count_block(t, size, true);
      return p;
    }
    excess = pool.cached - allowed(pool.allocated + size);
  }
  if (excess > 0) give_back(excess);  // first, so that the memory in use does not pass the bound in between
  void* p = system_allocate(c);
  if (!p) {
    empty_cache();
    p = system_allocate(c);
    if (!p) throw std::bad_alloc();
  }
  std::lock_guard<std::mutex> lock(pool.mutex);
  int64_t taken = size;
  if (c >= kSmallClasses) {
    const Range rest = {static_cast<char*>(p) + size, mapped_bytes(size_t(size)) - size_t(size)};
    if (rest.size && pool.ranges->give(rest)) pool.cached += int64_t(rest.size);
    taken += int64_t(rest.size);
    note_mapping(size);
  }
  pool.reserved += taken;
  pool.peak_reserved = std::max(pool.peak_reserved, pool.reserved);
  count_block(t, size, false);
  return p;
}

__attribute__((noinline)) void release_slow(void* p, int c) {
  const int64_t size = int64_t(class_bytes(c));
  ThreadCache* t = thread_cache();
  int64_t excess, idle;
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    count_block(t, -size, false);
    put(p, c);
    if (t && c < kSmallClasses) {
      if (t->cached.get() > kThreadBytes - kThreadClassBytes) flush(*t);
      else move_to_pool(*t, c, t->lists[c].count / 2);
    }
    excess = pool.cached - allowed(pool.allocated);
    idle = idle_bytes(coarse_now());
    start_timer();
  }
  if (excess > 0) give_back(excess);
  else return_idle(idle);
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
      if (t->allocated.get() < kMergeBytes) return mark_live(p, bytes, class_bytes(c));
      std::lock_guard<std::mutex> lock(pool.mutex);
      merge_counts(*t);
      return mark_live(p, bytes, class_bytes(c));
    }
  }
  return mark_live(allocate_slow(c), bytes, class_bytes(c));
}

void release(void* p, size_t bytes) {
  if (!p) return;
  int c = class_of(bytes);
  mark_cached(p, class_bytes(c));
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
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (!pool.limit) return;
    if (mine) flush(*mine);
  }
  give_back(INT64_MAX);
  trim_malloc();
}

void allocator_stats(AllocatorStats* out) {
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (mine) merge_counts(*mine);
  *out = {pool.allocated, 0, pool.reserved, pool.peak_reserved, pool.cached, pool.allocations, pool.hits,
          allowed(pool.allocated), pool.limit, pool.window / 1000000};
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
