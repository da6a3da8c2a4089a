// libascend_hal, the driver's library: only the number of devices, which clients ask before they initialise CANN.
#include "runtime/runtime.h"

// All devices of the host, whatever ASCEND_RT_VISIBLE_DEVICES leaves of them.
CANN_ABI int drvGetDevNum(uint32_t* count) {
  if (!count) return 8;                 // DRV_ERROR_PARA_ERROR
  *count = static_cast<uint32_t>(cann_sim::settings().devices);
  return 0;
}
