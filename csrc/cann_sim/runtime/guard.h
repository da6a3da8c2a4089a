// What the generated guards (generate.py) are built on: what an exported function answers where its body throws, and which
// symbols a library does not have in the CANN that is asked for.
#pragma once
#include <exception>
#include <new>

#include "runtime/runtime.h"

namespace cann_sim {

// Takes the symbols that CANN_SIM_VERSION does not have out of the library that `inside` is part of.
CANN_SIM_API void hide_absent(const void* inside);
// Whether that version lacks a function or an op; none does where no version is asked for.
CANN_SIM_API bool is_absent(const char* name);
int parse_version(const char* text);  // 801 for "8.1.RC1"; 0: not a version from 8.0 on

// Inside a catch block: notes what was thrown for aclGetRecentErrMsg; `no_memory` where it is std::bad_alloc, else `other`.
inline int code_for_exception(const char* function, int no_memory, int other) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(no_memory, "%s: the host has no memory left", function);
  } catch (const std::exception& error) {
    return fail(other, "%s: %s", function, error.what());
  } catch (...) {
    return fail(other, "%s: an unknown exception", function);
  }
}

template <class Result>
Result acl_code_for_exception(const char* function) {
  return code_for_exception(function, ACL_ERROR_BAD_ALLOC, ACL_ERROR_INTERNAL_ERROR);
}
template <class Result>
Result aclnn_code_for_exception(const char* function) {
  return code_for_exception(function, ACL_ERROR_BAD_ALLOC, ACLNN_ERR_INNER);
}
template <class Result>
Result hccl_code_for_exception(const char* function) {
  return static_cast<Result>(code_for_exception(function, HCCL_E_MEMORY, HCCL_E_INTERNAL));
}
template <class Result>
Result value_for_exception(const char* function) {
  acl_code_for_exception<int>(function);
  return Result{};
}
template <class Result>
void nothing_for_exception(const char* function) {
  acl_code_for_exception<int>(function);
}

}  // namespace cann_sim
