// Parameters that clients set and read back: system options, overflow modes, timeouts, limits of cores, dumps.
#include <sys/stat.h>

#include "runtime/stream.h"

namespace cann_sim {
namespace {

std::mutex params_mutex;
std::map<int, int64_t>& process_params() {
  static auto& one = *new std::map<int, int64_t>;
  return one;
}

int check_option(aclSysParamOpt opt, int64_t value, const char* function) {
  if (opt < ACL_OPT_DETERMINISTIC || opt > ACL_OPT_ENABLE_KERNEL_EARLY_START)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: option %d is not known", function, opt);
  if (value < 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: value must not be negative, got %lld", function,
                             static_cast<long long>(value));
  return 0;
}

int get_option(const std::map<int, int64_t>& from, aclSysParamOpt opt, int64_t* value, const char* function) {
  auto found = from.find(opt);
  if (found == from.end()) return fail(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, "%s: option %d was not set", function, opt);
  *value = found->second;
  return 0;
}

constexpr uint64_t kLongestTimeoutUs = 1'000'000ull * 1080;
std::atomic<uint64_t> execute_timeout_us{kLongestTimeoutUs};
std::atomic<bool> dumps{false};

// 0: cube cores, 1: vector cores; -1: neither.
int limit_index(aclrtDevResLimitType type) {
  return type == ACL_RT_DEV_RES_CUBE_CORE || type == ACL_RT_DEV_RES_VECTOR_CORE ? type : -1;
}
uint32_t all_cores(int i) {
  int64_t n = i == 0 ? (soc().cube_cores ? soc().cube_cores : soc().ai_cores) : soc().vector_cores;
  return static_cast<uint32_t>(n);
}
int check_limit(aclrtDevResLimitType type, uint32_t value, const char* function) {
  int i = limit_index(type);
  if (i < 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %d is not a limited resource", function, type);
  if (value == 0 || value > all_cores(i))
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: expected 1 to %u cores, got %u", function, all_cores(i), value);
  return 0;
}
int find_device(int32_t id, const char* function, Device** d) {
  *d = device(id);
  return *d ? 0 : fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: there is no device %d", function, id);
}

thread_local const Stream* limits_of = nullptr;   // aclrtUseStreamResInCurrentThread
thread_local uint32_t thread_limit[2] = {0, 0};

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  CANN_ENTRY("aclrtSetSysParamOpt");
  if (int code = check_option(opt, value, "aclrtSetSysParamOpt")) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  process_params()[opt] = value;
  return 0;
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  CANN_ENTRY("aclrtGetSysParamOpt");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetSysParamOpt: value is NULL");
  if (int code = check_option(opt, 0, "aclrtGetSysParamOpt")) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  *value = process_params()[opt];  // 0 when it was not set: torch_npu queries first (a context's option is refused then)
  return 0;
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  CANN_ENTRY("aclrtCtxSetSysParamOpt");
  if (int code = check_option(opt, value, "aclrtCtxSetSysParamOpt")) return code;
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  std::lock_guard<std::mutex> hold(params_mutex);
  c->params[opt] = value;
  return 0;
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  CANN_ENTRY("aclrtCtxGetSysParamOpt");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtCtxGetSysParamOpt: value is NULL");
  if (int code = check_option(opt, 0, "aclrtCtxGetSysParamOpt")) return code;
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  std::lock_guard<std::mutex> hold(params_mutex);
  return get_option(c->params, opt, value, "aclrtCtxGetSysParamOpt");
}

// ---- overflow ---------------------------------------------------------------------------------------------------

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  CANN_ENTRY("aclrtSetDeviceSatMode");
  if (mode != ACL_RT_OVERFLOW_MODE_SATURATION && mode != ACL_RT_OVERFLOW_MODE_INFNAN)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetDeviceSatMode: %d is not an overflow mode", mode);
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  c->device->saturation = mode;
  return 0;
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  CANN_ENTRY("aclrtGetDeviceSatMode");
  if (!mode) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDeviceSatMode: mode is NULL");
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  *mode = c->device->saturation.load();
  return 0;
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  CANN_ENTRY("aclrtSetStreamOverflowSwitch");
  if (flag > 1) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamOverflowSwitch: flag must be 0 or 1, got %u",
                            flag);
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtSetStreamOverflowSwitch", &code);
  if (!found) return code;
  found->stream->overflow_switch = flag;
  return 0;
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t* flag) {
  CANN_ENTRY("aclrtGetStreamOverflowSwitch");
  if (!flag) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetStreamOverflowSwitch: flag is NULL");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtGetStreamOverflowSwitch", &code);
  if (!found) return code;
  *flag = found->stream->overflow_switch.load();
  return 0;
}

// ---- how long an op may take: stored only, for host threads cannot be stopped in the middle of one --------

aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
  CANN_ENTRY("aclrtSetOpExecuteTimeOut");
  execute_timeout_us = std::min<uint64_t>(timeout * 1'000'000ull, kLongestTimeoutUs);
  return 0;
}

aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout) {
  CANN_ENTRY("aclrtSetOpExecuteTimeOutWithMs");
  execute_timeout_us = std::min<uint64_t>(timeout * 1000ull, kLongestTimeoutUs);
  return 0;
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t* actualTimeout) {
  CANN_ENTRY("aclrtSetOpExecuteTimeOutV2");
  if (!actualTimeout) return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetOpExecuteTimeOutV2: actualTimeout is NULL");
  *actualTimeout = std::min(timeout, kLongestTimeoutUs);
  execute_timeout_us = *actualTimeout;
  return 0;
}

aclError aclrtGetOpExecuteTimeout(uint32_t* const timeoutMs) {
  CANN_ENTRY("aclrtGetOpExecuteTimeout");
  if (!timeoutMs) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetOpExecuteTimeout: timeoutMs is NULL");
  *timeoutMs = static_cast<uint32_t>(execute_timeout_us.load() / 1000);
  return 0;
}

aclError aclrtGetOpTimeOutInterval(uint64_t* interval) {
  CANN_ENTRY("aclrtGetOpTimeOutInterval");
  if (!interval) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetOpTimeOutInterval: interval is NULL");
  *interval = 1;  // microseconds
  return 0;
}

// ---- limits of cores: stored only; the host's kernels do not follow them ---------------------------------

aclError aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value) {
  CANN_ENTRY("aclrtSetDeviceResLimit");
  Device* d;
  if (int code = find_device(deviceId, "aclrtSetDeviceResLimit", &d)) return code;
  if (int code = check_limit(type, value, "aclrtSetDeviceResLimit")) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  d->core_limit[type] = value;
  return 0;
}

aclError aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t* value) {
  CANN_ENTRY("aclrtGetDeviceResLimit");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetDeviceResLimit: value is NULL");
  Device* d;
  if (int code = find_device(deviceId, "aclrtGetDeviceResLimit", &d)) return code;
  if (int code = check_limit(type, 1, "aclrtGetDeviceResLimit")) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  *value = d->core_limit[type] ? d->core_limit[type] : all_cores(type);
  return 0;
}

aclError aclrtResetDeviceResLimit(int32_t deviceId) {
  CANN_ENTRY("aclrtResetDeviceResLimit");
  Device* d;
  if (int code = find_device(deviceId, "aclrtResetDeviceResLimit", &d)) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  d->core_limit[0] = d->core_limit[1] = 0;
  return 0;
}

aclError aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value) {
  CANN_ENTRY("aclrtSetStreamResLimit");
  if (int code = check_limit(type, value, "aclrtSetStreamResLimit")) return code;
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtSetStreamResLimit", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  found->stream->core_limit[type] = value;
  return 0;
}

aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t* value) {
  CANN_ENTRY("aclrtGetStreamResLimit");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetStreamResLimit: value is NULL");
  if (int code = check_limit(type, 1, "aclrtGetStreamResLimit")) return code;
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtGetStreamResLimit", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  uint32_t own = found->stream->core_limit[type], shared = found->context->device->core_limit[type];
  *value = own ? own : shared ? shared : all_cores(type);
  return 0;
}

aclError aclrtResetStreamResLimit(aclrtStream stream) {
  CANN_ENTRY("aclrtResetStreamResLimit");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtResetStreamResLimit", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  found->stream->core_limit[0] = found->stream->core_limit[1] = 0;
  return 0;
}

aclError aclrtUseStreamResInCurrentThread(aclrtStream stream) {
  CANN_ENTRY("aclrtUseStreamResInCurrentThread");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtUseStreamResInCurrentThread", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(params_mutex);
  limits_of = found->stream;
  for (int i = 0; i < 2; ++i) thread_limit[i] = found->stream->core_limit[i];
  return 0;
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream stream) {
  CANN_ENTRY("aclrtUnuseStreamResInCurrentThread");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclrtUnuseStreamResInCurrentThread", &code);
  if (!found) return code;
  if (limits_of != found->stream)
    return fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclrtUnuseStreamResInCurrentThread: this thread does not use the stream's limits");
  limits_of = nullptr;
  thread_limit[0] = thread_limit[1] = 0;
  return 0;
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  CANN_ENTRY("aclrtGetResInCurrentThread");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetResInCurrentThread: value is NULL");
  if (int code = check_limit(type, 1, "aclrtGetResInCurrentThread")) return code;
  Context* c = current_context();
  if (!c) return ACL_ERROR_RT_CONTEXT_NULL;
  if (thread_limit[type]) return *value = thread_limit[type], 0;
  return aclrtGetDeviceResLimit(c->device->id, type, value);
}

// ---- dumps: switched on and off, nothing is ever dumped --------------------------------------------------

aclError aclmdlInitDump() {
  CANN_ENTRY("aclmdlInitDump");
  if (dumps.exchange(true)) return fail(ACL_ERROR_DUMP_ALREADY_RUN, "aclmdlInitDump: already called");
  return 0;
}

aclError aclmdlSetDump(const char* dumpCfgPath) {
  CANN_ENTRY("aclmdlSetDump");
  if (!dumpCfgPath) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlSetDump: dumpCfgPath is NULL");
  if (!dumps.load()) return fail(ACL_ERROR_DUMP_NOT_RUN, "aclmdlSetDump: aclmdlInitDump was not called");
  struct stat found;
  if (stat(dumpCfgPath, &found)) return fail(ACL_ERROR_INVALID_FILE, "aclmdlSetDump: there is no file %s", dumpCfgPath);
  return 0;
}

aclError aclmdlFinalizeDump() {
  CANN_ENTRY("aclmdlFinalizeDump");
  if (!dumps.exchange(false)) return fail(ACL_ERROR_DUMP_NOT_RUN, "aclmdlFinalizeDump: aclmdlInitDump was not called");
  return 0;
}
