// The errors of a thread: CANN's recent message and last code. Which code a call gives is decided by the call.
#include <cstdarg>
#include <cstdio>

#include "runtime/device.h"

namespace cann_sim {
namespace {

struct ThreadErrors {
  int last = 0;
  bool has_message = false;
  std::string message;   // the newest
  std::string handed;    // what aclGetRecentErrMsg gave out: valid until its next call on this thread
};
ThreadErrors& errors() {
  thread_local ThreadErrors mine;
  return mine;
}

}  // namespace

int fail(int code, const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ThreadErrors& e = errors();
  e.last = code;
  e.message = "[" + std::to_string(code) + "] " + text;
  e.has_message = true;
  return code;
}

int refuse_function(const char* name) {
  CANN_ENTRY(name);
  return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s is exported by this CANN but not supported", name);
}

}  // namespace cann_sim

using namespace cann_sim;

const char* aclGetRecentErrMsg() {
  ThreadErrors& e = errors();
  if (!e.has_message) return nullptr;
  e.handed.swap(e.message);
  e.has_message = false;
  return e.handed.c_str();
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  if (level != ACL_RT_THREAD_LEVEL) return ACL_ERROR_RT_PARAM_INVALID;
  return errors().last;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  if (level != ACL_RT_THREAD_LEVEL) return ACL_ERROR_RT_PARAM_INVALID;
  int last = errors().last;
  errors().last = 0;
  return last;
}
