// What CANN_SIM_CHECK follows: what the host and every stream know to be done, who used which memory, and the reports.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace cann_sim {

class Stream;

// By actor (0 is the host, n + 1 the stream of id n): how many of its tasks are known to be done. The host is one actor
// whatever thread calls: how its threads wait for each other is not seen here, and a false alarm is worse than a miss.
using Known = std::vector<uint64_t>;
using KnownRef = std::shared_ptr<const Known>;

// One use of memory: by which task of which actor, and as which of its arguments.
struct Use {
  uint32_t actor = 0;
  uint64_t count = 0;                   // the task's number; 0: none
  const char *task = "", *what = "";
  uint32_t tag = 0;                     // ACL_STREAM_ATTR_USER_CUSTOM_TAG of the stream
  bool writes = false;
};

// The last uses of every byte. A pair of uses is a race when one of them writes and neither knows of the other's end:
// that follows from the order that the client asked for, not from the order in which the workers happened to run.
class UseMap {
 public:
  void use(const Access& access, const Use& use, const Known& known);
  void begin_life(uintptr_t at, uint64_t bytes, bool written);
  // `reused`: others than the client's calls may give the addresses out again.
  void end_life(uintptr_t at, uint64_t bytes, const Use& by, const Known& known, bool reused);
  void forget(uintptr_t at, uint64_t bytes);
  bool was_written_unknown(uintptr_t at, uint64_t bytes, const Known& known);  // a write that is not known to be done

 private:
  struct Cell {
    uintptr_t end = 0;
    bool freed = false, reused = false, unwritten = false;
    Use write;
    std::vector<Use> reads;             // since the write, without those that a later read knows of
  };
  using Cells = std::map<uintptr_t, Cell>;
  void cut(uintptr_t at);               // no cell reaches over this address
  Cells::iterator cell_at(Cells::iterator next, uintptr_t at, uintptr_t end);
  void compare(const Cell& cell, uintptr_t at, const Access& access, const Use& use, const Known& known);
  Cells cells_;
};

// ---- the order (check_order.cpp). Nothing of it is called unless following_order().
bool following_order();
KnownRef host_knows();                             // for a task that is queued now
void begin_task(const Stream& stream, const Task& task);  // a task of the queue: it knows what the host knew
void note_uses(const Stream& stream, const Task& task);   // the stream's next task, with its memory
KnownRef this_thread_knows();                      // a worker's stream, or the host
void learn(const KnownRef& known);                 // this thread has waited for an actor with that clock
void host_waited_for(const Stream& stream);
void note_host_use(const char* function, const Access& access);
void note_allocation(uintptr_t base, uint64_t bytes, bool written);
void note_free(const char* function, uintptr_t base, uint64_t bytes);

// aclrtValueWrite and aclrtValueWait order streams by a word of memory.
void note_word_written(const void* at);
void note_word_awaited(const void* at);

// Pinned memory that a copy to the device reads: the host must not change it before it knows that the copy is done.
uint64_t hash_source(const void* at, size_t bytes);
void watch_source(const void* at, size_t bytes, uint64_t hash, const Known& host_knew);  // by the worker that copies
void note_host_memory_gone(const char* function, const void* at, size_t bytes);  // freed or unregistered

// ---- reports (check.cpp)
// One line on stderr for each pair of names, however often it comes.
void report_problem(const char* kind, const std::string& key, const std::string& text);
std::string describe_use(const Use& use);
// At the end of the process: how many there were; with `fatal` it ends with status 66 then.
void finish_checks();

}  // namespace cann_sim
