// libdcmi, the driver's library for managing cards: how many there are, where on the bus, and which processors are near them.
#include <unistd.h>

#include <cstdio>

#include "runtime/runtime.h"

namespace {

constexpr int kOk = 0, kInvalid = -8001, kNoDevice = -8005;
constexpr int kAffinityText = 32;       // what clients have for it: TOPO_INFO_MAX_LENTH of the driver's header

bool exists(int card) { return card >= 0 && card < cann_sim::settings().devices; }

// What dcmi_get_device_pcie_info_v2 fills: where the device is on the host's bus.
struct PcieInfo {
  uint32_t vendor, subvendor, device, subdevice;
  int32_t domain;
  uint32_t bus, slot, function;
  uint8_t reserved[32];
};

int list_devices(int* list, int* count, int length) {
  if (!list || !count || length <= 0) return kInvalid;
  *count = 0;
  for (int card = 0; card < cann_sim::settings().devices && *count < length; ++card) list[(*count)++] = card;
  return kOk;
}

// All processors are equally near.
int near_processors(int device, char* text, int* length) {
  if (!text || !length) return kInvalid;
  if (!exists(device)) return kNoDevice;
  *length = snprintf(text, kAffinityText, "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
  return kOk;
}

}  // namespace

CANN_ABI int dcmi_init() { return kOk; }

// Each device is a card of its own.
CANN_ABI int dcmi_get_card_num_list(int* card_num, int* card_list, int list_len) {
  return list_devices(card_list, card_num, list_len);
}

CANN_ABI int dcmi_get_device_id_in_card(int card_id, int* device_id_max, int* mcu_id, int* cpu_id) {
  if (!device_id_max || !mcu_id || !cpu_id) return kInvalid;
  if (!exists(card_id)) return kNoDevice;
  *device_id_max = 1;
  *mcu_id = *cpu_id = -1;
  return kOk;
}

CANN_ABI int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char* affinity_cpu, int* length) {
  return device_id ? kNoDevice : near_processors(card_id, affinity_cpu, length);
}

// Addresses on a bus that the host does not have.
CANN_ABI int dcmi_get_device_pcie_info_v2(int card_id, int device_id, PcieInfo* info) {
  if (!info) return kInvalid;
  if (!exists(card_id) || device_id) return kNoDevice;
  *info = {0x19e5, 0x19e5, 0xd802, 0x0001, 0, static_cast<uint32_t>(card_id + 1), 0, 0, {}};
  return kOk;
}

// The newer functions, which number devices and know no cards.
CANN_ABI int dcmiv2_init() { return kOk; }
CANN_ABI int dcmiv2_get_device_list(int* device_list, int* count, int length) {
  return list_devices(device_list, count, length);
}
CANN_ABI int dcmiv2_get_affinity_cpu_info_by_dev_id(int device_id, char* affinity_cpu, int* length) {
  return near_processors(device_id, affinity_cpu, length);
}
CANN_ABI int dcmiv2_get_affinity_cpu_info_by_device_id(int device_id, char* affinity_cpu, int* length) {
  return near_processors(device_id, affinity_cpu, length);
}
