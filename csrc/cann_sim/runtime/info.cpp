// What CANN and a device tell of themselves: versions, SoC, capabilities, use; and the sizes of data types.
#include <strings.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/guard.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace cann_sim {
namespace {

int check_device(int64_t id, const char* function) {
  if (device(static_cast<int>(id)) && id >= 0) return 0;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: device %lld does not exist, there are %d", function,
              static_cast<long long>(id), device_count());
}

int null_argument(const char* function, const char* name) {
  return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL", function, name);
}

// The version of the driver that came with a CANN: clients have features that they take up from one on. Without
// CANN_SIM_VERSION everything is there, and the driver the newest.
const char* driver_version() {
  static const struct {
    int cann;
    const char* driver;
  } kDrivers[] = {{800, "24.1.0"}, {801, "25.0.RC1"}, {802, "25.2.0"}, {803, "25.3.RC1"}, {805, "25.5.0"}};
  if (!settings().version_is_set) return "26.0.RC1";
  const char* found = kDrivers[0].driver;
  for (const auto& pair : kDrivers)
    if (pair.cann <= parse_version(settings().version.c_str())) found = pair.driver;
  return found;
}

// "8.5.0" and "8.5.RC1.alpha001": major, minor, release, patch.
void version_part(int which, char* out, size_t room, const char* at = settings().version.c_str()) {
  for (int i = 0; i < which && at; ++i) at = strchr(at, '.') ? strchr(at, '.') + 1 : nullptr;
  size_t n = at ? strcspn(at, ".") : 0;
  snprintf(out, room, "%.*s", static_cast<int>(n), at ? at : "");
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

// ---- versions -------------------------------------------------------------------------------------------------

const char* aclrtGetSocName() {
  CANN_ENTRY_POINTER("aclrtGetSocName");
  return settings().soc.c_str();
}

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  CANN_ENTRY("aclrtGetVersion");
  if (!majorVersion || !minorVersion || !patchVersion) return null_argument("aclrtGetVersion", "an output");
  *majorVersion = ACL_MAJOR_VERSION;
  *minorVersion = ACL_MINOR_VERSION;
  *patchVersion = ACL_PATCH_VERSION;
  return 0;
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  CANN_ENTRY("aclsysGetCANNVersion");
  if (!version) return null_argument("aclsysGetCANNVersion", "version");
  if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER)
    return fail(ACL_ERROR_INVALID_PARAM, "aclsysGetCANNVersion: %d is not a package", name);
  *version = {};
  const char* text = name == ACL_PKG_NAME_DRIVER ? driver_version() : settings().version.c_str();
  snprintf(version->version, sizeof version->version, "%s", text);
  version_part(0, version->majorVersion, sizeof version->majorVersion, text);
  version_part(1, version->minorVersion, sizeof version->minorVersion, text);
  version_part(2, version->releaseVersion, sizeof version->releaseVersion, text);
  version_part(3, version->patchVersion, sizeof version->patchVersion, text);
  return 0;
}

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  CANN_ENTRY("aclsysGetVersionStr");
  if (!pkgName || !versionStr) return null_argument("aclsysGetVersionStr", pkgName ? "versionStr" : "pkgName");
  const char* text = strcasecmp(pkgName, "driver") ? settings().version.c_str() : driver_version();
  snprintf(versionStr, ACL_PKG_VERSION_MAX_SIZE, "%s", text);  // the size that CANN documents
  return 0;
}

aclError aclsysGetVersionNum(char* pkgName, int32_t* versionNum) {
  CANN_ENTRY("aclsysGetVersionNum");
  if (!pkgName || !versionNum) return null_argument("aclsysGetVersionNum", pkgName ? "versionNum" : "pkgName");
  char part[16];
  int32_t number = 0;
  for (int i = 0; i < 3; ++i) {  // major * 10^7 + minor * 10^5 + release * 10^3
    version_part(i, part, sizeof part);
    number = number * 100 + atoi(part);
  }
  *versionNum = number * 1000;
  return 0;
}

// ---- what a device is -----------------------------------------------------------------------------------------

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  CANN_ENTRY("aclGetDeviceCapability");
  if (!value) return null_argument("aclGetDeviceCapability", "value");
  if (int code = check_device(deviceId, "aclGetDeviceCapability")) return code;
  switch (deviceInfo) {
    case ACL_DEVICE_INFO_AI_CORE_NUM: *value = soc().ai_cores; return 0;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = soc().vector_cores; return 0;
    case ACL_DEVICE_INFO_L2_SIZE: *value = soc().l2; return 0;
  }
  return fail(ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability: %d is not known", deviceInfo);
}

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t* value) {
  CANN_ENTRY("aclrtGetDeviceInfo");
  if (!value) return null_argument("aclrtGetDeviceInfo", "value");
  if (int code = check_device(deviceId, "aclrtGetDeviceInfo")) return code;
  switch (attr) {
    case ACL_DEV_ATTR_AICPU_CORE_NUM: *value = soc().ai_cpus; return 0;
    case ACL_DEV_ATTR_AICORE_CORE_NUM: *value = soc().ai_cores; return 0;
    case ACL_DEV_ATTR_CUBE_CORE_NUM: *value = soc().cube_cores ? soc().cube_cores : soc().ai_cores; return 0;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = soc().vector_cores; return 0;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE: *value = static_cast<int64_t>(settings().memory); return 0;
    case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = soc().l2; return 0;
    case ACL_DEV_ATTR_PHY_CHIP_ID: *value = device(static_cast<int>(deviceId))->physical_id; return 0;
    case ACL_DEV_ATTR_IS_VIRTUAL: *value = 0; return 0;
  }
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtGetDeviceInfo: attribute %d is not known", attr);
}

aclError aclrtGetDeviceCapability(int32_t deviceId, aclrtDevFeatureType devFeatureType, int32_t* value) {
  CANN_ENTRY("aclrtGetDeviceCapability");
  if (!value) return null_argument("aclrtGetDeviceCapability", "value");
  if (int code = check_device(deviceId, "aclrtGetDeviceCapability")) return code;
  if (devFeatureType != ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV &&
      devFeatureType != ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetDeviceCapability: feature %d is not known", devFeatureType);
  *value = ACL_DEV_FEATURE_NOT_SUPPORT;
  return 0;
}

aclError aclGetCannAttributeList(const aclCannAttr** cannAttrList, size_t* num) {
  CANN_ENTRY("aclGetCannAttributeList");
  if (!cannAttrList || !num) return null_argument("aclGetCannAttributeList", cannAttrList ? "num" : "cannAttrList");
  static const aclCannAttr known[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE};
  *cannAttrList = known;
  *num = 3;
  return 0;
}

aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t* value) {
  CANN_ENTRY("aclGetCannAttribute");
  if (!value) return null_argument("aclGetCannAttribute", "value");
  bool first_generation = !strcmp(soc().family, "Ascend910") || !strncmp(soc().family, "Ascend310", 9);
  switch (cannAttr) {
    case ACL_CANN_ATTR_INF_NAN:
    case ACL_CANN_ATTR_BF16: *value = !first_generation; return 0;
    case ACL_CANN_ATTR_JIT_COMPILE: *value = 0; return 0;
  }
  return fail(ACL_ERROR_INVALID_PARAM, "aclGetCannAttribute: %d is not known", cannAttr);
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  CANN_ENTRY("aclrtGetRunMode");
  if (!runMode) return null_argument("aclrtGetRunMode", "runMode");
  *runMode = ACL_HOST;
  return 0;
}

aclError aclrtSetTsDevice(aclrtTsId tsId) {
  CANN_ENTRY("aclrtSetTsDevice");
  if (tsId == ACL_TS_ID_AICORE || tsId == ACL_TS_ID_AIVECTOR) return 0;
  return fail(ACL_ERROR_INVALID_PARAM, "aclrtSetTsDevice: %d is not a task scheduler", tsId);
}

// ---- how a device is doing --------------------------------------------------------------------------------------

aclError aclrtGetDeviceUtilizationRate(int32_t deviceId, aclrtUtilizationInfo* utilizationInfo) {
  CANN_ENTRY("aclrtGetDeviceUtilizationRate");
  if (!utilizationInfo) return null_argument("aclrtGetDeviceUtilizationRate", "utilizationInfo");
  if (int code = check_device(deviceId, "aclrtGetDeviceUtilizationRate")) return code;
  Device& d = *device(deviceId);
  bool busy = false;
  {
    std::lock_guard<std::mutex> hold(devices_mutex());
    for (StreamHandle* s : streams().all()) busy = busy || (s->context->device == &d && !s->stream->idle());
  }
  utilizationInfo->cubeUtilization = utilizationInfo->vectorUtilization = busy ? 100 : 0;
  utilizationInfo->aicpuUtilization = 0;
  utilizationInfo->memoryUtilization = static_cast<int32_t>(d.used.load() * 100 / device_memory(d));
  return 0;
}

aclError aclrtQueryDeviceStatus(int32_t deviceId, aclrtDeviceStatus* deviceStatus) {
  CANN_ENTRY("aclrtQueryDeviceStatus");
  if (!deviceStatus) return null_argument("aclrtQueryDeviceStatus", "deviceStatus");
  if (int code = check_device(deviceId, "aclrtQueryDeviceStatus")) return code;
  *deviceStatus = device(deviceId)->lost.load() ? ACL_RT_DEVICE_STATUS_ABNORMAL : ACL_RT_DEVICE_STATUS_NORMAL;
  return 0;
}

aclError aclrtGetMemUceInfo(int32_t deviceId, aclrtMemUceInfo* memUceInfoArray, size_t arraySize, size_t* retSize) {
  CANN_ENTRY("aclrtGetMemUceInfo");
  if (!memUceInfoArray || !retSize) return null_argument("aclrtGetMemUceInfo",
                                                         memUceInfoArray ? "retSize" : "memUceInfoArray");
  if (!arraySize) return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetMemUceInfo: arraySize is 0");
  if (int code = check_device(deviceId, "aclrtGetMemUceInfo")) return code;
  *retSize = 0;  // host memory has no such errors
  return 0;
}

aclError aclrtMemUceRepair(int32_t deviceId, aclrtMemUceInfo* memUceInfoArray, size_t arraySize) {
  CANN_ENTRY("aclrtMemUceRepair");
  if (!memUceInfoArray) return null_argument("aclrtMemUceRepair", "memUceInfoArray");
  if (int code = check_device(deviceId, "aclrtMemUceRepair")) return code;
  if (!arraySize) return 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemUceRepair: the device has no memory errors to repair");
}

aclError aclrtDeviceGetStreamPriorityRange(int32_t* leastPriority, int32_t* greatestPriority) {
  CANN_ENTRY("aclrtDeviceGetStreamPriorityRange");
  if (!current_context()) return ACL_ERROR_RT_CONTEXT_NULL;
  if (leastPriority) *leastPriority = 7;
  if (greatestPriority) *greatestPriority = 0;
  return 0;
}

aclError aclrtGetDevicesTopo(uint32_t deviceId, uint32_t otherDeviceId, uint64_t* value) {
  CANN_ENTRY("aclrtGetDevicesTopo");
  if (!value) return null_argument("aclrtGetDevicesTopo", "value");
  if (int code = check_device(deviceId, "aclrtGetDevicesTopo")) return code;
  if (int code = check_device(otherDeviceId, "aclrtGetDevicesTopo")) return code;
  *value = ACL_RT_DEVS_TOPOLOGY_HCCS;
  return 0;
}

// ---- data types -------------------------------------------------------------------------------------------------

size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_INT8: case ACL_UINT8: case ACL_BOOL: case ACL_HIFLOAT8: case ACL_FLOAT8_E5M2: case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0: return 1;
    case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: case ACL_UINT16: return 2;
    case ACL_FLOAT: case ACL_INT32: case ACL_UINT32: case ACL_COMPLEX32: return 4;
    case ACL_INT64: case ACL_UINT64: case ACL_DOUBLE: case ACL_COMPLEX64: return 8;
    case ACL_COMPLEX128: return 16;
  }
  return 0;
}

float aclFloat16ToFloat(aclFloat16 value) {
  uint32_t sign = (value & 0x8000u) << 16, exponent = (value >> 10) & 31, fraction = value & 1023, bits;
  if (exponent == 31) bits = sign | 0x7F800000u | (fraction << 13);
  else if (exponent) bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  else {
    float small = static_cast<float>(fraction) * 5.9604645e-8f;  // 2^-24
    memcpy(&bits, &small, 4);
    bits |= sign;
  }
  float out;
  memcpy(&out, &bits, 4);
  return out;
}

aclFloat16 aclFloatToFloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<aclFloat16>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FF));
  if (magnitude >= 0x47800000u) return static_cast<aclFloat16>(sign | 0x7C00u);  // 2^16 and more: infinite
  uint32_t kept, rest, half;
  if (magnitude >= 0x38800000u) {                                                 // normal
    kept = (magnitude - 0x38000000u) >> 13;
    rest = magnitude & 0x1FFFu;
    half = 0x1000u;
  } else {
    uint32_t shift = 126 - (magnitude >> 23);
    if (shift > 24 + 1) return static_cast<aclFloat16>(sign);
    uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
    kept = shift > 24 ? 0 : fraction >> shift;
    rest = fraction & ((1u << shift) - 1);
    half = 1u << (shift - 1);
  }
  if (rest > half || (rest == half && (kept & 1))) ++kept;                         // to nearest, ties to even
  return static_cast<aclFloat16>(sign | kept);
}

// ---- logs and dumps -----------------------------------------------------------------------------------------------

// Clients log a great deal through CANN; here it goes nowhere unless ASCEND_SLOG_PRINT_TO_STDOUT asks, as on a card.
void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line, const char* fmt, ...) {
  static const char* const asked = getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
  if (!asked || strcmp(asked, "1") || !fmt || logLevel < ACL_DEBUG || logLevel > ACL_ERROR) return;
  static const char* const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  printf("[%s] %s:%u %s: %s\n", names[logLevel], file ? file : "", line, func ? func : "", text);
}

// Whether a kernel that was built for another SoC runs on this one: those of one family are alike.
aclError aclrtCheckArchCompatibility(const char* socVersion, int32_t* canCompatible) {
  CANN_ENTRY("aclrtCheckArchCompatibility");
  if (!socVersion || !canCompatible)
    return fail(ACL_ERROR_INVALID_PARAM, "aclrtCheckArchCompatibility: %s is NULL", socVersion ? "canCompatible" : "socVersion");
  const Soc* named = find_soc(socVersion);
  if (!named) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCheckArchCompatibility: %s is no SoC", socVersion);
  *canCompatible = !strcmp(named->family, soc().family);
  return 0;
}
