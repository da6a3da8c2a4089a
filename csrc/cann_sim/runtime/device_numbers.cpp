// The numbers of devices: as the client counts them, as ASCEND_RT_VISIBLE_DEVICES chose them, and as the bus names them; and
// limits that clients set for kernels of their own.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "runtime/device.h"

namespace cann_sim {
namespace {

constexpr unsigned kFirstBus = 0xc1;    // of device 0
constexpr int kBusIdBytes = 13;         // "0000:c1:00.0" with its 0
constexpr int kLimits = ACL_RT_DEV_LIMIT_SIMT_PRINTF_FIFO_SIZE + 1;

int check_device(int64_t id, const char* function) {
  if (id >= 0 && id < device_count()) return 0;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: device %lld does not exist, there are %d", function, static_cast<long long>(id),
              device_count());
}

int null_argument(const char* function, const char* name) { return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is NULL", function, name); }

// What the client calls the device with that physical number.
int visible_as(int32_t physical, int32_t* id, const char* function) {
  for (int i = 0; i < device_count(); ++i)
    if (device(i)->physical_id == physical) return *id = i, 0;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: device %d is not visible", function, physical);
}

void write_bus_id(int physical, char* text) { snprintf(text, kBusIdBytes, "%04x:%02x:00.0", physical / 32 & 0xffff, (kFirstBus + physical) & 0xff); }

std::atomic<size_t>& limit_of(int device, int limit) {
  static std::atomic<size_t> all[64][kLimits];
  return all[device][limit];
}

}  // namespace

int physical_device(int id) {
  const Device* found = device(id);
  return found ? found->physical_id : -1;
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclrtGetLogicDevIdByUserDevId(const int32_t userDevid, int32_t* const logicDevId) {
  CANN_ENTRY("aclrtGetLogicDevIdByUserDevId");
  if (!logicDevId) return null_argument("aclrtGetLogicDevIdByUserDevId", "logicDevId");
  if (int code = check_device(userDevid, "aclrtGetLogicDevIdByUserDevId")) return code;
  *logicDevId = device(userDevid)->physical_id;
  return 0;
}

aclError aclrtGetPhyDevIdByUserDevId(const int32_t userDevId, int32_t* const phyDevId) {
  CANN_ENTRY("aclrtGetPhyDevIdByUserDevId");
  if (!phyDevId) return null_argument("aclrtGetPhyDevIdByUserDevId", "phyDevId");
  if (int code = check_device(userDevId, "aclrtGetPhyDevIdByUserDevId")) return code;
  *phyDevId = device(userDevId)->physical_id;
  return 0;
}

aclError aclrtGetUserDevIdByLogicDevId(const int32_t logicDevId, int32_t* const userDevid) {
  CANN_ENTRY("aclrtGetUserDevIdByLogicDevId");
  if (!userDevid) return null_argument("aclrtGetUserDevIdByLogicDevId", "userDevid");
  return visible_as(logicDevId, userDevid, "aclrtGetUserDevIdByLogicDevId");
}

aclError aclrtDeviceGetUuid(int32_t deviceId, aclrtUuid* uuid) {
  CANN_ENTRY("aclrtDeviceGetUuid");
  if (!uuid) return null_argument("aclrtDeviceGetUuid", "uuid");
  if (int code = check_device(deviceId, "aclrtDeviceGetUuid")) return code;
  *uuid = {};
  snprintf(uuid->bytes, sizeof uuid->bytes, "cann_sim-%d", device(deviceId)->physical_id);
  return 0;
}

aclError aclrtGetUserDevIdByPhyDevId(const int32_t phyDevId, int32_t* const userDevId) {
  CANN_ENTRY("aclrtGetUserDevIdByPhyDevId");
  if (!userDevId) return null_argument("aclrtGetUserDevIdByPhyDevId", "userDevId");
  return visible_as(phyDevId, userDevId, "aclrtGetUserDevIdByPhyDevId");
}

// Logical and physical numbers are the same here.
aclError aclrtGetLogicDevIdByPhyDevId(const int32_t phyDevId, int32_t* const logicDevId) {
  CANN_ENTRY("aclrtGetLogicDevIdByPhyDevId");
  if (!logicDevId) return null_argument("aclrtGetLogicDevIdByPhyDevId", "logicDevId");
  int32_t id;
  if (int code = visible_as(phyDevId, &id, "aclrtGetLogicDevIdByPhyDevId")) return code;
  *logicDevId = phyDevId;
  return 0;
}

aclError aclrtGetPhyDevIdByLogicDevId(const int32_t logicDevId, int32_t* const phyDevId) {
  CANN_ENTRY("aclrtGetPhyDevIdByLogicDevId");
  if (!phyDevId) return null_argument("aclrtGetPhyDevIdByLogicDevId", "phyDevId");
  int32_t id;
  if (int code = visible_as(logicDevId, &id, "aclrtGetPhyDevIdByLogicDevId")) return code;
  *phyDevId = logicDevId;
  return 0;
}

aclError aclrtDeviceGetPCIBusId(int32_t deviceId, char* pciBusId, int32_t len) {
  CANN_ENTRY("aclrtDeviceGetPCIBusId");
  if (!pciBusId) return null_argument("aclrtDeviceGetPCIBusId", "pciBusId");
  if (len < kBusIdBytes) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtDeviceGetPCIBusId: len must be at least %d, got %d", kBusIdBytes, len);
  if (int code = check_device(deviceId, "aclrtDeviceGetPCIBusId")) return code;
  write_bus_id(device(deviceId)->physical_id, pciBusId);
  return 0;
}

aclError aclrtDeviceGetByPCIBusId(const char* pciBusId, int32_t* deviceId) {
  CANN_ENTRY("aclrtDeviceGetByPCIBusId");
  if (!pciBusId || !deviceId) return null_argument("aclrtDeviceGetByPCIBusId", pciBusId ? "deviceId" : "pciBusId");
  char text[kBusIdBytes];
  for (int i = 0; i < device_count(); ++i) {
    write_bus_id(device(i)->physical_id, text);
    if (!strcasecmp(text, pciBusId)) return *deviceId = i, 0;
  }
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "aclrtDeviceGetByPCIBusId: there is no device at %s", pciBusId);
}

// ---- limits: of kernels that clients compile, which this CANN does not run; they are remembered ----------------------

namespace {

int find_limit(aclrtDeviceLimit limit, const char* function, std::atomic<size_t>** found) {
  int32_t id;
  if (int code = aclrtGetDevice(&id)) return code;
  if (limit < 0 || limit >= kLimits) return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: limit %d is not known", function, static_cast<int>(limit));
  *found = &limit_of(id, limit);
  return 0;
}

}  // namespace

aclError aclrtDeviceSetLimit(aclrtDeviceLimit limit, size_t value) {
  CANN_ENTRY("aclrtDeviceSetLimit");
  std::atomic<size_t>* found;
  if (int code = find_limit(limit, "aclrtDeviceSetLimit", &found)) return code;
  *found = value;
  return 0;
}

aclError aclrtDeviceGetLimit(aclrtDeviceLimit limit, size_t* value) {
  CANN_ENTRY("aclrtDeviceGetLimit");
  if (!value) return null_argument("aclrtDeviceGetLimit", "value");
  std::atomic<size_t>* found;
  if (int code = find_limit(limit, "aclrtDeviceGetLimit", &found)) return code;
  *value = found->load();
  return 0;
}
