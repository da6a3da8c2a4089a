// The books of a device's caching allocator: best fit, splitting, merging, giving back. Not here: Python, ACL and every
// call outside. Memory comes in by take_segment, reserve and map and leaves as lists of chunks, so no state is half
// changed while a driver is busy. Where the host has no memory for the books themselves std::bad_alloc is thrown before
// anything is changed (make_room); release() throws nothing. Guarded by the GIL.
#pragma once
#include <pthread.h>

#include <memory>

#include "caching_pool.h"

namespace mt::caching {

// ---- what the heap requests and releases ---------------------------------------------------------------------------
struct Settings {
  size_t max_split = kNoLimit, max_non_split_rounding = 20 << 20, large_segment = 20 << 20, padding = 32;
  size_t large_round = kMinBlock;            // what sizes beyond kSmallRequest are rounded to
  bool expandable = false;
  uint8_t power2_divisions[16] = {};         // log2 of the divisions for 1 MB, 2 MB, ... requests; 0: none
};

enum Kind { SEGMENT_CHUNK, MAPPED_CHUNK, RESERVED_CHUNK, NOTHING };
struct Chunk {
  Kind kind;
  uintptr_t address;
  size_t size;
  uint64_t stream;
  PoolId id;
};
using Chunks = std::vector<Chunk>;

// Requests of a thread or of a stream (0: of any) go to a pool of their own.
struct Route {
  PoolId id;
  uint64_t thread, stream;
};

struct PrivatePool {
  PoolId id;
  int64_t users;
  bool no_split;
};

// ---- the heap of one device ----------------------------------------------------------------------------------------
class Heap {
 public:
  Stats stats;
  Settings settings;
  uint32_t pending = 0;                      // freed blocks that wait for events of other streams

  // ACL kernels may read 32 bytes beyond a tensor, so every request is padded before it is rounded.
  size_t round(size_t requested) const {
    const size_t size = requested + settings.padding;
    if (size <= kMinBlock) return kMinBlock;
    const int level = 63 - __builtin_clzll(size);
    const int log2 = settings.power2_divisions[std::clamp(level - 20, 0, 15)];
    size_t step = size > kSmallRequest ? settings.large_round : kMinBlock;
    if (log2 && size > kMinBlock << log2) step = std::max(step, (size_t{1} << level) >> log2);
    return (size + step - 1) / step * step;
  }
  size_t segment_size(size_t size) const {
    if (size <= kSmallRequest) return kSmallSegment;
    if (size < kMinLargeRequest) return settings.large_segment;
    return (size + kLargeRound - 1) / kLargeRound * kLargeRound;
  }

  // The books have room for one request: said before memory is brought, which would be lost otherwise.
  void make_room() {
    if (spares_.size() < kRequestBlocks) more_blocks();
    mt::caching::make_room(segments_);
    live_.make_room();
  }
  // A block from the free ones, or null: then the caller brings memory.
  Block* take(size_t requested, size_t size, uint64_t stream) {
    return take_from(pool_for(size, stream), requested, size);
  }
  Block* take_of(PoolId id, size_t requested, size_t size, uint64_t stream) {
    return take_from(pool_of(id, stream, size <= kSmallRequest), requested, size);
  }
  // A block at the start of a new segment.
  Block* take_segment(uintptr_t address, size_t bytes, size_t requested, size_t size, uint64_t stream) {
    make_room();
    Pool& pool = pool_for(size, stream);
    Block* b = add_segment(pool, address, bytes, false, 0);
    stats.add(SEGMENT, pool.part, 1);
    stats.add(RESERVED_BYTES, pool.part, bytes);
    ++stats.num_device_alloc;
    if (bytes >= settings.max_split) stats.oversize_segments.add(1);
    return hand_out(b, requested, size);
  }
  Block* find(uintptr_t address) const { return live_.find(address); }

  // True: other streams used the block, and it stays away until event_done was called for each of block->uses.
  bool release(Block* b) {
    const Part part = b->pool->part;
    b->allocated = false;
    live_.erase(b->address);
    stats.sub(ALLOCATION, part, 1);
    stats.sub(ALLOCATED_BYTES, part, b->size);
    if (b->size >= settings.max_split) stats.oversize_allocations.sub(1);
    b->events = b->uses.size();
    if (!b->events) return settle(b), false;
    ++pending;
    return true;
  }
  void record(Block* b, uint64_t stream) {
    if (stream != b->pool->stream && std::find(b->uses.begin(), b->uses.end(), stream) == b->uses.end())
      b->uses.push_back(stream);
  }
  // The block behind a number that release() let out; null: it is none, or waits for nothing.
  Block* waiting(uintptr_t handle) const {
    for (auto& some : blocks_) {
      const uintptr_t first = reinterpret_cast<uintptr_t>(some.get());
      if (handle < first || handle >= first + kBlocks * sizeof(Block)) continue;
      Block* b = reinterpret_cast<Block*>(handle);
      return (handle - first) % sizeof(Block) || b->allocated || !b->events ? nullptr : b;
    }
    return nullptr;
  }
  void event_done(Block* b) {
    if (--b->events) return;
    --pending;
    b->uses.clear();
    settle(b);
  }

  // ---- giving memory back: the chunks are off the books, the caller frees them -------------------------------------
  void release_free(Chunks& out, const PoolId* only = nullptr) {
    for (auto& lane : lanes_)
      if (only ? lane->id == *only : releasable(lane->id))
        for (Pool* pool : {&lane->small, &lane->large})
          for (Block *b = pool->find(0), *next; b; b = next) {
            next = pool->after(b);
            if (b->segment->expandable) unmap(b, out);
            else if (!b->split()) drop(b, out);
          }
    forget_private_pools();
  }
  // Oversize blocks are never split, so one of them, or several smaller ones, can make room for an oversize request.
  bool release_oversize(size_t size, uint64_t stream, Chunks& out) {
    if (settings.max_split == kNoLimit) return false;
    Pool& pool = pool_for(size, stream);
    const size_t wanted = std::max(size, settings.max_split);
    if (Block* b = pool.find(wanted)) return drop(b, out), true;
    std::vector<Block*> oversize;
    for (Block* b = pool.find(settings.max_split); b; b = pool.after(b)) oversize.push_back(b);
    size_t released = 0;
    for (; !oversize.empty() && released < wanted; oversize.pop_back()) {
      released += oversize.back()->size;
      drop(oversize.back(), out);
    }
    return released >= wanted;
  }
  // Large segments that have lain free for longer than the average, until `target` bytes are found.
  void release_aged(size_t target, Chunks& out) {
    std::vector<Block*> idle;
    uint64_t total = 0;
    for (auto& lane : lanes_)
      if (lane->id == PoolId{})
        for (Block* b = lane->large.find(0); b; b = lane->large.after(b))
          if (!b->split() && !b->segment->expandable) idle.push_back(b), total += b->pool->clock - b->since;
    for (bool found = true; found && target && !idle.empty();) {
      const uint64_t limit = total / idle.size();
      found = false;
      for (size_t i = 0; i < idle.size() && target;) {
        Block* b = idle[i];
        const uint64_t age = b->pool->clock - b->since;
        if (age < limit) { ++i; continue; }
        total -= age;
        target -= std::min(target, b->size);
        drop(b, out);
        idle.erase(idle.begin() + i);
        found = true;
      }
    }
  }

  // ---- expandable segments -----------------------------------------------------------------------------------------
  size_t granule(size_t size) const { return size <= kSmallRequest ? kSmallSegment : settings.large_segment; }
  // What is missing before take() can serve a request: nothing, a mapping, or a reservation.
  Chunk plan(size_t size, uint64_t stream) {
    Pool& pool = pool_for(size, stream);
    const size_t piece = granule(size);
    if (best_fit(pool, size)) return {NOTHING, 0, 0, stream, pool.id};
    for (Block* c : pool.unmapped) {
      const size_t mapped = c->prev && c->prev->free() && c->prev->mapped ? c->prev->size : 0;
      size_t room = mapped;
      for (Block* b = c; b && b->free() && room < size; b = b->next) room += b->size;
      const size_t missing = (size - mapped + piece - 1) / piece * piece;
      if (room >= size) return {MAPPED_CHUNK, c->address, std::min(missing, c->size), stream, pool.id};
    }
    return {RESERVED_CHUNK, 0, 0, stream, pool.id};
  }
  void reserve(uintptr_t address, size_t bytes, size_t size, uint64_t stream) {
    make_room();
    Pool& pool = pool_for(size, stream);
    mt::caching::make_room(pool.unmapped);
    set_unmapped(add_segment(pool, address, bytes, true, granule(size)));
  }
  bool map(uintptr_t address, size_t bytes, size_t size, uint64_t stream) {  // false: no such addresses
    Pool& pool = pool_for(size, stream);
    auto at = std::find_if(pool.unmapped.begin(), pool.unmapped.end(), [&](Block* b) { return b->address == address; });
    if (at == pool.unmapped.end() || !bytes || bytes > (*at)->size) return false;
    if (spares_.size() < kRequestBlocks) more_blocks();
    Block* b = *at;
    pool.unmapped.erase(at);
    b->mapped = true;
    if (bytes < b->size) set_unmapped(cut(b, bytes));
    stats.add(RESERVED_BYTES, pool.part, bytes);
    ++stats.num_device_alloc;
    join(b);
    return true;
  }

  // ---- private pools -----------------------------------------------------------------------------------------------
  PrivatePool* private_pool(PoolId id) {
    for (auto& p : private_)
      if (p.id == id) return &p;
    return nullptr;
  }
  void retain_pool(PoolId id, bool no_split) {
    if (PrivatePool* p = private_pool(id)) ++p->users;
    else private_.push_back({id, 1, no_split});
  }
  void release_pool(PoolId id) { --private_pool(id)->users; }
  void begin_route(PoolId id, uint64_t thread, uint64_t stream) { routes_.push_back({id, thread, stream}); }
  bool end_route(PoolId id, uint64_t thread, uint64_t stream) {
    for (size_t i = routes_.size(); i--;)
      if (const Route& r = routes_[i]; r.id == id && r.thread == thread && r.stream == stream)
        return routes_.erase(routes_.begin() + i), true;
    return false;
  }
  PoolId routed(uint64_t stream) const {
    for (size_t i = routes_.size(); i--;) {
      const Route& r = routes_[i];
      const bool mine = !r.thread || r.thread == static_cast<uint64_t>(pthread_self());
      if (mine && (!r.stream || r.stream == stream)) return r.id;
    }
    return {};
  }

  const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }
  void reset_peak() {
    stats.each([](Stat& s) { s.peak = s.current; });
  }
  void reset_accumulated() {
    stats.each([](Stat& s) { s.allocated = s.freed = 0; });
    stats.num_alloc_retries = stats.num_ooms = stats.num_oom_rejections = stats.num_sync_all_streams = 0;
    stats.num_device_alloc = stats.num_device_free = 0;
  }

 private:
  static constexpr size_t kBlocks = 64;      // that are made at a time
  static constexpr size_t kRequestBlocks = 2;  // that one change of the books may need
  struct Lane {                              // the two pools of a stream
    uint64_t stream;
    PoolId id;
    Pool small, large;
  };

  Pool& pool_for(size_t size, uint64_t stream) {
    return pool_of(routes_.empty() ? PoolId{} : routed(stream), stream, size <= kSmallRequest);
  }
  Pool& pool_of(PoolId id, uint64_t stream, bool small) {
    if (!recent_ || recent_->stream != stream || recent_->id != id) recent_ = lane_of(id, stream);
    return small ? recent_->small : recent_->large;
  }
  Lane* lane_of(PoolId id, uint64_t stream) {
    for (auto& lane : lanes_)
      if (lane->stream == stream && lane->id == id) return lane.get();
    const PrivatePool* p = private_pool(id);
    const bool no_split = p && p->no_split;
    lanes_.emplace_back(new Lane{stream, id, {stream, id, SMALL_POOL, no_split}, {stream, id, LARGE_POOL, no_split}});
    return lanes_.back().get();
  }

  // Of blocks in expandable segments, the one whose segment has the least room behind it fits best.
  Block* best_fit(Pool& pool, size_t size) const {
    Block* b = pool.find(size);
    if (!b) return nullptr;
    if (b->segment->expandable) {
      auto room = [](Block* x) { return x->size + (x->next && !x->next->mapped ? x->next->size : 0); };
      for (Block* next; (next = pool.after(b)) && room(next) < room(b);) b = next;
    }
    if (size < settings.max_split ? b->size >= settings.max_split && !b->segment->expandable
                                  : b->size >= size + settings.max_non_split_rounding) return nullptr;
    return b;
  }
  bool should_split(const Block* b, size_t size) const {
    const size_t rest = b->size - size;
    if (b->pool->no_split) return false;
    if (b->pool->part == SMALL_POOL || b->segment->expandable) return rest >= kMinBlock;
    return size < settings.max_split && rest > kSmallRequest;
  }
  Block* take_from(Pool& pool, size_t requested, size_t size) {
    ++pool.clock;
    Block* b = best_fit(pool, size);
    if (!b) return nullptr;
    if (spares_.size() < kRequestBlocks) more_blocks();
    live_.make_room();
    pool.erase(b);
    return hand_out(b, requested, size);
  }
  Block* hand_out(Block* b, size_t requested, size_t size) {
    Pool& pool = *b->pool;
    const bool was_split = b->split(), counted = !b->segment->expandable;
    if (should_split(b, size)) {
      Block* rest = cut(b, size);
      pool.insert(rest);
      if (counted) {
        if (!was_split) stats.add(INACTIVE_SPLIT, pool.part, 1);
        stats.change(INACTIVE_SPLIT_BYTES, pool.part, was_split ? -static_cast<int64_t>(size) : rest->size);
      }
    } else if (was_split && counted) {
      stats.sub(INACTIVE_SPLIT, pool.part, 1);
      stats.sub(INACTIVE_SPLIT_BYTES, pool.part, b->size);
    }
    b->allocated = true;
    b->requested = requested;
    live_.insert(b);
    stats.add(ALLOCATION, pool.part, 1);
    stats.add(ALLOCATED_BYTES, pool.part, b->size);
    stats.add(ACTIVE, pool.part, 1);
    stats.add(ACTIVE_BYTES, pool.part, b->size);
    stats.add(REQUESTED_BYTES, pool.part, requested);
    if (b->size >= settings.max_split) stats.oversize_allocations.add(1);
    return b;
  }
  void settle(Block* b) {
    const Part part = b->pool->part;
    stats.sub(ACTIVE, part, 1);
    stats.sub(ACTIVE_BYTES, part, b->size);
    stats.sub(REQUESTED_BYTES, part, b->requested);
    join(b);
  }
  // A block that became free joins its free neighbours and its pool.
  void join(Block* b) {
    Pool& pool = *b->pool;
    int64_t blocks = 0, bytes = 0;
    if (Block* n = b->next; n && n->mapped && n->free()) {
      pool.erase(n);
      --blocks, bytes -= n->size;
      absorb(b, n);
    }
    if (Block* p = b->prev; p && p->mapped && p->free()) {
      pool.erase(p);
      --blocks, bytes -= p->size;
      absorb(p, b);
      b = p;
    }
    if (b->split()) ++blocks, bytes += b->size;
    pool.insert(b);
    if (b->segment->expandable) return;      // its free pages can always be unmapped
    stats.change(INACTIVE_SPLIT, pool.part, blocks);
    stats.change(INACTIVE_SPLIT_BYTES, pool.part, bytes);
  }

  void more_blocks() {
    std::unique_ptr<Block[]> made(new Block[kBlocks]);
    mt::caching::make_room(blocks_);
    spares_.reserve((blocks_.size() + 1) * kBlocks);  // for all there are: putting one back throws nothing
    blocks_.push_back(std::move(made));
    for (size_t i = kBlocks; i--;) spares_.push_back(&blocks_.back()[i]);
  }
  Block* new_block(Pool* pool, Segment* segment, uintptr_t address, size_t size) {
    if (spares_.empty()) more_blocks();
    Block* b = spares_.back();
    spares_.pop_back();
    b->pool = pool, b->segment = segment, b->address = address, b->size = size;
    b->prev = b->next = nullptr;
    b->mapped = true;
    return b;
  }
  // Shortens b and gives what lay behind.
  Block* cut(Block* b, size_t size) {
    Block* rest = new_block(b->pool, b->segment, b->address + size, b->size - size);
    rest->prev = b, rest->next = b->next;
    if (b->next) b->next->prev = rest;
    b->next = rest;
    b->size = size;
    return rest;
  }
  void absorb(Block* low, Block* high) {
    low->size += high->size;
    low->next = high->next;
    if (low->next) low->next->prev = low;
    spares_.push_back(high);
  }

  Block* add_segment(Pool& pool, uintptr_t address, size_t bytes, bool expandable, size_t granule) {
    segments_.emplace_back(new Segment{address, bytes, nullptr, expandable, granule});
    Segment* s = segments_.back().get();
    return s->head = new_block(&pool, s, address, bytes);
  }
  void remove_segment(Segment* s) {
    spares_.push_back(s->head);
    segments_.erase(std::find_if(segments_.begin(), segments_.end(), [s](auto& p) { return p.get() == s; }));
  }
  void drop(Block* b, Chunks& out) {
    Pool& pool = *b->pool;
    out.push_back({SEGMENT_CHUNK, b->address, b->size, pool.stream, pool.id});  // first: what may throw
    pool.erase(b);
    stats.sub(SEGMENT, pool.part, 1);
    stats.sub(RESERVED_BYTES, pool.part, b->size);
    ++stats.num_device_free;
    if (b->size >= settings.max_split) stats.oversize_segments.sub(1);
    remove_segment(b->segment);
  }
  // Takes the whole granules out of a free block.
  void unmap(Block* b, Chunks& out) {
    Pool& pool = *b->pool;
    Segment* s = b->segment;
    const size_t from = b->address - s->address, to = from + b->size;
    const size_t first = (from + s->granule - 1) / s->granule * s->granule, last = to / s->granule * s->granule;
    if (first >= last) return;
    if (spares_.size() < kRequestBlocks) more_blocks();
    mt::caching::make_room(out, 2);
    mt::caching::make_room(pool.unmapped);
    pool.erase(b);
    if (first > from) {
      Block* low = b;
      b = cut(b, first - from);
      pool.insert(low);
    }
    if (to > last) pool.insert(cut(b, last - first));
    stats.sub(RESERVED_BYTES, pool.part, b->size);
    ++stats.num_device_free;
    out.push_back({MAPPED_CHUNK, b->address, b->size, pool.stream, pool.id});
    set_unmapped(b);
    if (!s->head->mapped && !s->head->next) {
      pool.unmapped.erase(std::find(pool.unmapped.begin(), pool.unmapped.end(), s->head));
      out.push_back({RESERVED_CHUNK, s->address, s->size, pool.stream, pool.id});
      remove_segment(s);
    }
  }
  void set_unmapped(Block* b) {
    auto& list = b->pool->unmapped;
    auto gone = [&](Block* x) { list.erase(std::find(list.begin(), list.end(), x)); };
    b->mapped = b->allocated = false;
    if (Block* n = b->next; n && !n->mapped) gone(n), absorb(b, n);
    if (Block* p = b->prev; p && !p->mapped) gone(p), absorb(p, b), b = p;
    auto lower = [](const Block* x, const Block* y) { return x->address < y->address; };
    list.insert(std::lower_bound(list.begin(), list.end(), b, lower), b);
  }

  bool releasable(PoolId id) {
    const PrivatePool* p = private_pool(id);
    return !p || !p->users;
  }
  // A private pool that is not in use is removed with its last segment.
  void forget_private_pools() {
    recent_ = nullptr;
    auto empty = [&](PoolId id) {
      return std::none_of(segments_.begin(), segments_.end(), [&](auto& s) { return s->head->pool->id == id; });
    };
    lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(),
                                [&](auto& l) { return l->id != PoolId{} && releasable(l->id) && empty(l->id); }),
                 lanes_.end());
    private_.erase(std::remove_if(private_.begin(), private_.end(), [&](auto& p) { return !p.users && empty(p.id); }),
                   private_.end());
  }

  std::vector<std::unique_ptr<Lane>> lanes_;
  Lane* recent_ = nullptr;
  Directory live_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<std::unique_ptr<Block[]>> blocks_;   // where the blocks live
  std::vector<Block*> spares_;
  std::vector<Route> routes_;
  std::vector<PrivatePool> private_;
};

}  // namespace mt::caching
