// The errors of a thread: CANN's recent message and last code. Which code a call gives is decided by the call.
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "runtime/device.h"

namespace cann_sim {
namespace {

// Plain memory of the thread: an error must be reported even when there is no memory for a text.
struct ThreadErrors {
  int last = 0;
  bool has_message = false;
  char message[1100];    // the newest
  char handed[1100];     // what aclGetRecentErrMsg gave out: valid until its next call on this thread
};
ThreadErrors& errors() {
  thread_local ThreadErrors mine;
  return mine;
}

}  // namespace

int fail(int code, const char* format, ...) noexcept {
  char text[1024];       // apart: an argument may be this thread's message
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ThreadErrors& e = errors();
  e.last = code;
  snprintf(e.message, sizeof e.message, "[%d] %s", code, text);
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
  memcpy(e.handed, e.message, sizeof e.handed);
  e.has_message = false;
  return e.handed;
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
