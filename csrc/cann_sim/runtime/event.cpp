// Events of the three kinds: recorded and awaited by streams, queried and awaited by the host, timed.
#include "runtime/stream.h"

namespace cann_sim {
namespace {

constexpr size_t kMostEvents = 65536;
std::atomic<uint32_t> next_event_id{0};
std::atomic<uint32_t> wait_timeout_s{0};      // aclrtSetOpWaitTimeout; 0: for ever

class RecordTask final : public ControlTask {
 public:
  RecordTask(Mark* mark, Mark* flag) : mark_(mark), flag_(flag) {
    is_awaited = true;
    mark->retain();
    if (flag) flag->retain();
  }
  ~RecordTask() override {
    if (!recorded_) mark_->reach_now();  // dropped: the host must not wait for it for ever
    mark_->release();
    if (flag_) flag_->release();
  }
  void run() override {
    recorded_ = true;
    mark_->reach_with(Stream::task_of_this_worker());
    if (flag_) flag_->reach_now();
  }
  const char* name() const override { return "aclrtRecordEvent"; }

 private:
  Mark *mark_, *flag_;
  bool recorded_ = false;
};

class WaitTask final : public ControlTask {
 public:
  WaitTask(Mark* mark, std::shared_ptr<std::atomic<int>> waits, int64_t timeout_ms)
      : mark_(mark), waits_(std::move(waits)), timeout_ms_(timeout_ms) {
    mark->retain();
    ++*waits_;
  }
  ~WaitTask() override {
    --*waits_;
    mark_->release();
  }
  void run() override {
    bool in_time = bell().wait([this] { return mark_->reached() || Stream::waits_in_vain(); }, deadline_ms(timeout_ms_));
    if (!in_time)
      throw DeviceFault(ACL_ERROR_RT_WAIT_TIMEOUT,
                        "the event was not recorded within " + std::to_string(timeout_ms_) + " ms");
    mark_->learn_from();
  }
  const char* name() const override { return "aclrtStreamWaitEvent"; }

 private:
  Mark* mark_;
  std::shared_ptr<std::atomic<int>> waits_;
  int64_t timeout_ms_;                // -1: for ever
};

class ResetTask final : public ControlTask {
 public:
  explicit ResetTask(Mark* flag) : flag_(flag) { flag->retain(); }
  ~ResetTask() override { flag_->release(); }
  void run() override { flag_->forget(); }
  const char* name() const override { return "aclrtResetEvent"; }

 private:
  Mark* flag_;
};

Event* find_event(aclrtEvent handle, const char* function, int* code) {
  if (!handle) return *code = fail(ACL_ERROR_INVALID_PARAM, "%s: event is NULL", function), nullptr;
  if (!current_context()) return *code = ACL_ERROR_RT_CONTEXT_NULL, nullptr;
  Event* found = events().get(handle);
  if (!found) *code = fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is not a live event", function, handle);
  return found;
}

int create(aclrtEvent* out, EventKind kind, uint32_t flags, const char* function) {
  constexpr uint32_t known = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE |
                             ACL_EVENT_DEVICE_USE_ONLY | ACL_EVENT_EXTERNAL | ACL_EVENT_IPC;
  if (!out) return fail(ACL_ERROR_INVALID_PARAM, "%s: event is NULL", function);
  if (!flags || (flags & ~known)) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: unknown flag %#x", function, flags);
  for (uint32_t alone : {ACL_EVENT_EXTERNAL, ACL_EVENT_IPC})
    if ((flags & alone) && flags != alone)
      return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: flag %#x cannot be combined with others (got %#x)", function, alone,
                  flags);
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  if (events().live() >= kMostEvents * static_cast<size_t>(device_count()))
    return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "%s: device %d has no more events", function, c->device->id);
  Event* made = events().make(c, kind, flags);
  if (!made) return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "%s: too many events", function);
  if (flags & ACL_EVENT_IPC) made->ipc = IpcCounters::make();
  if ((flags & ACL_EVENT_IPC) && !made->ipc) {
    events().drop(made);
    return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "%s: the host shares no more memory", function);
  }
  *out = made;
  return 0;
}

bool can_sync(const Event& e) { return e.flags & (ACL_EVENT_SYNC | ACL_EVENT_EXTERNAL | ACL_EVENT_IPC); }

int refuse_kind(const Event& e, const char* function) {
  if (e.one_shot()) return 0;
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s: not for events of aclrtCreateEventExWithFlag", function);
}

int wait_for_event(aclrtStream stream, aclrtEvent handle, int64_t timeout_ms, const char* function) {
  int code = 0;
  Event* e = find_event(handle, function, &code);
  if (!e) return code;
  StreamHandle* found = find_stream(stream, function, &code);
  if (!found) return code;
  if (!can_sync(*e)) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the event was made without ACL_EVENT_SYNC", function);
  if (any_capture() && capture_wait(*found->stream, *e, &code)) return code;
  if (e->ipc && !e->ipc->reached(e->ipc->recorded()))
    if ((code = enqueue(stream, new_ipc_wait(e->ipc, timeout_ms)))) return code;
  if (e->one_shot()) {
    e->was_awaited = true;
    return enqueue(stream, new WaitTask(e->flag, e->waits, timeout_ms));
  }
  Mark* latest = e->take_latest();
  if (!latest) return 0;              // never recorded: nothing to wait for
  if (!latest->reached() || following_order() || modelling()) code = enqueue(stream, new WaitTask(latest, e->waits, timeout_ms));
  latest->release();
  return code;
}

int synchronize(aclrtEvent handle, int32_t timeout, const char* function) {
  if (timeout < -1) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: timeout must be -1 or milliseconds, got %d", function,
                                timeout);
  int code = 0;
  Event* e = find_event(handle, function, &code);
  if (!e) return code;
  if (int refused = refuse_captured_event(*e, function)) return refused;
  if (int refused = refuse_unsafe_call(function)) return refused;
  auto faults = e->faults;
  if (e->ipc && !wait_for_ipc(*e->ipc, timeout))
    return fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "%s: the event was not reached within %d ms", function, timeout);
  Mark* latest = e->take_latest();
  if (!latest) {
    if (!e->one_shot()) return 0;
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the event was never recorded: this would wait for ever", function);
  }
  bool in_time = bell().wait([&] { return latest->reached() || faults->halted.load(); }, deadline_ms(timeout));
  if (in_time) latest->learn_from();
  latest->release();
  if (!in_time) return fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "%s: the event was not reached within %d ms", function,
                            timeout);
  return faults->report();
}

// When the event's newest record was reached, or a code.
int times(aclrtEvent handle, const char* function, int64_t* ns) {
  int code = 0;
  Event* e = find_event(handle, function, &code);
  if (!e) return code;
  if (int refused = refuse_captured_event(*e, function)) return refused;
  if (!(e->flags & ACL_EVENT_TIME_LINE))
    return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "%s: the event was made without ACL_EVENT_TIME_LINE", function);
  Mark* latest = e->take_latest();
  if (!latest) return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "%s: the event was never recorded", function);
  bool complete = latest->reached();
  *ns = latest->time_ns();
  latest->release();
  return complete ? 0 : fail(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "%s: the event is not complete", function);
}

}  // namespace

Handles<Event>& events() {
  static Handles<Event>& pool = *new Handles<Event>(1 << 20);
  return pool;
}

Event::Event(Context* c, EventKind k, uint32_t f)
    : context(c), faults(c->faults), kind(k), flags(f), id(next_event_id.fetch_add(1)) {}

Event::~Event() {
  if (latest) latest->release();
  flag->release();
}

Mark* Event::take_latest() {
  std::lock_guard<std::mutex> hold(mutex);
  if (latest) latest->retain();
  return latest;
}

void drop_events(const Context* context) {
  for (Event* e : events().all())
    if (e->context == context) events().drop(e);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtCreateEvent(aclrtEvent* event) {
  CANN_ENTRY("aclrtCreateEvent");
  return create(event, EventKind::plain, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE, "aclrtCreateEvent");
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  CANN_ENTRY("aclrtCreateEventWithFlag");
  return create(event, EventKind::flagged, flag, "aclrtCreateEventWithFlag");
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  CANN_ENTRY("aclrtCreateEventExWithFlag");
  return create(event, EventKind::capturing, flag, "aclrtCreateEventExWithFlag");
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  CANN_ENTRY("aclrtDestroyEvent");
  if (!event) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDestroyEvent: event is NULL");
  if (is_forked_child()) return fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtDestroyEvent: the process was forked");
  if (events().drop(event)) return 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtDestroyEvent: %p is not a live event", event);
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  CANN_ENTRY("aclrtRecordEvent");
  int code = 0;
  Event* e = find_event(event, "aclrtRecordEvent", &code);
  if (!e) return code;
  StreamHandle* found = find_stream(stream, "aclrtRecordEvent", &code);
  if (!found) return code;
  if (e->context != found->context)
    return fail(ACL_ERROR_RT_STREAM_CONTEXT, "aclrtRecordEvent: the event and the stream belong to different contexts");
  if (settings().strict && e->one_shot() && e->flag->reached() && e->was_awaited.load())
    return fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclrtRecordEvent: this kind of event needs aclrtResetEvent after a wait, before "
                "it is recorded again");
  if (any_capture() && capture_record(*found->stream, *e, &code)) return code;
  Mark* mark = new Mark(found->stream);
  {
    std::lock_guard<std::mutex> hold(e->mutex);
    if (e->latest) e->latest->release();
    e->latest = mark;
    mark->retain();
  }
  code = 0;
  bool nothing_before = found->stream->idle() && settings().mode != Mode::delay && !modelling() &&
                        !following_order();
  if (nothing_before && !any_capture() && !found->stream->faults->halted.load()) {
    mark->reach_now();                // nothing to wait for: the worker is not woken for it
    if (e->one_shot()) e->flag->reach_now();
  } else {
    code = enqueue(stream, new RecordTask(mark, e->one_shot() ? e->flag : nullptr));
  }
  mark->release();
  if (!code && e->ipc) code = enqueue(stream, new_ipc_record(e->ipc));
  return code;
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  CANN_ENTRY("aclrtStreamWaitEvent");
  uint32_t seconds = wait_timeout_s.load();
  return wait_for_event(stream, event, seconds ? seconds * 1000ll : -1, "aclrtStreamWaitEvent");
}

aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout) {
  CANN_ENTRY("aclrtStreamWaitEventWithTimeout");
  if (timeout < -1) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtStreamWaitEventWithTimeout: bad timeout %d", timeout);
  return wait_for_event(stream, event, timeout > 0 ? timeout : -1, "aclrtStreamWaitEventWithTimeout");
}

namespace {

int refuse_external(uint32_t flag, const char* function) {
  if (!flag) return 0;
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s: only flag 0; an event for updates is made with ACL_EVENT_EXTERNAL",
              function);
}

}  // namespace

aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag) {
  CANN_ENTRY("aclrtRecordEventWithFlag");
  if (int code = refuse_external(flag, "aclrtRecordEventWithFlag")) return code;
  return aclrtRecordEvent(event, stream);
}

aclError aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout, uint32_t flag) {
  CANN_ENTRY("aclrtStreamWaitEventWithFlag");
  if (int code = refuse_external(flag, "aclrtStreamWaitEventWithFlag")) return code;
  return wait_for_event(stream, event, timeout ? static_cast<int64_t>(timeout) : -1, "aclrtStreamWaitEventWithFlag");
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  CANN_ENTRY("aclrtSetOpWaitTimeout");
  wait_timeout_s = timeout;
  return 0;
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  CANN_ENTRY("aclrtResetEvent");
  int code = 0;
  Event* e = find_event(event, "aclrtResetEvent", &code);
  if (!e) return code;
  if (!find_stream(stream, "aclrtResetEvent", &code)) return code;
  if (int refused = refuse_kind(*e, "aclrtResetEvent")) return refused;
  if (!can_sync(*e)) return fail(ACL_ERROR_RT_PARAM_INVALID,
                                 "aclrtResetEvent: the event was made without ACL_EVENT_SYNC");
  e->was_awaited = false;
  return enqueue(stream, new ResetTask(e->flag));
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  CANN_ENTRY("aclrtQueryEventStatus");
  if (!status) return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryEventStatus: status is NULL");
  int code = 0;
  Event* e = find_event(event, "aclrtQueryEventStatus", &code);
  if (!e) return code;
  if (int refused = refuse_captured_event(*e, "aclrtQueryEventStatus")) return refused;
  Mark* latest = e->take_latest();
  bool complete = latest ? latest->reached() : !e->one_shot();
  if (e->ipc) complete = complete && e->ipc->reached(e->ipc->recorded());
  if (latest && complete) latest->learn_from();
  if (latest) latest->release();
  if (complete)
    if (int fault = e->faults->report()) return fault;
  *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return 0;
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  CANN_ENTRY("aclrtQueryEvent");
  if (!status) return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryEvent: status is NULL");
  int code = 0;
  Event* e = find_event(event, "aclrtQueryEvent", &code);
  if (!e) return code;
  if (int refused = refuse_kind(*e, "aclrtQueryEvent")) return refused;
  if (int refused = refuse_captured_event(*e, "aclrtQueryEvent")) return refused;
  Mark* latest = e->take_latest();
  const bool complete = latest && latest->reached();
  *status = complete ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
  if (complete) latest->learn_from();
  if (latest) latest->release();
  return 0;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  CANN_ENTRY("aclrtQueryEventWaitStatus");
  if (!status) return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryEventWaitStatus: status is NULL");
  int code = 0;
  Event* e = find_event(event, "aclrtQueryEventWaitStatus", &code);
  if (!e) return code;
  if (int refused = refuse_kind(*e, "aclrtQueryEventWaitStatus")) return refused;
  if (int refused = refuse_captured_event(*e, "aclrtQueryEventWaitStatus")) return refused;
  *status = e->waits->load() == 0 ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return 0;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  CANN_ENTRY("aclrtSynchronizeEvent");
  return synchronize(event, -1, "aclrtSynchronizeEvent");
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  CANN_ENTRY("aclrtSynchronizeEventWithTimeout");
  return synchronize(event, timeout, "aclrtSynchronizeEventWithTimeout");
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  CANN_ENTRY("aclrtEventElapsedTime");
  if (!ms) return fail(ACL_ERROR_INVALID_PARAM, "aclrtEventElapsedTime: ms is NULL");
  int64_t start, end;
  if (int code = times(startEvent, "aclrtEventElapsedTime", &start)) return code;
  if (int code = times(endEvent, "aclrtEventElapsedTime", &end)) return code;
  if (end < start)
    return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
                "aclrtEventElapsedTime: the end event was reached before the start event");
  *ms = static_cast<float>(end - start) * 1e-6f;
  return 0;
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp) {
  CANN_ENTRY("aclrtEventGetTimestamp");
  if (!timestamp) return fail(ACL_ERROR_INVALID_PARAM, "aclrtEventGetTimestamp: timestamp is NULL");
  int64_t ns;
  if (int code = times(event, "aclrtEventGetTimestamp", &ns)) return code;
  *timestamp = static_cast<uint64_t>(ns / 1000);
  return 0;
}

aclError aclrtGetEventId(aclrtEvent event, uint32_t* eventId) {
  CANN_ENTRY("aclrtGetEventId");
  if (!eventId) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetEventId: eventId is NULL");
  int code = 0;
  Event* e = find_event(event, "aclrtGetEventId", &code);
  if (!e) return code;
  *eventId = e->id;
  return 0;
}

aclError aclrtGetEventAvailNum(uint32_t* eventCount) {
  CANN_ENTRY("aclrtGetEventAvailNum");
  if (!eventCount) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetEventAvailNum: eventCount is NULL");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  size_t live = events().live();
  *eventCount = static_cast<uint32_t>(live < kMostEvents ? kMostEvents - live : 0);
  return 0;
}
