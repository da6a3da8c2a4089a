// HcclCommConfig: what HcclCommConfigInit writes, and what of a client's configuration is checked and has an effect.
#include <algorithm>
#include <cstring>

#include "hccl/comm.h"

namespace cann_sim {
namespace {

struct Info {                       // what `reserved` holds
  size_t size;                      // of the struct that the client was compiled with
  uint32_t magic, version;
  uint64_t rsv;
};
static_assert(sizeof(Info) == HCCL_COMM_CONFIG_INFO_BYTES, "ABI");
constexpr auto kNotSet = static_cast<uint32_t>(HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET);
constexpr uint32_t kMostDeterministic = 2, kMostExpansion = 6;

HcclCommConfig defaults() {
  HcclCommConfig config{};
  const Info info{sizeof config, static_cast<uint32_t>(HCCL_COMM_CONFIG_MAGIC_WORD), HCCL_COMM_CONFIG_VERSION, 0};
  std::memcpy(config.reserved, &info, sizeof info);
  config.hcclBufferSize = config.hcclDeterministic = config.hcclQos = kNotSet;
  config.hcclRdmaTrafficClass = config.hcclRdmaServiceLevel = kNotSet;
  config.hcclOpExpansionMode = HCCL_COMM_DEFAULT_OP_EXPANSION_MODE;
  config.hcclExecTimeOut = CommOptions::kNotSet;
  config.hcclSymWinMaxMemSizePerRank = HCCL_DEFAULT_SYMMETRIC_MEMORY_STRIDE;
  return config;
}

void expect(bool holds, const char* field, const std::string& value, const char* expected) {
  if (!holds) refuse_hccl(HCCL_E_PARA, std::string(field) + " is " + value + ", expected " + expected);
}

}  // namespace

// Fields that the client's struct does not have keep their defaults; those that this one does not have are not read.
CommOptions read_config(const HcclCommConfig* given) {
  CommOptions options;
  if (!given) return options;
  Info info;
  std::memcpy(&info, given->reserved, sizeof info);
  if (info.magic != static_cast<uint32_t>(HCCL_COMM_CONFIG_MAGIC_WORD) || info.size < sizeof info)
    refuse_hccl(HCCL_E_PARA, "the configuration was not initialised by HcclCommConfigInit");
  HcclCommConfig config = defaults();
  std::memcpy(&config, given, std::min(info.size, sizeof config));

  const size_t length = strnlen(config.hcclCommName, sizeof config.hcclCommName);
  expect(length < sizeof config.hcclCommName, "hcclCommName", "not ended by a 0", "at most 127 characters");
  expect(config.hcclBufferSize >= 1, "hcclBufferSize", "0", "at least 1 (MB)");
  expect(config.hcclDeterministic <= kMostDeterministic || config.hcclDeterministic == kNotSet, "hcclDeterministic",
         std::to_string(config.hcclDeterministic), "0, 1 or 2");
  expect(config.hcclOpExpansionMode <= kMostExpansion, "hcclOpExpansionMode", std::to_string(config.hcclOpExpansionMode), "0 to 6");
  expect(config.hcclExecTimeOut >= CommOptions::kNotSet, "hcclExecTimeOut", std::to_string(config.hcclExecTimeOut), "seconds, or 0");
  options.name.assign(config.hcclCommName, length);
  options.exec_timeout = config.hcclExecTimeOut;
  if (config.hcclDeterministic != kNotSet) options.deterministic = static_cast<int32_t>(config.hcclDeterministic);
  return options;
}

}  // namespace cann_sim

void HcclCommConfigInit(HcclCommConfig* config) {
  if (config) *config = cann_sim::defaults();
}
