// What the runtime (libascendcl) offers to the simulator's other libraries: errors, settings, device memory, tasks.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "structs.h"

#define CANN_SIM_API __attribute__((visibility("default")))

namespace cann_sim {

// ---- errors ----------------------------------------------------------------------------------------------
// Notes the message for aclGetRecentErrMsg and the code for aclrtGetLastError on this thread; returns the code.
CANN_SIM_API int fail(int code, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
// For functions that are exported and not implemented: 207000 with a message that names them.
CANN_SIM_API int refuse_function(const char* name);
// The code that this call of `function` is to fail with by the fault plan, or 0. Cheap when there is no plan. phase is
// "launch " for the second phase of an op.
CANN_SIM_API int planned_fault(const char* function, const char* phase = "") noexcept;
// Begins every exported function: a planned fault leaves with its code; where a pointer is returned, with NULL.
#define CANN_ENTRY(name) \
  if (int planned = ::cann_sim::planned_fault(name)) return planned
#define CANN_ENTRY_POINTER(name) \
  if (::cann_sim::planned_fault(name)) return nullptr

// ---- settings (CANN_SIM_*) -----------------------------------------------------------------------------
enum class Mode { normal, delay, null, model };
struct Settings {
  int devices = 2;
  uint64_t memory = 0;               // bytes of one device
  std::string soc = "Ascend910B2", version = "8.5.0", trace, faults, calls, card;
  bool version_is_set = false;                   // by CANN_SIM_VERSION
  Mode mode = Mode::normal;
  uint64_t seed = 0;
  uint64_t depth = 2048;             // tasks that a stream takes before the host waits
  bool hf32 = false;                 // float32 products round as HF32 where cubeMathType allows it
  bool strict = false;
  bool check_race = false, check_memory = false, check_leak = false, check_fatal = false;  // CANN_SIM_CHECK
  bool checks() const { return check_race || check_memory || check_leak; }
};
CANN_SIM_API const Settings& settings();

// ---- aborts of a device's tasks (abort.cpp) ----------------------------------------------------------------
// Who is told of them, by name; NULL takes one away. False: there was none of that name. aclrtSetDeviceTaskAbortCallback is the
// client's way, and older versions lack it.
CANN_SIM_API bool on_task_abort(const std::string& name, aclrtDeviceTaskAbortCallback callback, void* args);

// ---- the record of calls (calls.cpp) ---------------------------------------------------------------------
CANN_SIM_API bool recording();       // cheap
CANN_SIM_API void record_call(const std::string& text);
// The numbers that this thread gives to a function which it calls next; the record of that call shows them.
struct NamedValue {
  const char* name;
  int64_t value;
};
CANN_SIM_API void note_values(const char* function, std::initializer_list<NamedValue> values);
std::string with_values(const char* function);

// ---- what CANN_SIM_CHECK looks at (check.h) ---------------------------------------------------------------
// Memory that a task uses.
struct Access {
  const void* at;
  size_t bytes;
  bool writes;
  const char* what;                  // the argument; a literal
  bool whole = false;                // every byte is used: unwritten bytes must not be read
};
// Says what a client did wrong with objects or memory, where CANN_SIM_CHECK asks for it.
CANN_SIM_API void report_misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- device memory ---------------------------------------------------------------------------------------
// A fault of the device while a task runs: it surfaces at the next synchronising call of the host.
struct DeviceFault : std::runtime_error {
  int code;
  DeviceFault(int code, const std::string& message) : std::runtime_error(message), code(code) {}
};
// What a card would have refused before anything was queued: the device is sound, and the next wait for the stream says it once.
struct LateRefusal : DeviceFault {
  using DeviceFault::DeviceFault;
};
// Keeps what a task uses mapped while it runs, even when the client frees it in the middle.
class CANN_SIM_API Pins {
 public:
  Pins();
  ~Pins();
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  // The host address behind `bytes` of device memory at `p`. Throws DeviceFault when they are not (or no longer) all
  // inside one live allocation. nullptr with 0 bytes is allowed.
  void* resolve(const void* p, size_t bytes);

};
// Whether all bytes lie inside one live device allocation (for checks at launch).
CANN_SIM_API bool is_device_memory(const void* p, size_t bytes);

// ---- what CANN_SIM_MODE=model counts (model.h) ---------------------------------------------------------------
struct Work {
  double cube = 0, vector = 0;       // operations of the cube and vector units
  int item_bits = 32;                // of what the cube units multiply
  double bytes = 0, link_bytes = 0, host_bytes = 0;  // through the device's memory, to one other device, to the host
  bool is_task = true;               // false: takes no time of its own
};

// ---- tasks -----------------------------------------------------------------------------------------------
// Work for a stream. run() is called by the stream's worker, once, or once per replay when the task was captured
// into a graph; it may throw DeviceFault, std::bad_alloc (which becomes 207001) or any std::exception (507015 with its
// text).
class CANN_SIM_API Task {
 public:
  Task() = default;
  virtual ~Task();
  virtual void run() = 0;
  virtual const char* name() const = 0;   // for traces, faults and error messages
  virtual void list_uses(std::vector<Access>&) const {}
  virtual Work work() const;              // by default, all that it uses passes through memory
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() { if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(); }
  bool unique() const { return refs_.load(std::memory_order_acquire) == 1; }
  Task* next = nullptr;                   // the queue's link
  int64_t queued_at = 0;                  // the host's device time (model.h)
  bool always_runs = false;               // in null mode too; ops do not
  bool is_awaited = false;                // someone may wait for this very task: told when it is done
  std::shared_ptr<const std::vector<uint64_t>> host_knew;  // to be done when this was queued (check.h); captured: none

 protected:
  virtual void destroy() { delete this; } // a pooled task goes back to its pool

 private:
  std::atomic<int> refs_{1};
};
// Queues the task on the stream (nullptr: the current context's default stream), or captures it. Takes over one
// reference, also when it fails. In null mode an idle stream drops the task at once.
CANN_SIM_API int enqueue(aclrtStream stream, Task* task);
// Inside run(): whether the stream, its device or the process ends, so that a task that waits for others has to stop.
CANN_SIM_API bool interrupted();
// 0 when the stream can take tasks from this thread now; otherwise the code, with its message noted.
CANN_SIM_API int check_stream(aclrtStream stream);
// 0 when this thread has a current context; otherwise 107002 with its message noted.
CANN_SIM_API int check_context();
// The device of the stream (nullptr: the current context), or -1.
CANN_SIM_API int stream_device(aclrtStream stream);

// ---- the end -------------------------------------------------------------------------------------------------
// What is alive is reported by aclFinalize in strict mode, and by cannSimAlive: other libraries tell here what they count.
// `which` names some of them.
CANN_SIM_API void count_at_finalize(const char* what, size_t (*count)(), std::string (*which)() = nullptr);

// ---- objects that clients hold as pointers -----------------------------------------------------------------
// A pool of T in address space of its own: a wild or destroyed handle is recognised without touching memory that
// may not be there. Slots of destroyed objects are reused last. Defined in handles.h.
}  // namespace cann_sim
