// Free ranges of mapped memory, and the two calls of the system that map and unmap them.
#include "ranges.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "poison.h"

namespace mt {
namespace {

char* align_up(char* p) {
  return p + (size_t(-reinterpret_cast<uintptr_t>(p)) & (kHugePage - 1));
}

char* map_pages(size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

}  // namespace

Range map_range(size_t size) {
  char* p = map_pages(size);
  if (!p) return {};
  if (p != align_up(p)) {  // recent kernels align large mappings themselves, and one beside another is aligned
    munmap(p, size);
    char* wide = map_pages(size + kHugePage);
    if (!wide) return {};
    p = align_up(wide);
    if (p != wide) munmap(wide, size_t(p - wide));
    munmap(p + size, kHugePage - size_t(p - wide));
  }
#ifdef MADV_HUGEPAGE
  madvise(p, size, MADV_HUGEPAGE);
#endif
  return {p, size};
}

bool unmap_range(Range r) {
  mark_gone(r.start, r.size);
  return munmap(r.start, r.size) == 0;
}

// Moves the books of one range to another place; the nodes are reused, so nothing is allocated.
void FreeRanges::change(ByAddress::iterator at, Range r) {
  auto size_node = by_size_.extract({at->second, at->first});
  size_node.value() = {r.size, r.start};
  by_size_.insert(std::move(size_node));
  auto address_node = by_address_.extract(at);
  address_node.key() = r.start;
  address_node.mapped() = r.size;
  by_address_.insert(std::move(address_node));
}

void* FreeRanges::take(size_t size) {
  auto found = by_size_.lower_bound({size, nullptr});
  if (found == by_size_.end()) return nullptr;
  char* p = found->second;
  auto at = by_address_.find(p);
  if (found->first == size) {
    by_size_.erase(found);
    by_address_.erase(at);
  } else {
    change(at, {p + size, found->first - size});
  }
  return p;
}

bool FreeRanges::give(Range r) noexcept {
  auto next = by_address_.lower_bound(r.start);
  auto previous = next == by_address_.begin() ? by_address_.end() : std::prev(next);
  const bool before = previous != by_address_.end() && previous->first + previous->second == r.start;
  const bool after = next != by_address_.end() && r.start + r.size == next->first;
  if (before) r = {previous->first, previous->second + r.size};
  if (after) r.size += next->second;
  if (before && after) {
    by_size_.erase({next->second, next->first});
    by_address_.erase(next);
  }
  if (before || after) {
    change(before ? previous : next, r);
    return true;
  }
  try {
    next = by_address_.emplace_hint(next, r.start, r.size);
    by_size_.emplace(r.size, r.start);
    return true;
  } catch (const std::bad_alloc&) {
    if (next != by_address_.end() && next->first == r.start) by_address_.erase(next);
    return false;
  }
}

Range FreeRanges::cut(size_t wanted) noexcept {
  if (by_size_.empty()) return {};
  const Range whole = {by_size_.rbegin()->second, by_size_.rbegin()->first};
  char* first = align_up(whole.start);
  char* end = whole.start + whole.size;
  char* last = align_up(end) == end ? end : align_up(end) - kHugePage;
  if (first >= last) return {};
  const size_t pages = (wanted + kHugePage - 1) & ~(kHugePage - 1);
  Range r = {std::max(first, last - std::min(pages, size_t(last - first))), 0};
  take_largest();
  if (last != end && !give({last, size_t(end - last)})) last = end;
  if (r.start != whole.start && !give({whole.start, size_t(r.start - whole.start)})) r.start = whole.start;
  r.size = size_t(last - r.start);
  return r;
}

Range FreeRanges::take_largest() noexcept {
  if (by_size_.empty()) return {};
  const Range r = {by_size_.rbegin()->second, by_size_.rbegin()->first};
  by_size_.erase(std::prev(by_size_.end()));
  by_address_.erase(r.start);
  return r;
}

}  // namespace mt
