// Devices opened and closed, contexts, and a thread's current context. What a device tells of itself is in info.cpp.
#include <pthread.h>

#include <cstdio>

#include "runtime/memory.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

thread_local Context* current = nullptr;
std::atomic<bool> forked{false};

void watch_forks() {
  // A child would write what is still in the trace's buffer a second time.
  static const int once = pthread_atfork(flush_trace, nullptr, [] { forked = true; });
  (void)once;
}

Device* all_devices() {
  static Device* const made = [] {
    Device* d = new Device[visible_devices().size() + 1];
    for (size_t i = 0; i < visible_devices().size(); ++i) {
      d[i].id = static_cast<int>(i);
      d[i].physical_id = visible_devices()[i];
    }
    return d;
  }();
  return made;
}

}  // namespace

bool is_forked_child() { return forked.load(std::memory_order_relaxed); }

std::mutex& devices_mutex() {
  static std::mutex& one = *new std::mutex;
  return one;
}

Handles<Context>& contexts() {
  static Handles<Context>& pool = *new Handles<Context>(4096);
  return pool;
}

int device_count() { return static_cast<int>(visible_devices().size()); }
Device* device(int id) { return id >= 0 && id < device_count() ? &all_devices()[id] : nullptr; }

Context* peek_context() { return !is_forked_child() && contexts().check(current) ? current : nullptr; }

Context* current_context() {
  if (Context* found = peek_context()) return found;
  if (!current && default_device() >= 0 && !is_forked_child() && !aclrtSetDevice(default_device())) return peek_context();
  if (is_forked_child())
    fail(ACL_ERROR_RT_CONTEXT_NULL,
         "this process was forked after its parent had used a device; start it with spawn or exec");
  else
    fail(ACL_ERROR_RT_CONTEXT_NULL,
         "this thread has no current context: call aclrtSetDevice or aclrtSetCurrentContext%s",
         current ? " (the one it had was destroyed)" : "");
  return nullptr;
}

void set_current_context(Context* context) { current = context; }

int check_context() { return current_context() ? 0 : static_cast<int>(ACL_ERROR_RT_CONTEXT_NULL); }

namespace {

// The caller holds devices_mutex().
int make_context(Device& d, bool primary, Context** made) {
  watch_forks();
  Context* c = contexts().make(&d, primary);
  if (!c) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many contexts");
  if (int code = new_stream(*c, 0, 0, &c->default_stream)) {
    contexts().drop(c);
    return code;
  }
  *made = c;
  return 0;
}

// The caller holds devices_mutex(). Drops what is queued.
void end_context(Context* c) {
  while (!c->streams.empty()) {
    StreamHandle* s = *c->streams.begin();
    s->stream->drop_queued();
    host_waited(*s->stream);
    drop_stream(s);
  }
  drop_events(c);
  if (c->device->primary == c) c->device->primary = nullptr;
  contexts().drop(c);
}

void close_device(Device& d) {
  for (Context* c : contexts().all())
    if (c->device == &d) end_context(c);
  d.set_count = 0;
  d.peers = 0;
  d.lost = false;
  d.core_limit[0] = d.core_limit[1] = 0;
  free_all(d);
}

int find_device(int32_t id, const char* function, Device** found) {
  if (is_forked_child())
    return fail(ACL_ERROR_RT_DEV_SETUP_ERROR, "%s: the process was forked after its parent had used a device",
                function);
  *found = device(id);
  if (*found) return 0;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: device %d does not exist, there are %d", function, id,
              device_count());
}

}  // namespace

void close_all_devices() {
  std::lock_guard<std::mutex> hold(devices_mutex());
  for (int i = 0; i < device_count(); ++i) close_device(*device(i));
}

}  // namespace cann_sim

using namespace cann_sim;

// ---- devices ------------------------------------------------------------------------------------------------

aclError aclrtSetDevice(int32_t deviceId) {
  CANN_ENTRY("aclrtSetDevice");
  Device* d;
  if (int code = find_device(deviceId, "aclrtSetDevice", &d)) return code;
  tell_device_state(deviceId, ACL_RT_DEVICE_STATE_SET_PRE);
  {
    std::lock_guard<std::mutex> hold(devices_mutex());
    if (!d->primary)
      if (int code = make_context(*d, true, &d->primary)) return code;
    ++d->set_count;
    set_current_context(d->primary);
  }
  tell_device_state(deviceId, ACL_RT_DEVICE_STATE_SET_POST);
  return 0;
}

namespace {

int reset_device(int32_t deviceId, bool force, const char* function) {
  Device* d;
  if (int code = find_device(deviceId, function, &d)) return code;
  tell_device_state(deviceId, ACL_RT_DEVICE_STATE_RESET_PRE);
  {
    std::lock_guard<std::mutex> hold(devices_mutex());
    if (!d->primary) return fail(ACL_ERROR_RT_CONTEXT_NULL, "%s: device %d is not set", function, deviceId);
    if (force || --d->set_count <= 0) close_device(*d);
  }
  tell_device_state(deviceId, ACL_RT_DEVICE_STATE_RESET_POST);
  return 0;
}

}  // namespace

aclError aclrtResetDevice(int32_t deviceId) {
  CANN_ENTRY("aclrtResetDevice");
  return reset_device(deviceId, false, "aclrtResetDevice");
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  CANN_ENTRY("aclrtResetDeviceForce");
  return reset_device(deviceId, true, "aclrtResetDeviceForce");
}

aclError aclrtGetDevice(int32_t* deviceId) {
  CANN_ENTRY("aclrtGetDevice");
  if (!deviceId) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDevice: deviceId is NULL");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  *deviceId = c->device->id;
  return 0;
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  CANN_ENTRY("aclrtGetDeviceCount");
  if (!count) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDeviceCount: count is NULL");
  *count = device_count();
  return 0;
}

aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t* flags, int32_t* active) {
  CANN_ENTRY("aclrtGetPrimaryCtxState");
  Device* d;
  if (int code = find_device(deviceId, "aclrtGetPrimaryCtxState", &d)) return code;
  if (!active) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetPrimaryCtxState: active is NULL");
  std::lock_guard<std::mutex> hold(devices_mutex());
  if (flags) *flags = 0;
  *active = d->primary != nullptr;
  return 0;
}

// ---- peers --------------------------------------------------------------------------------------------------

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  CANN_ENTRY("aclrtDeviceCanAccessPeer");
  if (!canAccessPeer) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDeviceCanAccessPeer: canAccessPeer is NULL");
  Device* d;
  if (int code = find_device(deviceId, "aclrtDeviceCanAccessPeer", &d)) return code;
  if (int code = find_device(peerDeviceId, "aclrtDeviceCanAccessPeer", &d)) return code;
  *canAccessPeer = deviceId != peerDeviceId;
  return 0;
}

namespace {

int set_peer(int32_t peer, bool enable, const char* function) {
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  Device* d;
  if (int code = find_device(peer, function, &d)) return code;
  if (d == c->device) return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: device %d is the current device", function, peer);
  uint64_t bit = 1ull << peer;
  if (enable) c->device->peers |= bit;
  else if (!(c->device->peers.fetch_and(~bit) & bit))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: access from device %d to %d is not enabled", function, c->device->id,
                peer);
  return 0;
}

}  // namespace

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  CANN_ENTRY("aclrtDeviceEnablePeerAccess");
  if (flags) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDeviceEnablePeerAccess: flags must be 0, got %u", flags);
  return set_peer(peerDeviceId, true, "aclrtDeviceEnablePeerAccess");
}

aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId) {
  CANN_ENTRY("aclrtDeviceDisablePeerAccess");
  return set_peer(peerDeviceId, false, "aclrtDeviceDisablePeerAccess");
}

aclError aclrtDevicePeerAccessStatus(int32_t deviceId, int32_t peerDeviceId, int32_t* status) {
  CANN_ENTRY("aclrtDevicePeerAccessStatus");
  if (!status) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDevicePeerAccessStatus: status is NULL");
  Device *d, *peer;
  if (int code = find_device(deviceId, "aclrtDevicePeerAccessStatus", &d)) return code;
  if (int code = find_device(peerDeviceId, "aclrtDevicePeerAccessStatus", &peer)) return code;
  *status = (d->peers.load() >> peerDeviceId) & 1;
  return 0;
}

// ---- contexts -----------------------------------------------------------------------------------------------

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  CANN_ENTRY("aclrtCreateContext");
  if (!context) return fail(ACL_ERROR_INVALID_PARAM, "aclrtCreateContext: context is NULL");
  Device* d;
  if (int code = find_device(deviceId, "aclrtCreateContext", &d)) return code;
  std::lock_guard<std::mutex> hold(devices_mutex());
  Context* made;
  if (int code = make_context(*d, false, &made)) return code;
  set_current_context(made);
  *context = made;
  return 0;
}

aclError aclrtDestroyContext(aclrtContext context) {
  CANN_ENTRY("aclrtDestroyContext");
  if (!context) return fail(ACL_ERROR_INVALID_PARAM, "aclrtDestroyContext: context is NULL");
  std::lock_guard<std::mutex> hold(devices_mutex());
  Context* c = is_forked_child() ? nullptr : contexts().get(context);
  if (!c) return fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtDestroyContext: %p is not a live context", context);
  if (c->primary)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtDestroyContext: %p is the default context of device %d; it ends with "
                "aclrtResetDevice", context, c->device->id);
  end_context(c);
  return 0;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  CANN_ENTRY("aclrtSetCurrentContext");
  if (!context) return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetCurrentContext: context is NULL");
  Context* c = is_forked_child() ? nullptr : contexts().get(context);
  if (!c) return fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtSetCurrentContext: %p is not a live context", context);
  set_current_context(c);
  return 0;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  CANN_ENTRY("aclrtGetCurrentContext");
  if (!context) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetCurrentContext: context is NULL");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  *context = c;
  return 0;
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  CANN_ENTRY("aclrtCtxGetCurrentDefaultStream");
  if (!stream) return fail(ACL_ERROR_INVALID_PARAM, "aclrtCtxGetCurrentDefaultStream: stream is NULL");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  *stream = c->default_stream;
  return 0;
}
