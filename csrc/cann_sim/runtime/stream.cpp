// Clients' calls on streams: making, ending, waiting, asking, and queueing a task. The queue itself is in queue.cpp.
#include "runtime/stream.h"

namespace cann_sim {
namespace {

constexpr uint32_t kStreamFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC | ACL_STREAM_PERSISTENT |
                                  ACL_STREAM_HUGE | ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;
constexpr size_t kMostStreams = 2048;   // of one device, as on the card

std::atomic<int> next_stream_id{0};
thread_local uint32_t launched_by_thread = 0;

int check_timeout(int32_t timeout, const char* function) {
  if (timeout >= -1) return 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: timeout must be -1 (for ever) or milliseconds, got %d", function,
              timeout);
}

// A stream with a reference of its own, because another thread may destroy it from here on.
class HeldStream {
 public:
  HeldStream(aclrtStream handle, const char* function) {
    std::lock_guard<std::mutex> hold(devices_mutex());
    handle_ = find_stream(handle, function, &code_);
    if (!handle_) return;
    is_default_ = handle_ == handle_->context->default_stream;
    stream_ = handle_->stream;
    stream_->retain();
  }
  ~HeldStream() {
    if (stream_) stream_->release();
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  int code() const { return code_; }    // why there is none
  bool is_default() const { return is_default_; }
  StreamHandle* handle() const { return handle_; }
  Stream& operator*() const { return *stream_; }
  Stream* operator->() const { return stream_; }

 private:
  StreamHandle* handle_ = nullptr;
  Stream* stream_ = nullptr;
  bool is_default_ = false;
  int code_ = 0;
};

int synchronize(aclrtStream handle, int32_t timeout, const char* function) {
  if (int code = check_timeout(timeout, function)) return code;
  HeldStream s(handle, function);
  if (s.code()) return s.code();
  if (int refused = refuse_captured_stream(*s, function)) return refused;
  if (s->wait(deadline_ms(timeout))) {
    host_waited(*s);
    return s->report();
  }
  return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "%s: stream %d was not done after %d ms", function, s->id, timeout);
}

int create(aclrtStream* out, uint32_t priority, uint32_t flags, const char* function) {
  if (!out) return fail(ACL_ERROR_INVALID_PARAM, "%s: stream is NULL", function);
  if (priority > 7) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: priority must be 0 to 7, got %u", function, priority);
  if (flags & ~kStreamFlags) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: unknown flag %#x", function, flags);
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  StreamHandle* made;
  {
    std::lock_guard<std::mutex> hold(devices_mutex());
    if (int code = new_stream(*c, priority, flags, &made)) return code;
  }
  *out = made;
  tell_stream_state(made, ACL_RT_STREAM_STATE_CREATE_POST);
  return 0;
}

int destroy(aclrtStream handle, bool wait, const char* function) {
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "%s: stream is NULL", function);
  HeldStream s(handle, function);
  if (s.code()) return s.code();
  if (s.is_default())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the default stream of a context cannot be destroyed", function);
  if (int refused = refuse_captured_stream(*s, function)) return refused;
  tell_stream_state(handle, ACL_RT_STREAM_STATE_DESTROY_PRE);
  if (wait) s->wait(kForever);
  else s->drop_queued();
  host_waited(*s);
  const int code = wait ? s->report() : 0;
  std::lock_guard<std::mutex> hold(devices_mutex());
  if (!streams().check(handle)) return fail(ACL_ERROR_RT_STREAM_CONTEXT, "%s: %p was destroyed by another thread",
                                            function, handle);
  drop_stream(s.handle());
  return code;
}

}  // namespace

Handles<StreamHandle>& streams() {
  static Handles<StreamHandle>& pool = *new Handles<StreamHandle>(65536);
  return pool;
}

// The caller holds devices_mutex().
int new_stream(Context& c, uint32_t priority, uint32_t flags, StreamHandle** made) {
  if (c.streams.size() >= kMostStreams) return fail(ACL_ERROR_RT_NO_STREAM_RESOURCE, "device %d has no more streams",
                                                    c.device->id);
  auto stream = new Stream(c, next_stream_id.fetch_add(1), priority, flags);
  *made = streams().make(&c, stream);
  if (!*made) {
    stream->release();
    return fail(ACL_ERROR_RT_NO_STREAM_RESOURCE, "too many streams");
  }
  c.streams.insert(*made);
  return 0;
}

// The caller holds devices_mutex().
void drop_stream(StreamHandle* handle) {
  unsubscribe_stream(handle);
  abandon_capture(*handle->stream);
  handle->context->streams.erase(handle);
  handle->stream->close();
  streams().drop(handle);
}

StreamHandle* find_stream(aclrtStream handle, const char* function, int* code) {
  Context* c = current_context();
  if (!c) {
    *code = ACL_ERROR_RT_CONTEXT_NULL;
    return nullptr;
  }
  if (!handle) return c->default_stream;
  StreamHandle* found = streams().get(handle);
  if (found && found->context == c) return found;
  *code = fail(ACL_ERROR_RT_STREAM_CONTEXT, found ? "%s: stream %p belongs to another context than this thread's"
                                                  : "%s: %p is not a live stream", function, handle);
  return nullptr;
}

int check_stream(aclrtStream handle) { return check_stream(handle, "launch"); }

int check_stream(aclrtStream handle, const char* function) {
  int code = 0;
  StreamHandle* found = find_stream(handle, function, &code);
  if (!found) return code;
  return found->stream->faults->halted.load(std::memory_order_relaxed) ? found->stream->faults->report() : 0;
}

int stream_device(aclrtStream handle) {
  Context* c = peek_context();
  if (!handle) return c ? c->device->id : -1;
  StreamHandle* found = streams().get(handle);
  return found ? found->context->device->id : -1;
}

int enqueue(aclrtStream handle, Task* task) {
  int code = 0;
  StreamHandle* found = find_stream(handle, task->name(), &code);
  if (found && found->stream->faults->halted.load(std::memory_order_relaxed)) code = found->stream->faults->report();
  if (code) {
    task->release();
    return code;
  }
  Stream& s = *found->stream;
  try {
    if (following_order()) task->host_knew = nullptr;
    if (any_capture() && capture_task(s, task, &code)) return ++launched_by_thread, code;
    if (following_order()) task->host_knew = host_knows();
    if (modelling()) task->queued_at = host_model_time();
    else if (tracing()) task->queued_at = now_ns();
    if (settings().mode == Mode::null && !task->always_runs && s.idle()) task->release();
    else s.push(task);
  } catch (...) {                       // no memory, or no thread for the stream: the task was not taken
    task->release();
    throw;
  }
  ++launched_by_thread;
  s.device.launcher.store(&launched_by_thread, std::memory_order_relaxed);
  s.device.launches.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

static std::vector<Stream*> retained_streams(Device& d) {
  std::vector<Stream*> all;
  std::lock_guard<std::mutex> hold(devices_mutex());
  for (StreamHandle* s : streams().all())
    if (s->context->device == &d) {
      s->stream->retain();
      all.push_back(s->stream);
    }
  return all;
}

void let_streams_go_on(Device& d, Deadline deadline) {
  for (uint64_t before;;) {
    before = d.launches.load();
    for (Stream* s : retained_streams(d)) {
      s->wait(deadline);
      s->release();
    }
    if (d.launcher.load() == &launched_by_thread || !d.launcher.load() || Clock::now() >= deadline) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // another thread may be about to queue more
    if (d.launches.load() == before) return;
  }
}

int synchronize_device(Device& d, Deadline deadline) {
  int code = 0;
  for (Stream* s : retained_streams(d)) {  // also after one has failed: the client may free what all of them use
    const bool in_time = s->wait(deadline);
    if (in_time) host_waited(*s);
    if (!code && !in_time)
      code = fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "stream %d of device %d was not done in time", s->id, d.id);
    if (!code) code = s->report();
    s->release();
  }
  return code;
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtCreateStream(aclrtStream* stream) {
  CANN_ENTRY("aclrtCreateStream");
  return create(stream, 0, 0, "aclrtCreateStream");
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  CANN_ENTRY("aclrtCreateStreamWithConfig");
  return create(stream, priority, flag, "aclrtCreateStreamWithConfig");
}

aclError aclrtDestroyStream(aclrtStream stream) {
  CANN_ENTRY("aclrtDestroyStream");
  return destroy(stream, true, "aclrtDestroyStream");
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  CANN_ENTRY("aclrtDestroyStreamForce");
  return destroy(stream, false, "aclrtDestroyStreamForce");
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  CANN_ENTRY("aclrtSynchronizeStream");
  return synchronize(stream, -1, "aclrtSynchronizeStream");
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  CANN_ENTRY("aclrtSynchronizeStreamWithTimeout");
  return synchronize(stream, timeout, "aclrtSynchronizeStreamWithTimeout");
}

namespace {

int synchronize_current_device(int32_t timeout, const char* function) {
  if (int code = check_timeout(timeout, function)) return code;
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  if (int code = refuse_unsafe_call(function)) return code;
  return synchronize_device(*c->device, deadline_ms(timeout));
}

}  // namespace

aclError aclrtSynchronizeDevice() {
  CANN_ENTRY("aclrtSynchronizeDevice");
  return synchronize_current_device(-1, "aclrtSynchronizeDevice");
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  CANN_ENTRY("aclrtSynchronizeDeviceWithTimeout");
  return synchronize_current_device(timeout, "aclrtSynchronizeDeviceWithTimeout");
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  CANN_ENTRY("aclrtStreamQuery");
  if (!status) return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamQuery: status is NULL");
  int code;
  StreamHandle* found = find_stream(stream, "aclrtStreamQuery", &code);
  if (!found) return code;
  if (int refused = refuse_captured_stream(*found->stream, "aclrtStreamQuery")) return refused;
  bool idle = found->stream->idle();
  if (idle) host_waited(*found->stream);
  if (idle)
    if (int fault = found->stream->report()) return fault;
  *status = idle ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return 0;
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  CANN_ENTRY("aclrtStreamGetId");
  if (!streamId) return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamGetId: streamId is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtStreamGetId", &code);
  if (!found) return code;
  *streamId = found->stream->id;
  return 0;
}

aclError aclrtStreamGetPriority(aclrtStream stream, uint32_t* priority) {
  CANN_ENTRY("aclrtStreamGetPriority");
  if (!priority) return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamGetPriority: priority is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtStreamGetPriority", &code);
  if (!found) return code;
  *priority = found->stream->priority;
  return 0;
}

aclError aclrtStreamGetFlags(aclrtStream stream, uint32_t* flags) {
  CANN_ENTRY("aclrtStreamGetFlags");
  if (!flags) return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamGetFlags: flags is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtStreamGetFlags", &code);
  if (!found) return code;
  *flags = found->stream->flags;
  return 0;
}

aclError aclrtGetStreamAvailableNum(uint32_t* streamCount) {
  CANN_ENTRY("aclrtGetStreamAvailableNum");
  if (!streamCount) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetStreamAvailableNum: streamCount is NULL");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  std::lock_guard<std::mutex> hold(devices_mutex());
  *streamCount = static_cast<uint32_t>(kMostStreams - c->streams.size());
  return 0;
}

aclError aclrtGetThreadLastTaskId(uint32_t* taskId) {
  CANN_ENTRY("aclrtGetThreadLastTaskId");
  if (!taskId) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetThreadLastTaskId: taskId is NULL");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  *taskId = launched_by_thread;
  return 0;
}
