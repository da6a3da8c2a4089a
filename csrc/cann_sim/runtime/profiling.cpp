// The names of CANN's profiling library that clients link against. Nothing is profiled: reports are taken and dropped,
// as on a card where no profiling session runs.
#include "runtime/device.h"

CANN_ABI uint64_t MsprofSysCycleTime() { return static_cast<uint64_t>(cann_sim::now_ns()); }

CANN_ABI uint64_t MsprofGetHashId(const char* text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (size_t i = 0; text && i < length; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 0x100000001b3ull;
  return hash;
}

CANN_ABI int32_t MsprofRegisterCallback(uint32_t, void*) { return 0; }
CANN_ABI int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
CANN_ABI int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
CANN_ABI int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }
