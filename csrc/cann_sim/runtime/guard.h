// What an exported function answers where its body throws: the generated guards (generate.py) are built on it.
#pragma once
#include <exception>
#include <new>

#include "runtime/runtime.h"

namespace cann_sim {

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
