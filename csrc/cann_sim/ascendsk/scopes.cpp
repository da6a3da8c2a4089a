// libascendsk (super kernels): scopes of a captured stream, and graphs, are checked and left as they are; nothing is fused.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/runtime.h"

using namespace cann_sim;

namespace {

struct Scopes {
  std::mutex mutex;
  std::map<aclrtStream, std::vector<std::string>> open;  // the names, innermost last
};
Scopes& scopes() {
  static Scopes& one = *new Scopes;
  return one;
}

}  // namespace

CANN_ABI aclError aclskScopeBegin(const char* scopeName, aclrtStream stream) {
  if (int code = check_stream(stream)) return code;
  Scopes& s = scopes();
  std::lock_guard<std::mutex> hold(s.mutex);
  s.open[stream].emplace_back(scopeName ? scopeName : "");
  return 0;
}

CANN_ABI aclError aclskScopeEnd(const char* scopeName, aclrtStream stream) {
  if (int code = check_stream(stream)) return code;
  Scopes& s = scopes();
  std::lock_guard<std::mutex> hold(s.mutex);
  auto found = s.open.find(stream);
  const std::string name = scopeName ? scopeName : "";
  if (found == s.open.end() || found->second.back() != name)
    return fail(ACL_ERROR_INVALID_PARAM, "aclskScopeEnd: the innermost scope of the stream is not \"%s\"", name.c_str());
  found->second.pop_back();
  if (found->second.empty()) s.open.erase(found);
  return 0;
}

CANN_ABI aclError aclskOptimize(aclmdlRI modelRI, const void*) {
  uint32_t id = 0;
  return aclmdlRIGetId(modelRI, &id);  // refuses what is not a graph
}
