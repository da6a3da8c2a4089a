// libascend_ml: the stress tests of a device and of its links, which simulated ones pass.
#include "runtime/runtime.h"



namespace {

int check_device(const char* function, int device) {
  if (device >= 0 && device < cann_sim::settings().devices) return 0;
  return cann_sim::fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: there is no device %d", function, device);
}

}  // namespace

CANN_ABI int AmlAicoreDetectOnline(int32_t deviceId, const void* attr) {
  if (!attr) return cann_sim::fail(ACL_ERROR_INVALID_PARAM, "AmlAicoreDetectOnline: attr is NULL");
  return check_device("AmlAicoreDetectOnline", deviceId);
}

CANN_ABI int AmlP2PDetectOnline(int32_t deviceId, void* comm, const void* attr) {
  if (!comm || !attr) return cann_sim::fail(ACL_ERROR_INVALID_PARAM, "AmlP2PDetectOnline: %s is NULL", comm ? "attr" : "comm");
  return check_device("AmlP2PDetectOnline", deviceId);
}
