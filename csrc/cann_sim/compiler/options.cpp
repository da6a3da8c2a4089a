// Compile options of the older op interface: stored only. Ops are never compiled here, so none has an effect.
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "runtime/runtime.h"

struct aclGraphDumpOption {
  int unused = 0;                       // CANN keeps its content to itself
};

namespace cann_sim {
namespace {

std::mutex options_mutex;
std::map<int, std::string>& options() {
  static auto& one = *new std::map<int, std::string>{
      {ACL_PRECISION_MODE, "allow_fp32_to_fp16"}, {ACL_AICORE_NUM, ""}, {ACL_AUTO_TUNE_MODE, ""},
      {ACL_OP_SELECT_IMPL_MODE, "high_precision"}, {ACL_OPTYPELIST_FOR_IMPLMODE, ""}, {ACL_OP_DEBUG_LEVEL, "0"},
      {ACL_DEBUG_DIR, ""}, {ACL_OP_COMPILER_CACHE_MODE, "disable"}, {ACL_OP_COMPILER_CACHE_DIR, ""},
      {ACL_OP_PERFORMANCE_MODE, "normal"},
      // "enable" would send clients to the older ops instead of aclnn.
      {ACL_OP_JIT_COMPILE, "disable"}, {ACL_OP_DETERMINISTIC, "0"}, {ACL_CUSTOMIZE_DTYPES, ""},
      {ACL_OP_PRECISION_MODE, ""}, {ACL_ALLOW_HF32, ""}, {ACL_PRECISION_MODE_V2, ""}, {ACL_OP_DEBUG_OPTION, ""}};
  return one;
}

}  // namespace
}  // namespace cann_sim

using namespace cann_sim;

aclError aclSetCompileopt(aclCompileOpt opt, const char* value) {
  CANN_ENTRY("aclSetCompileopt");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclSetCompileopt: value is NULL");
  std::lock_guard<std::mutex> hold(options_mutex);
  auto found = options().find(opt);
  if (found == options().end()) return fail(ACL_ERROR_INVALID_PARAM, "aclSetCompileopt: option %d is not known", opt);
  found->second = value;
  return 0;
}

size_t aclGetCompileoptSize(aclCompileOpt opt) {
  std::lock_guard<std::mutex> hold(options_mutex);
  auto found = options().find(opt);
  if (found != options().end()) return found->second.size() + 1;
  fail(ACL_ERROR_INVALID_PARAM, "aclGetCompileoptSize: option %d is not known", opt);
  return 0;
}

aclError aclGetCompileopt(aclCompileOpt opt, char* value, size_t length) {
  CANN_ENTRY("aclGetCompileopt");
  if (!value) return fail(ACL_ERROR_INVALID_PARAM, "aclGetCompileopt: value is NULL");
  std::lock_guard<std::mutex> hold(options_mutex);
  auto found = options().find(opt);
  if (found == options().end()) return fail(ACL_ERROR_INVALID_PARAM, "aclGetCompileopt: option %d is not known", opt);
  if (length <= found->second.size())
    return fail(ACL_ERROR_INVALID_PARAM, "aclGetCompileopt: the value needs %zu bytes, got %zu",
                found->second.size() + 1, length);
  memcpy(value, found->second.c_str(), found->second.size() + 1);
  return 0;
}

aclError aclopSetCompileFlag(aclOpCompileFlag flag) {
  CANN_ENTRY("aclopSetCompileFlag");
  if (flag == 0 || flag == 1) return 0;  // default, fuzzy: both mean the same here
  return fail(ACL_ERROR_INVALID_PARAM, "aclopSetCompileFlag: flag %d is not known", flag);
}

aclGraphDumpOption* aclCreateGraphDumpOpt() {
  CANN_ENTRY_POINTER("aclCreateGraphDumpOpt");
  return new aclGraphDumpOption;
}

aclError aclDestroyGraphDumpOpt(const aclGraphDumpOption* graphDumpOpt) {
  CANN_ENTRY("aclDestroyGraphDumpOpt");
  delete graphDumpOpt;
  return 0;
}
