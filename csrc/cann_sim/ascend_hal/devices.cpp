// libascend_hal, the driver's library: the number of devices, which clients ask before they initialise CANN, and its version.
#include "runtime/runtime.h"

// All devices of the host, whatever ASCEND_RT_VISIBLE_DEVICES leaves of them.
CANN_ABI int drvGetDevNum(uint32_t* count) {
  if (!count) return 8;                 // DRV_ERROR_PARA_ERROR
  *count = static_cast<uint32_t>(cann_sim::settings().devices);
  return 0;
}

// The last one whose profilers take the host's clock and not a counter of the device.
CANN_ABI int halGetAPIVersion(int* version) {
  if (!version) return 8;
  *version = 0x071904;                  // major, minor, patch
  return 0;
}
