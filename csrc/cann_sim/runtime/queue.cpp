// The queue of a stream and its worker: pushing, running, delaying, dropping, waiting. Clients call stream.cpp.
#include <cstdio>
#include <cstdlib>

#include "runtime/check.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

thread_local Stream* this_worker = nullptr;
thread_local uint64_t this_task = 0;          // its number in the stream

constexpr auto kSpin = std::chrono::microseconds(20);
constexpr int kLongestDelayUs = 200;

// Workers run until the process ends. Before static objects of other libraries go away, they stop taking tasks, and
// the ones in the middle of a task get a moment to finish it.
std::atomic<bool> exiting{false};
std::atomic<int> running{0};

void stop_workers() {
  if (is_forked_child()) return;              // no worker came along
  exiting = true;
  bell().ring();
  Deadline latest = Clock::now() + std::chrono::seconds(2);
  while (running.load() > 0 && Clock::now() < latest) std::this_thread::yield();
  close_trace();
  write_calls();
  report_leaks_at_exit();
  finish_checks();
}

}  // namespace

void stop_workers_at_exit() {
  static const bool once = (std::atexit(stop_workers), true);
  (void)once;
}

namespace {

// The faults after which a card needs a reset; waiting too long is not one.
bool is_device_fault(int code) {
  return code >= 507000 && code < 508000 && code != ACL_ERROR_RT_STREAM_SYNC_TIMEOUT &&
         code != ACL_ERROR_RT_EVENT_SYNC_TIMEOUT;
}

}  // namespace

Task::~Task() = default;

Bell& bell() {
  static Bell& one = *new Bell;
  return one;
}

Deadline deadline_ms(int64_t milliseconds) {
  return milliseconds < 0 ? kForever : Clock::now() + std::chrono::milliseconds(milliseconds);
}

void Faults::note(int fault, const char* text) noexcept {
  std::lock_guard<std::mutex> hold(mutex_);
  if (code.load()) return;
  snprintf(message_, sizeof message_, "%s", text);
  code = fault;
}

int Faults::report() {
  int fault = code.load(std::memory_order_acquire);
  if (!fault) return 0;
  std::lock_guard<std::mutex> hold(mutex_);
  return fail(fault, "%s", message_);
}

void Faults::clear() {
  std::lock_guard<std::mutex> hold(mutex_);
  code = 0;
  halted = false;
}

Stream::Stream(Context& context, int number, uint32_t its_priority, uint32_t its_flags)
    : device(*context.device), id(number), priority(its_priority), flags(its_flags), faults(context.faults),
      depth_(settings().depth * (its_flags & ACL_STREAM_HUGE ? 4 : 1)),
      random_(settings().seed * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(number) + 1) {}

void Stream::release() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

Stream* Stream::of_this_worker() { return this_worker; }
uint64_t Stream::task_of_this_worker() { return this_task; }

bool Stream::interrupted() {
  if (exiting.load()) return true;
  return this_worker && (this_task <= this_worker->drop_until_.load() || this_worker->faults->halted.load());
}

bool Stream::waits_in_vain() { return interrupted() || (this_worker && this_worker->faults->code.load()); }

bool interrupted() { return Stream::interrupted(); }

void host_waited(const Stream& stream) {
  if (following_order()) host_waited_for(stream);
  if (modelling()) host_waited_until(stream.model_time.load());
}

void Stream::wait_in_model_until(int64_t ns) {
  if (ns > model_time.load()) model_time = ns;  // only the worker writes it
}

// ---- pushing ------------------------------------------------------------------------------------------------

void Stream::push(Task* task) {
  if (!started_.load(std::memory_order_acquire)) start();
  // A card's queue is as long, and the host waits where it is full. Workers do not: one might wait for itself.
  const uint64_t queued = submitted_.fetch_add(1);
  if (queued >= depth_ && !this_worker && completed_.load(std::memory_order_relaxed) + depth_ <= queued)
    wait_for(queued + 1 - depth_, kForever);
  Task* newest = head_.load(std::memory_order_relaxed);
  do task->next = newest;
  while (!head_.compare_exchange_weak(newest, task));
  // A worker that is awake finds the task by itself: no wake-up per task while it is busy.
  if (!newest && sleeping_.load()) {
    std::lock_guard<std::mutex> hold(mutex_);
    pushed_.notify_one();
  }
}

void Stream::start() {
  std::lock_guard<std::mutex> hold(mutex_);
  if (started_.load()) return;
  stop_workers_at_exit();
  std::thread worker([this] { work(); });     // throws where the host has no thread left
  retain();                                   // for the worker, which cannot end before this: close() needs mutex_
  worker.detach();
  started_.store(true, std::memory_order_release);
}

void Stream::close() {
  std::lock_guard<std::mutex> hold(mutex_);
  closed_ = true;
  pushed_.notify_all();
}

void Stream::drop_queued() {
  drop_until_ = submitted_.load();
  bell().ring();
}

// ---- the worker ---------------------------------------------------------------------------------------------

Task* Stream::take_all() {
  Task* newest = head_.exchange(nullptr);
  Task* oldest = nullptr;
  while (newest) {
    Task* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  return oldest;
}

void Stream::sleep_until_pushed() {
  Deadline until = Clock::now() + kSpin;
  while (Clock::now() < until) {
    if (head_.load(std::memory_order_relaxed)) return;
    std::this_thread::yield();
  }
  std::unique_lock<std::mutex> hold(mutex_);
  sleeping_ = true;
  while (!head_.load() && !closed_.load()) pushed_.wait(hold);
  sleeping_ = false;
}

void Stream::work() {
  this_worker = this;
  for (;;) {
    Task* task = take_all();
    if (!task) {
      if (closed_.load() && !head_.load()) break;
      sleep_until_pushed();
      continue;
    }
    while (task) {
      Task* next = task->next;
      task->next = nullptr;
      this_task = completed_.load(std::memory_order_relaxed) + 1;
      ++running;
      if (!interrupted()) {
        if (following_order()) begin_task(*this, *task);
        run_task(task);
      }
      --running;
      finish(task);
      task = next;
    }
  }
  this_worker = nullptr;
  release();
}

void Stream::finish(Task* task) {
  bool awaited = task->is_awaited;
  task->release();  // before the count: who has synchronised may check for leaks
  uint64_t done = completed_.fetch_add(1) + 1;
  if (awaited) bell().ring();
  if (done >= wake_at_.load()) {
    std::lock_guard<std::mutex> hold(mutex_);
    wake_at_ = UINT64_MAX;
    done_.notify_all();
  }
}

void Stream::delay() {
  auto us = static_cast<int64_t>(random_() % (kLongestDelayUs + 1));
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

void Stream::run_task(Task* task) {
  const Settings& set = settings();
  if (set.mode == Mode::null && !task->always_runs) return;
  if (set.mode == Mode::delay) delay();
  int64_t begin = tracing() ? now_ns() : 0, end = 0;
  if (modelling()) wait_in_model_until(task->queued_at);
  last_task.fetch_add(1, std::memory_order_relaxed);
  try {
    if (int code = planned_task_fault(task->name(), device))
      throw DeviceFault(code, std::string(task->name()) + ": fails on the device by the fault plan");
    if (device.lost.load()) throw DeviceFault(ACL_ERROR_RT_LOST_HEARTBEAT,
                                              "device " + std::to_string(device.id) + " is lost");
    if (following_order()) note_uses(*this, *task);
    task->run();
    if (modelling()) end = (begin = model_time.load()) + model_ns(task->work()), model_time = end;
  } catch (const LateRefusal& refusal) {
    note_pending(refusal.code, refusal.what());
  } catch (const DeviceFault& fault) {
    note_fault(*task, fault.code, fault.what());
  } catch (const std::bad_alloc&) {
    note_fault(*task, ACL_ERROR_RT_MEMORY_ALLOCATION, "the host has no memory left");
  } catch (const std::exception& error) {
    note_fault(*task, ACL_ERROR_RT_AICORE_EXCEPTION, error.what());
  }
  if (tracing())
    trace_task(task->name(), device.id, id, begin, modelling() ? end : now_ns(), task->always_runs ? 0 : task->queued_at);
}

void Stream::note_fault(const Task& task, int code, const char* message) noexcept {
  char text[kFaultText];
  snprintf(text, sizeof text, "%s on stream %d of device %d failed: %s", task.name(), id, device.id, message);
  if (is_device_fault(code)) faults->note(code, text);
  else note_pending(code, text);
  if (stop_on_failure.load()) {
    faults->note(code, text);
    faults->halted = true;
  }
  bell().ring();
  report_exception(*this, code);
}

void Stream::note_pending(int code, const char* message) noexcept {
  std::lock_guard<std::mutex> hold(mutex_);
  if (pending.load()) return;
  snprintf(pending_message_, sizeof pending_message_, "%s", message);
  pending = code;
}

int Stream::report() {
  if (int code = faults->report()) return code;
  if (!pending.load()) return 0;
  std::lock_guard<std::mutex> hold(mutex_);
  int code = pending.exchange(0);
  return code ? fail(code, "%s", pending_message_) : 0;
}

bool Stream::wait(Deadline deadline) { return wait_for(submitted_.load(), deadline); }

bool Stream::wait_for(uint64_t target, Deadline deadline) {
  if (completed_.load() >= target) return true;
  struct Counted {
    std::atomic<int>& n;
    explicit Counted(std::atomic<int>& waiters) : n(waiters) { ++n; }
    ~Counted() { --n; }
  } const counted(waiters_);
  Deadline spin = Clock::now() + kSpin;
  while (Clock::now() < spin && completed_.load(std::memory_order_acquire) < target) std::this_thread::yield();
  std::unique_lock<std::mutex> hold(mutex_);
  while (true) {
    wake_at_ = std::min(wake_at_.load(), target);  // before the look, as the worker looks after it counts
    if (completed_.load() >= target) return true;
    if (deadline == kForever) done_.wait(hold);
    else if (done_.wait_until(hold, deadline) == std::cv_status::timeout) return completed_.load() >= target;
  }
}

}  // namespace cann_sim
