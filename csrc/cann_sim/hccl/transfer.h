// Moves bytes between ranks: sends, receives and reducing receives that progress together over the rings of a segment.
#pragma once
#include <functional>
#include <vector>

#include "hccl/segment.h"

namespace cann_sim {

// dst[i] = dst[i] op src[i] over whole elements.
using ReduceFn = void (*)(void* dst, const void* src, size_t count);
ReduceFn find_reduce(HcclDataType dtype, HcclReduceOp op);  // nullptr: not a type that can be reduced
size_t hccl_element_size(HcclDataType dtype);               // 0: unknown

enum class Move : uint8_t { send, receive, reduce, copy };

// One piece of a collective as it is planned: addresses are the client's until the task runs.
struct Piece {
  Move move;
  uint32_t peer;
  void* at;  // sent from, received or reduced into, copied to
  size_t bytes;
  const void* from = nullptr;  // of a copy inside this rank
};
using Phase = std::vector<Piece>;

// What every message begins with, so that ranks that disagree are told instead of getting each other's bytes.
struct Frame {
  uint32_t op;  // a number for the function's name
  uint32_t dtype;
  uint64_t bytes;
  uint64_t rsv[2];
};
static_assert(sizeof(Frame) == kAlign, "a frame keeps messages aligned");

struct Exchange {
  Segment& segment;
  uint32_t rank;
  const char* name;  // of the collective, for messages
  Frame frame;       // op and dtype
  ReduceFn reduce;
  size_t element;
  Deadline deadline;
  const std::atomic<bool>& aborted;
};

// Runs one phase to its end. Throws DeviceFault when a rank has gone, disagrees or does not come in time.
void run_phase(const Exchange& exchange, const Phase& phase, const std::function<void*(void*, size_t)>& resolve);

uint32_t op_number(const char* name);
const char* op_name(uint32_t number);

}  // namespace cann_sim
