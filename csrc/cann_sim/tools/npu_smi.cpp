// The command npu-smi of the simulated devices: `npu-smi info` in the form that scripts read, over the installed headers.
// What a simulator has no answer to (power, temperature) is NA, as on a card that does not say.
#include <acl/acl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../runtime/card_table.h"

namespace {

const char* const line = "+---------------------------+---------------+----------------------------------------------------+\n";
const char* const thick = "+===========================+===============+====================================================+\n";

int usage(FILE* to) {
  fputs("usage: npu-smi info [-l]\nThe devices are simulated; other commands of npu-smi are not available.\n", to);
  return to == stderr;
}

int failed(const char* function, aclError code) {
  const char* message = aclGetRecentErrMsg();
  fprintf(stderr, "npu-smi: %s returned %d: %s\n", function, code, message ? message : "");
  return 1;
}

// Ascend910B2 -> 910B2
const char* short_name() {
  const char* soc = aclrtGetSocName();
  if (!soc) return "NA";
  return strncmp(soc, "Ascend", 6) ? soc : soc + 6;
}

int print_device(int device) {
  if (aclError code = aclrtSetDevice(device)) return failed("aclrtSetDevice", code);
  size_t free = 0, total = 0;
  if (aclError code = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total)) return failed("aclrtGetMemInfo", code);
  if (aclError code = aclrtResetDevice(device)) return failed("aclrtResetDevice", code);
  printf("| %-6d%-20s| %-14s| %-12s%-18s%-21s|\n", device, short_name(), "OK", "NA", "NA", "0    / 0");
  char memory[32];
  snprintf(memory, sizeof memory, "%-5zu/ %zu", (total - free) >> 20, total >> 20);
  printf("| %-26d| %-14s| %-12s%-18s%-21s|\n%s", 0, "NA", "0", "0    / 0", memory, thick);
  return 0;
}

// The processes that share the card CANN_SIM_CARD; without it the devices are each process's own, and there is none to see.
int print_processes(int count) {
  const char* card = getenv("CANN_SIM_CARD");
  const bool shared = card && *card;
  cann_sim::CardTable* const table = shared ? new cann_sim::CardTable(card) : nullptr;  // for the life of this command
  printf("%s| %-26s| %-14s| %-25s| %-24s|\n%s", line, "NPU     Chip", "Process id", "Process name", "Process memory(MB)", thick);
  for (int device = 0; device < count; ++device) {
    const auto holders = shared ? table->holders(device) : std::vector<cann_sim::Holder>();
    for (const cann_sim::Holder& holder : holders)
      printf("| %-8d%-18d| %-14d| %-25s| %-24llu|\n", device, 0, holder.process, holder.name.c_str(),
             static_cast<unsigned long long>(holder.bytes >> 20));
    if (holders.empty()) {
      char text[64];
      snprintf(text, sizeof text, "No running processes found in NPU %d", device);
      printf("| %-95s|\n", text);
    }
    fputs(thick, stdout);
  }
  return 0;
}

int print_table(unsigned count) {
  aclCANNPackageVersion version;
  if (aclError code = aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &version)) return failed("aclsysGetCANNVersion", code);
  printf("+------------------------------------------------------------------------------------------------+\n");
  printf("| npu-smi %-23s  Version: %-53s|\n%s", "of cann_sim, simulated", version.version, line);
  printf("| %-26s| %-14s| %-51s|\n", "NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)");
  printf("| %-26s| %-14s| %-51s|\n%s", "Chip", "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)", thick);
  for (unsigned device = 0; device < count; ++device)
    if (print_device(static_cast<int>(device))) return 1;
  return print_processes(static_cast<int>(count));
}

int print_list(unsigned count) {
  printf("\tTotal Count                    : %u\n", count);
  for (unsigned device = 0; device < count; ++device)
    printf("\n\tNPU ID                         : %u\n\tChip Count                     : 1\n", device);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) return usage(stdout);
  const bool list = argc == 3 && !strcmp(argv[2], "-l");
  if (argc < 2 || strcmp(argv[1], "info") || (argc > 2 && !list)) return usage(stderr);
  unsetenv("ASCEND_RT_VISIBLE_DEVICES");  // npu-smi shows all devices, whatever a program is to see
  if (aclError code = aclInit(nullptr)) return failed("aclInit", code);
  uint32_t count = 0;
  if (aclError code = aclrtGetDeviceCount(&count)) return failed("aclrtGetDeviceCount", code);
  const int status = list ? print_list(count) : print_table(count);
  if (aclError code = aclFinalize()) return failed("aclFinalize", code);
  return status;
}
