// Devices, contexts and what a thread knows of them: inside libascendcl only.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/handles.h"
#include "runtime/runtime.h"

namespace cann_sim {

class Stream;
struct StreamHandle;
struct Context;

struct Soc {
  const char *name, *family;
  int64_t ai_cores, cube_cores, vector_cores, ai_cpus, memory, l2;  // 0: not known
};
CANN_SIM_API const Soc& soc();
const Soc* find_soc(const char* name);  // nullptr: there is none of that name
int default_device();                 // of threads that set none, as aclInit's file says; -1: none
// What is wrong with the CANN_SIM_* settings, and the first item of the fault plan that is not understood; or empty.
const std::string& settings_error();
const std::string& faults_error();
// The devices that ASCEND_RT_VISIBLE_DEVICES leaves, in its order; without it all.
const std::vector<int>& visible_devices();

struct Device {
  int id = 0;                         // as the client counts
  int physical_id = 0;                // as ASCEND_RT_VISIBLE_DEVICES counts
  int set_count = 0;                  // aclrtSetDevice less aclrtResetDevice, over all threads
  Context* primary = nullptr;         // the default context, made by the first aclrtSetDevice
  std::atomic<uint64_t> peers{0};     // a bit per device that this one may reach
  bool reaches(const Device& other) const { return (peers.load() >> other.id) & 1; }
  std::atomic<uint64_t> used{0};      // bytes of memory given out
  std::atomic<uint64_t> peak{0};
  std::atomic<bool> lost{false};
  std::atomic<int32_t> saturation{1};
  std::atomic<uint64_t> launches{0};  // tasks that were queued
  std::atomic<const void*> launcher{nullptr};  // of the last of them: an address of the thread's own
  uint32_t core_limit[2] = {0, 0};    // cube and vector cores for the ops; 0: all
};
std::mutex& devices_mutex();          // guards set_count, primary, peers, and every context's list of streams
int device_count();
Device* device(int id);               // nullptr: no such device
CANN_SIM_API int physical_device(int id);  // -1: no such device
uint64_t device_memory(const Device& d);

// Texts of faults are cut to this and kept in plain memory: a worker must be able to tell that there is none left.
constexpr size_t kFaultText = 700;

// What went wrong on the device for a context. Streams keep it too: a worker may outlive the context.
struct Faults {
  std::atomic<int> code{0};           // every synchronising call answers it until the device is reset
  std::atomic<bool> halted{false};    // a stream with STOP_ON_FAILURE failed: tasks are neither taken nor run
  void note(int fault, const char* text) noexcept;   // the first one stays
  int report();                       // 0, or the fault with its message noted for this thread
  void clear();

 private:
  std::mutex mutex_;
  char message_[kFaultText] = "";
};

struct Context {
  Context(Device* d, bool is_primary) : device(d), primary(is_primary), faults(std::make_shared<Faults>()) {}
  Device* const device;
  const bool primary;
  const std::shared_ptr<Faults> faults;
  StreamHandle* default_stream = nullptr;
  std::set<StreamHandle*> streams;    // the default one too
  std::map<int, int64_t> params;      // aclrtCtxSetSysParamOpt
};
Handles<Context>& contexts();

// The calling thread's context, or nullptr with 107002 noted.
Context* current_context();
// The same without a note, for questions.
Context* peek_context();
void set_current_context(Context* context);
// True in a child of a process that used a device before fork: nothing works there.
bool is_forked_child();
// Ends every context, stream and allocation of all devices.
void close_all_devices();

// ---- who hears of devices, streams and faults (state_callbacks.cpp); with no lock held
void tell_device_state(int device, int state);
void tell_stream_state(void* stream, int state);
std::vector<aclrtExceptionInfoCallback> exception_callbacks();

// ---- fault plan
// The code that this run of the task named is to fail with, or 0; also loses the device when its time has come.
int planned_task_fault(const char* task, Device& d);
bool planned_allocation_failure();
// Copies a text with its final 0 to the client as far as there is room; the bytes that all of it needs.
size_t copy_text(const std::string& text, char* out, size_t room);

// ---- trace
bool tracing();
int64_t now_ns();
// queued: when the host queued it, of ops and copies; else 0.
void trace_task(const char* name, int device, int stream, int64_t begin, int64_t end, int64_t queued = 0);
bool open_session_trace(const std::string& path);  // of a profiling session; false: the file cannot be written
void close_session_trace();
void flush_trace();
void close_trace();
void write_calls();                   // the file of CANN_SIM_CALLS

}  // namespace cann_sim
