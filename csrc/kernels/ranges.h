// Free ranges of mapped memory: best fit, split where a request is smaller, merged with free neighbours. Not locked.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace mt {

constexpr size_t kHugePage = size_t(2) << 20;

struct Range {
  char* start = nullptr;
  size_t size = 0;
};

// Fresh memory of the system, at a multiple of kHugePage; size is one too. {} where the system has none.
Range map_range(size_t size);
// Any whole pages of mapped memory, whichever calls mapped them. False where the system has no room to note the hole.
bool unmap_range(Range r);

// Neighbours merge whether or not one call mapped them: the system lets any part of the address space be unmapped.
class FreeRanges {
 public:
  // The smallest range that holds size bytes, cut to them; nullptr where there is none.
  void* take(size_t size);
  // False where there is no memory for the books: the range is still the caller's.
  bool give(Range r) noexcept;
  // A part of the largest range, to be unmapped: whole huge pages, about `wanted` bytes. {} where no huge page is free.
  Range cut(size_t wanted) noexcept;
  // The largest range as it is; {} where there is none.
  Range take_largest() noexcept;

 private:
  using ByAddress = std::map<char*, size_t>;
  using BySize = std::set<std::pair<size_t, char*>>;
  void change(ByAddress::iterator at, Range r);

  ByAddress by_address_;
  BySize by_size_;
};

}  // namespace mt
