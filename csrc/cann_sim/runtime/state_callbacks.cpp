// Functions of clients that hear of devices being set and reset, of streams that come and go, and of faults of the device.
#include <algorithm>

#include "runtime/stream.h"

namespace cann_sim {
namespace {

template <class Function>
struct Listener {
  std::string name;
  Function function;
  void* data;
};
template <class Function>
using Listeners = std::vector<Listener<Function>>;

struct Registry {
  std::mutex mutex;
  Listeners<aclrtDeviceStateCallback> devices;
  Listeners<aclrtStreamStateCallback> streams;
  std::vector<aclrtExceptionInfoCallback> exceptions;
  std::atomic<bool> any{false};         // of devices or streams: cheap to ask
};
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

// Under one name there is one function; NULL takes it away.
template <class Function>
int change(Listeners<Function> Registry::*list, const char* name, Function function, void* data, const char* caller) {
  if (!name || !*name) return fail(ACL_ERROR_INVALID_PARAM, "%s: regName is %s", caller, name ? "empty" : "NULL");
  Registry& r = registry();
  std::lock_guard<std::mutex> hold(r.mutex);
  Listeners<Function>& all = r.*list;
  auto found = std::find_if(all.begin(), all.end(), [&](auto& l) { return l.name == name; });
  if (!function && found == all.end()) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: nothing is registered as %s", caller, name);
  if (!function) all.erase(found);
  else if (found != all.end()) *found = {name, function, data};
  else all.push_back({name, function, data});
  r.any = !r.devices.empty() || !r.streams.empty();
  return 0;
}

// A copy: a callback may change the list.
template <class Function>
Listeners<Function> listeners(Listeners<Function> Registry::*list) {
  Registry& r = registry();
  if (!r.any.load(std::memory_order_relaxed)) return {};
  std::lock_guard<std::mutex> hold(r.mutex);
  return r.*list;
}

}  // namespace

void tell_device_state(int device, int state) {
  for (auto& l : listeners(&Registry::devices)) l.function(static_cast<uint32_t>(device), static_cast<aclrtDeviceState>(state), l.data);
}

void tell_stream_state(void* stream, int state) {
  for (auto& l : listeners(&Registry::streams)) l.function(stream, static_cast<aclrtStreamState>(state), l.data);
}

std::vector<aclrtExceptionInfoCallback> exception_callbacks() {
  Registry& r = registry();
  std::lock_guard<std::mutex> hold(r.mutex);
  return r.exceptions;
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtRegDeviceStateCallback(const char* regName, aclrtDeviceStateCallback callback, void* args) {
  CANN_ENTRY("aclrtRegDeviceStateCallback");
  return change(&Registry::devices, regName, callback, args, "aclrtRegDeviceStateCallback");
}

aclError aclrtRegStreamStateCallback(const char* regName, aclrtStreamStateCallback callback, void* args) {
  CANN_ENTRY("aclrtRegStreamStateCallback");
  return change(&Registry::streams, regName, callback, args, "aclrtRegStreamStateCallback");
}

// Besides that of aclrtSetExceptionInfoCallback.
aclError aclrtExceptionInfoCallbackRegister(aclrtExceptionInfoCallback callback) {
  CANN_ENTRY("aclrtExceptionInfoCallbackRegister");
  if (!callback) return fail(ACL_ERROR_INVALID_PARAM, "aclrtExceptionInfoCallbackRegister: callback is NULL");
  Registry& r = registry();
  std::lock_guard<std::mutex> hold(r.mutex);
  if (std::find(r.exceptions.begin(), r.exceptions.end(), callback) == r.exceptions.end()) r.exceptions.push_back(callback);
  return 0;
}

aclError aclrtExceptionInfoCallbackUnregister(aclrtExceptionInfoCallback callback) {
  CANN_ENTRY("aclrtExceptionInfoCallbackUnregister");
  Registry& r = registry();
  std::lock_guard<std::mutex> hold(r.mutex);
  auto found = std::find(r.exceptions.begin(), r.exceptions.end(), callback);
  if (found == r.exceptions.end())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtExceptionInfoCallbackUnregister: the callback is not registered");
  r.exceptions.erase(found);
  return 0;
}
