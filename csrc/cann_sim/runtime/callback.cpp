// Functions of the client that a stream calls: callbacks run by a thread that polls, host functions, exception reports.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <deque>

#include "runtime/stream.h"

struct aclrtExceptionInfo {
  uint32_t task, stream, thread, device, code;
};

namespace cann_sim {
namespace {

// A callback on its way from a stream to the thread that polls.
struct Report {
  aclrtCallback function;
  void* data;
  std::atomic<bool> done{false};
};
struct Inbox {                          // of one polling thread
  std::mutex mutex;
  std::deque<std::shared_ptr<Report>> waiting;
  std::atomic<size_t> count{0};
};
struct Subscriptions {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Inbox>> threads;
  std::map<const StreamHandle*, uint64_t> streams;
};
Subscriptions& subscriptions() {
  static Subscriptions& one = *new Subscriptions;
  return one;
}

class CallbackTask final : public ControlTask {
 public:
  CallbackTask(std::shared_ptr<Inbox> inbox, aclrtCallback function, void* data, bool blocks)
      : inbox_(std::move(inbox)), function_(function), data_(data), blocks_(blocks) {}
  void run() override {
    host_waited(*Stream::of_this_worker());  // it tells the client's thread
    auto report = std::make_shared<Report>();
    report->function = function_;
    report->data = data_;
    {
      std::lock_guard<std::mutex> hold(inbox_->mutex);
      inbox_->waiting.push_back(report);
      inbox_->count = inbox_->waiting.size();
    }
    bell().ring();
    if (blocks_) bell().wait([&] { return report->done.load() || Stream::interrupted(); }, kForever);
  }
  const char* name() const override { return "aclrtLaunchCallback"; }

 private:
  std::shared_ptr<Inbox> inbox_;
  aclrtCallback function_;
  void* data_;
  bool blocks_;
};

class HostFuncTask final : public ControlTask {
 public:
  HostFuncTask(aclrtHostFunc function, void* data) : function_(function), data_(data) {}
  void run() override {
    host_waited(*Stream::of_this_worker());
    function_(data_);
  }
  const char* name() const override { return "aclrtLaunchHostFunc"; }

 private:
  aclrtHostFunc function_;
  void* data_;
};

int subscribe(uint64_t thread, aclrtStream stream, const char* function) {
  if (!thread) return fail(ACL_ERROR_INVALID_PARAM, "%s: threadId is 0", function);
  int code = 0;
  StreamHandle* found = find_stream(stream, function, &code);
  if (!found) return code;
  Subscriptions& s = subscriptions();
  std::lock_guard<std::mutex> hold(s.mutex);
  if (!s.streams.emplace(found, thread).second)
    return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "%s: the stream is subscribed already", function);
  auto& inbox = s.threads[thread];
  if (!inbox) inbox = std::make_shared<Inbox>();
  return 0;
}

// The caller holds the mutex. A thread that serves no stream any more is forgotten.
void forget(Subscriptions& s, std::map<const StreamHandle*, uint64_t>::iterator entry) {
  uint64_t thread = entry->second;
  s.streams.erase(entry);
  for (auto& other : s.streams)
    if (other.second == thread) return;
  s.threads.erase(thread);
}

int unsubscribe(uint64_t thread, aclrtStream stream, const char* function) {
  int code = 0;
  StreamHandle* found = find_stream(stream, function, &code);
  if (!found) return code;
  Subscriptions& s = subscriptions();
  std::lock_guard<std::mutex> hold(s.mutex);
  auto entry = s.streams.find(found);
  if (entry == s.streams.end() || entry->second != thread)
    return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE, "%s: the thread is not subscribed to the stream", function);
  forget(s, entry);
  return 0;
}

int process(int32_t timeout, const char* function) {
  if (timeout < -1) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: timeout must be -1 or milliseconds, got %d", function,
                                timeout);
  std::shared_ptr<Inbox> inbox;
  {
    Subscriptions& s = subscriptions();
    std::lock_guard<std::mutex> hold(s.mutex);
    auto mine = s.threads.find(static_cast<uint64_t>(pthread_self()));
    if (mine == s.threads.end())
      return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE, "%s: this thread is not subscribed to any stream", function);
    inbox = mine->second;
  }
  if (!bell().wait([&] { return inbox->count.load() > 0; }, deadline_ms(timeout)))
    return fail(ACL_ERROR_RT_REPORT_TIMEOUT, "%s: no callback came within %d ms", function, timeout);
  std::deque<std::shared_ptr<Report>> ready;
  {
    std::lock_guard<std::mutex> hold(inbox->mutex);
    ready.swap(inbox->waiting);
    inbox->count = 0;
  }
  for (auto& report : ready) {
    report->function(report->data);
    report->done = true;
    bell().ring();
  }
  return 0;
}

std::atomic<aclrtExceptionInfoCallback> exception_callback{nullptr};

}  // namespace

void unsubscribe_stream(StreamHandle* handle) {
  Subscriptions& s = subscriptions();
  std::lock_guard<std::mutex> hold(s.mutex);
  auto entry = s.streams.find(handle);
  if (entry != s.streams.end()) forget(s, entry);
}

void report_exception(const Stream& stream, int code) {
  std::vector<aclrtExceptionInfoCallback> callbacks = exception_callbacks();
  if (aclrtExceptionInfoCallback callback = exception_callback.load()) callbacks.push_back(callback);
  if (callbacks.empty()) return;
  aclrtExceptionInfo info = {stream.last_task.load(), static_cast<uint32_t>(stream.id),
                             static_cast<uint32_t>(syscall(SYS_gettid)), static_cast<uint32_t>(stream.device.id),
                             static_cast<uint32_t>(code)};
  for (aclrtExceptionInfoCallback callback : callbacks) callback(&info);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  CANN_ENTRY("aclrtSubscribeReport");
  return subscribe(threadId, stream, "aclrtSubscribeReport");
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  CANN_ENTRY("aclrtUnSubscribeReport");
  return unsubscribe(threadId, stream, "aclrtUnSubscribeReport");
}

aclError aclrtSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream) {
  CANN_ENTRY("aclrtSubscribeHostFunc");
  return subscribe(hostFuncThreadId, exeStream, "aclrtSubscribeHostFunc");
}

aclError aclrtUnSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream) {
  CANN_ENTRY("aclrtUnSubscribeHostFunc");
  return unsubscribe(hostFuncThreadId, exeStream, "aclrtUnSubscribeHostFunc");
}

aclError aclrtProcessReport(int32_t timeout) {
  CANN_ENTRY("aclrtProcessReport");
  return process(timeout, "aclrtProcessReport");
}

aclError aclrtProcessHostFunc(int32_t timeout) {
  CANN_ENTRY("aclrtProcessHostFunc");
  return process(timeout, "aclrtProcessHostFunc");
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType, aclrtStream stream) {
  CANN_ENTRY("aclrtLaunchCallback");
  if (!fn) return fail(ACL_ERROR_INVALID_PARAM, "aclrtLaunchCallback: fn is NULL");
  if (blockType != ACL_CALLBACK_NO_BLOCK && blockType != ACL_CALLBACK_BLOCK)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtLaunchCallback: %d is not a block type", blockType);
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtLaunchCallback", &code);
  if (!found) return code;
  std::shared_ptr<Inbox> inbox;
  {
    Subscriptions& s = subscriptions();
    std::lock_guard<std::mutex> hold(s.mutex);
    auto entry = s.streams.find(found);
    if (entry == s.streams.end())
      return fail(ACL_ERROR_RT_STREAM_NO_CB_REG, "aclrtLaunchCallback: no thread is subscribed to the stream");
    inbox = s.threads[entry->second];
  }
  return enqueue(stream, new CallbackTask(std::move(inbox), fn, userData, blockType == ACL_CALLBACK_BLOCK));
}

aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void* args) {
  CANN_ENTRY("aclrtLaunchHostFunc");
  if (!fn) return fail(ACL_ERROR_INVALID_PARAM, "aclrtLaunchHostFunc: fn is NULL");
  return enqueue(stream, new HostFuncTask(fn, args));
}

// ---- exceptions ---------------------------------------------------------------------------------------------

aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback) {
  CANN_ENTRY("aclrtSetExceptionInfoCallback");
  exception_callback = callback;
  return 0;
}

uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->task : UINT32_MAX; }
uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->stream : UINT32_MAX; }
uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->thread : UINT32_MAX; }
uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->device : UINT32_MAX; }
uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->code : UINT32_MAX; }
