// libdcmi, the driver's library for managing cards: how many there are and which processors of the host are near them.
#include <unistd.h>

#include <cstdio>

#include "runtime/runtime.h"

namespace {

constexpr int kOk = 0, kInvalid = -8001, kNoDevice = -8005;
constexpr int kAffinityText = 32;       // what clients have for it: TOPO_INFO_MAX_LENTH of the driver's header

bool exists(int card) { return card >= 0 && card < cann_sim::settings().devices; }

}  // namespace

CANN_ABI int dcmi_init() { return kOk; }

// Each device is a card of its own.
CANN_ABI int dcmi_get_card_num_list(int* card_num, int* card_list, int list_len) {
  if (!card_num || !card_list || list_len <= 0) return kInvalid;
  *card_num = 0;
  for (int card = 0; card < cann_sim::settings().devices && *card_num < list_len; ++card) card_list[(*card_num)++] = card;
  return kOk;
}

CANN_ABI int dcmi_get_device_id_in_card(int card_id, int* device_id_max, int* mcu_id, int* cpu_id) {
  if (!device_id_max || !mcu_id || !cpu_id) return kInvalid;
  if (!exists(card_id)) return kNoDevice;
  *device_id_max = 1;
  *mcu_id = *cpu_id = -1;
  return kOk;
}

// All processors are equally near.
CANN_ABI int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char* affinity_cpu, int* length) {
  if (!affinity_cpu || !length) return kInvalid;
  if (!exists(card_id) || device_id) return kNoDevice;
  *length = snprintf(affinity_cpu, kAffinityText, "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
  return kOk;
}
