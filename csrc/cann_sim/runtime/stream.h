// Streams, events and the waiting on them: inside libascendcl only.
#pragma once
#include <chrono>
#include <condition_variable>
#include <random>
#include <thread>

#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/ipc_event.h"
#include "runtime/model.h"

namespace cann_sim {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
constexpr Deadline kForever = Deadline::max();
// From CANN's timeouts: -1 for ever, otherwise milliseconds.
Deadline deadline_ms(int64_t milliseconds);

// Wakes those who wait for something rare: a mark reached, a stream interrupted, a callback delivered.
class Bell {
 public:
  void ring() {
    if (listeners_.load() == 0) return;
    std::lock_guard<std::mutex> hold(mutex_);
    condition_.notify_all();
  }
  template <class Ready>
  bool wait(Ready ready, Deadline deadline) {
    if (ready()) return true;
    std::unique_lock<std::mutex> hold(mutex_);
    ++listeners_;  // before the last look: a thread that changes the state after it sees a listener
    bool in_time = true;
    while (!ready() && in_time) {
      if (deadline == kForever) condition_.wait(hold);
      else in_time = condition_.wait_until(hold, deadline) != std::cv_status::timeout;
    }
    --listeners_;
    return in_time || ready();
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  std::atomic<int> listeners_{0};
};
Bell& bell();

// A task that is the runtime's own business: it runs in null mode too, where ops and copies do not.
class ControlTask : public Task {
 public:
  ControlTask() { always_runs = true; }
  Work work() const override {
    Work none;
    none.is_task = false;
    return none;
  }
};

class Capture;

// The queue of a stream and the thread that empties it. It outlives its handle while tasks or the thread hold it.
class Stream {
 public:
  Stream(Context& context, int id, uint32_t priority, uint32_t flags);
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release();

  void push(Task* task);              // takes over one reference
  bool idle() const { return completed_.load() == submitted_.load(); }
  bool done(uint64_t task) const { return completed_.load() >= task; }
  // Waits until all that was queued before the call is done. 0, or 507046.
  bool wait(Deadline deadline);
  // Drops what is queued and interrupts what waits; does not wait for a task that runs.
  void drop_queued();
  // No task after those queued now: the worker ends when it is through (or at once after drop_queued()).
  void close();
  // True when the task that the calling worker runs was dropped, and should stop waiting.
  static bool interrupted();
  // The same for a task that waits for another one, which a fault of the device may have ended: it would not be woken.
  static bool waits_in_vain();
  static Stream* of_this_worker();
  static uint64_t task_of_this_worker();  // the number of the task that it runs
  void run_task(Task* task);          // with delay, trace and the handling of faults
  void note_fault(const Task& task, int code, const char* message) noexcept;

  Device& device;
  const int id;
  const uint32_t priority, flags;
  std::atomic<bool> stop_on_failure{false};
  std::atomic<int> pending{0};        // a failure that leaves the device sound, or an abort: answered once
  std::atomic<uint32_t> overflow_switch{0}, custom_tag{0}, caches_op_info{0};
  std::atomic<uint32_t> last_task{0};
  std::atomic<int64_t> model_time{0};  // of device time (model.h), up to which its tasks are through
  void wait_in_model_until(int64_t ns);  // by its worker
  Capture* capture = nullptr;         // guarded by capture_mutex()
  uint32_t core_limit[2] = {0, 0};

  // 0, or what a synchronising call has to answer, with its message noted: the device's fault, an abort, a failure.
  int report();
  void note_pending(int code, const char* message) noexcept;
  bool waited_for() const { return waiters_.load() > 0; }  // by a thread of the host
  const std::shared_ptr<Faults> faults;

 private:
  ~Stream() = default;
  void start();
  void work();
  Task* take_all();                   // oldest first; nullptr: nothing queued
  void sleep_until_pushed();
  bool wait_for(uint64_t task, Deadline deadline);
  void finish(Task* task);
  void delay();

  const uint64_t depth_;              // tasks that it holds
  std::atomic<Task*> head_{nullptr};  // newest first
  std::atomic<uint64_t> submitted_{0}, completed_{0};
  std::atomic<uint64_t> drop_until_{0};          // tasks up to this number are not run any more
  std::atomic<uint64_t> wake_at_{UINT64_MAX};    // the number of done tasks that someone waits for
  std::atomic<bool> sleeping_{false}, started_{false}, closed_{false};
  std::atomic<int> refs_{1};
  std::mutex mutex_;
  std::condition_variable pushed_, done_;
  char pending_message_[kFaultText] = "";
  std::atomic<int> waiters_{0};
  std::mt19937_64 random_;
};

struct StreamHandle {
  StreamHandle(Context* c, Stream* s) : context(c), stream(s) {}
  ~StreamHandle() { stream->release(); }
  Context* const context;
  Stream* const stream;
};
Handles<StreamHandle>& streams();
// The live stream of the calling thread's context that the handle names (nullptr: the default one); nullptr with
// *code and its message noted when there is none.
StreamHandle* find_stream(aclrtStream stream, const char* function, int* code);
// As check_stream(), with the name of the client's function in the message.
int check_stream(aclrtStream stream, const char* function);
int new_stream(Context& context, uint32_t priority, uint32_t flags, StreamHandle** made);
void drop_stream(StreamHandle* handle);
// Waits for every stream of the device; 0 or a code.
int synchronize_device(Device& d, Deadline deadline);
// Waits for what was queued, and for what another thread queues meanwhile, and says nothing of it.
void let_streams_go_on(Device& d, Deadline deadline);
// Callbacks of a stream that goes away are forgotten.
void unsubscribe_stream(StreamHandle* handle);

// The host has waited for all that the stream has taken, or seen that it is done.
void host_waited(const Stream& stream);

void stop_workers_at_exit();          // and says what CANN_SIM_CHECK found
void report_leaks_at_exit();          // unless aclFinalize did

// Tells the client's exception callback, if there is one, what went wrong (callback.cpp).
void report_exception(const Stream& stream, int code);

// One record of an event. It is reached when the stream counts the task as done and not a moment before or after: who
// sees the event complete sees the stream complete, and the other way round. A one-shot flag has no stream.
class Mark {
 public:
  explicit Mark(Stream* stream) : stream_(stream) {
    if (stream) stream->retain();
  }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() { if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this; }
  bool reached() const {
    uint64_t task = task_.load();
    return task && (task == kNow || stream_->done(task));
  }
  int64_t time_ns() const { return time_.load(); }
  void reach_with(uint64_t task) {
    const Stream* worker = modelling() ? Stream::of_this_worker() : nullptr;
    time_ = worker ? worker->model_time.load() : modelling() ? host_model_time() : now_ns();
    if (following_order()) remember();
    task_ = task;
  }
  void reach_now() { reach_with(kNow); bell().ring(); }
  void forget() { task_ = 0; }        // aclrtResetEvent of a one-shot event
  // After a wait, or a query that found it reached: joins the clock of the task that reached it into this thread's.
  void learn_from() {
    if (modelling()) {
      Stream* worker = Stream::of_this_worker();
      if (worker) worker->wait_in_model_until(time_ns() + model_event_ns());
      else host_waited_until(time_ns());
    }
    if (!following_order()) return;
    std::lock_guard<std::mutex> hold(mutex_);
    learn(known_);
  }

 private:
  ~Mark() { if (stream_) stream_->release(); }
  void remember() {
    KnownRef known = this_thread_knows();
    std::lock_guard<std::mutex> hold(mutex_);
    known_ = std::move(known);
  }
  static constexpr uint64_t kNow = UINT64_MAX;
  Stream* const stream_;
  std::atomic<int64_t> time_{0};
  std::atomic<uint64_t> task_{0};     // the number of the task that records; 0: not reached
  std::mutex mutex_;
  KnownRef known_;                    // to be done where it was recorded; guarded by mutex_
  std::atomic<int> refs_{1};
};

// How an event came to be; each kind has rules of its own.
enum class EventKind { plain, flagged, capturing };  // aclrtCreateEvent, ...WithFlag, ...ExWithFlag
struct CapturePoint;
struct Event {
  Event(Context* c, EventKind k, uint32_t f);
  ~Event();
  Context* const context;
  const std::shared_ptr<Faults> faults;
  const EventKind kind;
  const uint32_t flags, id;
  std::mutex mutex;                   // guards latest
  Mark* latest = nullptr;             // the newest record; nullptr: none yet
  // One-shot kinds wait for a flag that a record sets and only aclrtResetEvent clears.
  Mark* const flag = new Mark(nullptr);
  std::shared_ptr<std::atomic<int>> waits = std::make_shared<std::atomic<int>>(0);  // queued and not yet over
  std::atomic<bool> was_awaited{false};  // and not reset since
  std::shared_ptr<IpcCounters> ipc;   // with ACL_EVENT_IPC: shared with other processes
  std::shared_ptr<CapturePoint> captured;  // recorded into a capture; guarded by capture_mutex()
  bool one_shot() const { return kind != EventKind::capturing; }
  Mark* take_latest();                // one reference, or nullptr
};
Handles<Event>& events();
void drop_events(const Context* context);

// ---- capture into graphs (graph.cpp)
std::mutex& capture_mutex();
// Whether any capture is going on at all, and so whether the slow questions below are worth asking.
bool any_capture();
// True when the stream is being captured: the task was added to its graph (or *code says why not).
bool capture_task(Stream& stream, Task* task, int* code);
// What recording and waiting mean for a stream that is captured, or is drawn into a capture by the event. True: done.
bool capture_record(Stream& stream, Event& event, int* code);
bool capture_wait(Stream& stream, Event& event, int* code);
int refuse_captured_event(Event& event, const char* function);
int refuse_pageable_copy(aclrtStream stream, const char* function);
void abandon_capture(Stream& stream);  // its context ends
// 0, or the code (noted) because `function` must not be called on a stream or event that is being captured.
int refuse_captured_stream(Stream& stream, const char* function);
// 0, or the code because a blocking call of this kind is not allowed in this thread while a capture goes on.
int refuse_unsafe_call(const char* function);

}  // namespace cann_sim
