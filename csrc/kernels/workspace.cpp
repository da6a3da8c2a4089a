// The blocks that each thread keeps for the next piece of work.
#include "workspace.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "allocator.h"

namespace mt {
namespace {

constexpr size_t kKept = 2 << 20;  // bytes of a block that is kept; larger ones come from the caching allocator

struct Block {
  void* memory = nullptr;
  size_t bytes = 0;
  Block() = default;
  Block(const Block&) = delete;
  ~Block() { std::free(memory); }
};
thread_local Block kept[2];  // a kernel's own, and one for the products within

}  // namespace

Workspace::Workspace(int64_t bytes) : memory_(nullptr), bytes_((size_t(bytes) + 63) / 64 * 64) {
  if (bytes_ > kKept) {
    memory_ = allocate(bytes_);
    return;
  }
  for (Block& block : kept)
    if (block.memory && block.bytes >= bytes_) {
      memory_ = std::exchange(block.memory, nullptr);
      bytes_ = block.bytes;
      return;
    }
  memory_ = std::aligned_alloc(64, bytes_);
  if (!memory_ && bytes_) throw std::bad_alloc();
}

Workspace::~Workspace() {
  if (bytes_ > kKept) {
    release(memory_, bytes_);
    return;
  }
  for (Block& block : kept)
    if (memory_ && (!block.memory || block.bytes < bytes_)) {
      std::swap(block.memory, memory_);
      std::swap(block.bytes, bytes_);
    }
  std::free(memory_);
}

}  // namespace mt
