// Stopping what is queued: one stream, or a whole device; and the ways a stream behaves after a failure.
#include <cstdio>

#include "runtime/stream.h"

namespace cann_sim {
namespace {

struct Registered {
  aclrtDeviceTaskAbortCallback callback;
  void* args;
};
std::mutex callbacks_mutex;
std::map<std::string, Registered>& abort_callbacks() {
  static auto& one = *new std::map<std::string, Registered>;
  return one;
}

int tell(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout) {
  std::map<std::string, Registered> told;
  {
    std::lock_guard<std::mutex> hold(callbacks_mutex);
    told = abort_callbacks();
  }
  for (auto& c : told)
    if (c.second.callback(device, stage, timeout, c.second.args))
      return fail(ACL_ERROR_RT_DEVICE_TASK_ABORT, "aclrtDeviceTaskAbort: the callback '%s' failed", c.first.c_str());
  return 0;
}

}  // namespace

bool on_task_abort(const std::string& name, aclrtDeviceTaskAbortCallback callback, void* args) {
  std::lock_guard<std::mutex> hold(callbacks_mutex);
  if (callback) abort_callbacks()[name] = {callback, args};
  return callback || abort_callbacks().erase(name);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtStreamAbort(aclrtStream stream) {
  CANN_ENTRY("aclrtStreamAbort");
  if (!stream) return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamAbort: stream is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtStreamAbort", &code);
  if (!found) return code;
  if (int refused = refuse_captured_stream(*found->stream, "aclrtStreamAbort")) return refused;
  Stream& s = *found->stream;
  if (s.idle()) return 0;
  char text[80];
  snprintf(text, sizeof text, "stream %d was aborted; what was queued did not run", s.id);
  s.note_pending(ACL_ERROR_RT_STREAM_ABORT, text);
  s.drop_queued();
  s.wait(kForever);
  host_waited(s);
  return 0;
}

aclError aclrtDeviceTaskAbort(int32_t deviceId, uint32_t timeout) {
  CANN_ENTRY("aclrtDeviceTaskAbort");
  Device* d = device(deviceId);
  if (!d) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtDeviceTaskAbort: there is no device %d", deviceId);
  if (int code = tell(deviceId, ACL_RT_DEVICE_TASK_ABORT_PRE, timeout)) return code;
  std::vector<Stream*> stopped;
  {
    std::lock_guard<std::mutex> hold(devices_mutex());
    for (StreamHandle* s : streams().all()) {
      if (s->context->device != d) continue;
      s->stream->retain();
      stopped.push_back(s->stream);
    }
  }
  for (Stream* s : stopped) {
    char text[80];
    snprintf(text, sizeof text, "the tasks of device %d were aborted", deviceId);
    // Waits that are under way return the error; later queries find the stream empty, so that clients can go on using it.
    if (!s->idle() && s->waited_for()) s->note_pending(ACL_ERROR_RT_DEVICE_TASK_ABORT, text);
    s->drop_queued();
  }
  bool in_time = true;
  Deadline deadline = timeout ? deadline_ms(timeout) : kForever;
  for (Stream* s : stopped) {
    in_time = s->wait(deadline) && in_time;
    if (in_time) host_waited(*s);
    if (in_time) s->faults->clear();    // the card takes tasks again
    s->release();
  }
  if (!in_time) return fail(ACL_ERROR_RT_TASK_TIMEOUT, "aclrtDeviceTaskAbort: a task did not end within %u ms",
                            timeout);
  return tell(deviceId, ACL_RT_DEVICE_TASK_ABORT_POST, timeout);
}

aclError aclrtSetDeviceTaskAbortCallback(const char* regName, aclrtDeviceTaskAbortCallback callback, void* args) {
  CANN_ENTRY("aclrtSetDeviceTaskAbortCallback");
  if (!regName) return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetDeviceTaskAbortCallback: regName is NULL");
  if (!on_task_abort(regName, callback, args))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetDeviceTaskAbortCallback: '%s' is not registered", regName);
  return 0;
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  CANN_ENTRY("aclrtSetStreamFailureMode");
  if (mode != ACL_CONTINUE_ON_FAILURE && mode != ACL_STOP_ON_FAILURE)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamFailureMode: %llu is not a failure mode",
                static_cast<unsigned long long>(mode));
  if (!stream) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamFailureMode: not for the default stream");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtSetStreamFailureMode", &code);
  if (!found) return code;
  if (mode == ACL_STOP_ON_FAILURE) found->stream->stop_on_failure = true;
  else if (found->stream->stop_on_failure.load())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamFailureMode: a stream that stops on failure stays so");
  return 0;
}

aclError aclrtGetErrorVerbose(int32_t deviceId, aclrtErrorInfo* errorInfo) {
  CANN_ENTRY("aclrtGetErrorVerbose");
  if (!errorInfo) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetErrorVerbose: errorInfo is NULL");
  Device* d = device(deviceId);
  if (!d) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtGetErrorVerbose: there is no device %d", deviceId);
  *errorInfo = {};
  std::lock_guard<std::mutex> hold(devices_mutex());
  for (Context* c : contexts().all())
    if (c->device == d && c->faults->code.load()) errorInfo->errorType = ACL_RT_ERROR_OTHERS;
  return 0;
}

aclError aclrtRepairError(int32_t deviceId, const aclrtErrorInfo* errorInfo) {
  CANN_ENTRY("aclrtRepairError");
  if (!errorInfo) return fail(ACL_ERROR_INVALID_PARAM, "aclrtRepairError: errorInfo is NULL");
  if (!device(deviceId)) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtRepairError: there is no device %d",
                                     deviceId);
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
              "aclrtRepairError: faults end with aclrtResetDevice or aclrtDeviceTaskAbort");
}
