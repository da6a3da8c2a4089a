// Blocks of the caching allocator, the pools that keep free ones, the directory of live ones, and the statistics.
// When a block is split, merged or freed is decided in caching.h.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mt::caching {

constexpr size_t kMinBlock = 512;            // every block is a multiple of this
constexpr size_t kSmallRequest = 1 << 20;    // up to this size a request is small
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kMinLargeRequest = 10 << 20;  // from here on a request has a segment of its own
constexpr size_t kLargeRound = 2 << 20;
constexpr size_t kNoLimit = SIZE_MAX;

using PoolId = std::pair<uint64_t, uint64_t>;

// ---- statistics: all int64, in the order of STAT_KEYS in npu_memory.pxi --------------------------------------------
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void add(int64_t n) {
    current += n;
    allocated += n;
    if (current > peak) peak = current;
  }
  void sub(int64_t n) {
    current -= n;
    freed += n;
  }
  void change(int64_t n) { n >= 0 ? add(n) : sub(-n); }
};

enum Metric { ALLOCATION, SEGMENT, ACTIVE, INACTIVE_SPLIT, ALLOCATED_BYTES, RESERVED_BYTES, ACTIVE_BYTES,
              INACTIVE_SPLIT_BYTES, REQUESTED_BYTES, METRICS };
enum Part { ALL, SMALL_POOL, LARGE_POOL, PARTS };

struct Stats {
  Stat of[METRICS][PARTS];
  Stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0, num_ooms = 0, num_oom_rejections = 0, num_sync_all_streams = 0;
  int64_t num_device_alloc = 0, num_device_free = 0, max_split_size = -1;

  void add(Metric m, Part part, int64_t n) { of[m][ALL].add(n), of[m][part].add(n); }
  void sub(Metric m, Part part, int64_t n) { of[m][ALL].sub(n), of[m][part].sub(n); }
  void change(Metric m, Part part, int64_t n) { of[m][ALL].change(n), of[m][part].change(n); }
  template <class F> void each(F f) {
    for (auto& metric : of)
      for (auto& stat : metric) f(stat);
    f(oversize_allocations), f(oversize_segments);
  }
};

// Room for n more items, so that adding them throws nothing.
template <class Items>
void make_room(Items& items, size_t n = 1) {
  if (items.capacity() - items.size() < n) items.reserve(std::max(items.size() * 2, items.size() + n));
}

// ---- blocks --------------------------------------------------------------------------------------------------------
struct Pool;
struct Segment;

struct Block {
  uintptr_t address = 0;
  size_t size = 0, requested = 0;
  Pool* pool = nullptr;
  Segment* segment = nullptr;
  Block *prev = nullptr, *next = nullptr;    // neighbours in the segment
  Block *left = nullptr, *right = nullptr;   // in the tree of a bin, while free
  uint64_t since = 0;                        // the pool's clock when the block became free
  uint32_t events = 0;                       // recorded on other streams and not yet seen to be complete
  bool allocated = false, mapped = true;
  std::vector<uint64_t> uses;                // other streams that touch the block

  bool split() const { return prev || next; }
  bool free() const { return !allocated && !events; }
};

// One piece of device memory, or of reserved addresses of which parts are mapped.
struct Segment {
  uintptr_t address;
  size_t size;
  Block* head;                               // never changes: merging keeps the lower block
  bool expandable;
  size_t granule;                            // expandable: what one mapping covers
};

inline bool before(const Block* b, size_t size, uintptr_t address) {
  return b->size != size ? b->size < size : b->address < address;
}

// The free blocks of one stream, small or large: bins by size (16 to a power of two), in each a treap by (size,
// address).
struct Pool {
  enum { BINS = 512 };
  const uint64_t stream;
  const PoolId id;
  const Part part;
  const bool no_split;
  uint64_t clock = 0;                        // requests so far: the age of a free block is counted in them
  uint64_t occupied[BINS / 64] = {};
  Block* bins[BINS] = {};
  std::vector<Block*> unmapped;              // of expandable segments, by address

  Pool(uint64_t stream, PoolId id, Part part, bool no_split) : stream(stream), id(id), part(part), no_split(no_split) {}

  static int bin_of(size_t size) {
    const uint64_t units = size / kMinBlock;
    if (units < 32) return static_cast<int>(units);
    const int level = 63 - __builtin_clzll(units);
    return std::min<int>((level - 3) * 16 + ((units >> (level - 4)) & 15), BINS - 1);
  }

  void insert(Block* b) {
    const int i = bin_of(b->size);
    b->since = clock;
    b->left = b->right = nullptr;
    if (!bins[i]) {
      bins[i] = b;
      occupied[i / 64] |= uint64_t{1} << (i % 64);
      return;
    }
    Block** at = &bins[i];
    const uint64_t rank = rank_of(b);
    while (*at && rank_of(*at) >= rank) at = before(*at, b->size, b->address) ? &(*at)->right : &(*at)->left;
    Block** low = &b->left;
    Block** high = &b->right;
    for (Block* t = *at; t;)                 // what hangs below is divided around b
      if (before(t, b->size, b->address)) {
        *low = t, low = &t->right, t = t->right;
      } else {
        *high = t, high = &t->left, t = t->left;
      }
    *low = *high = nullptr;
    *at = b;
  }

  void erase(Block* b) {
    const int i = bin_of(b->size);
    Block** at = &bins[i];
    while (*at != b) at = before(*at, b->size, b->address) ? &(*at)->right : &(*at)->left;
    Block *low = b->left, *high = b->right;
    while (low && high)                      // the two sides become one tree
      if (rank_of(low) >= rank_of(high)) {
        *at = low, at = &low->right, low = low->right;
      } else {
        *at = high, at = &high->left, high = high->left;
      }
    *at = low ? low : high;
    if (!bins[i]) occupied[i / 64] &= ~(uint64_t{1} << (i % 64));
  }

  // The smallest block of at least this size; of equals, the lowest address.
  Block* find(size_t size, uintptr_t address = 0) const {
    int i = bin_of(size);
    Block* found = nullptr;
    for (Block* t = bins[i]; t;)
      if (before(t, size, address)) t = t->right;
      else found = t, t = t->left;
    if (found) return found;
    if (++i == BINS) return nullptr;
    uint64_t word = occupied[i / 64] & (~uint64_t{0} << (i % 64));
    for (int w = i / 64;;) {
      if (word) {
        for (found = bins[w * 64 + __builtin_ctzll(word)]; found->left;) found = found->left;
        return found;
      }
      if (++w == BINS / 64) return nullptr;
      word = occupied[w];
    }
  }
  Block* after(const Block* b) const { return find(b->size, b->address + 1); }

 private:
  static uint64_t rank_of(const Block* b) { return b->address * 0x9E3779B97F4A7C15u; }
};

// From an address to its live block: open addressing, linear probing, no tombstones.
class Directory {
 public:
  void make_room() {                         // for one more: the only step that may throw
    if ((count_ + 1) * 2 > slots_.size()) grow();
  }
  void insert(Block* b) {
    make_room();
    ++count_;
    size_t i = home(b->address);
    while (slots_[i]) i = (i + 1) & mask_;
    slots_[i] = b;
  }
  Block* find(uintptr_t address) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = home(address); slots_[i]; i = (i + 1) & mask_)
      if (slots_[i]->address == address) return slots_[i];
    return nullptr;
  }
  void erase(uintptr_t address) {
    size_t hole = home(address);
    while (slots_[hole]->address != address) hole = (hole + 1) & mask_;
    for (size_t i = (hole + 1) & mask_; slots_[i]; i = (i + 1) & mask_)
      if (((i - home(slots_[i]->address)) & mask_) >= ((i - hole) & mask_)) slots_[hole] = slots_[i], hole = i;
    slots_[hole] = nullptr;
    --count_;
  }

 private:
  size_t home(uintptr_t address) const { return (address * 0x9E3779B97F4A7C15u) >> shift_; }
  void grow() {
    std::vector<Block*> old(std::max<size_t>(slots_.size() * 2, 256));
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    shift_ = 64 - __builtin_ctzll(slots_.size());
    for (Block* b : old)
      if (b) {
        size_t i = home(b->address);
        while (slots_[i]) i = (i + 1) & mask_;
        slots_[i] = b;
      }
  }
  std::vector<Block*> slots_;
  size_t count_ = 0, mask_ = 0;
  int shift_ = 0;
};

}  // namespace mt::caching
