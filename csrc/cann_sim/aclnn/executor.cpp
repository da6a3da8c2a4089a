// libnnopbase: calls and executors, repeatable ones with their address setters, and the light init pair.
#include <cstdio>
#include <mutex>

#include "aclnn/call.h"
#include "aclnn/executor_lock.h"

using namespace cann_sim;

namespace {

// Calls that are done, kept for the next ones: an op's host cost is mostly allocation otherwise. All are of one size
// (items.h), so what they take together does not depend on the ops that came along.
class CallPool {
 public:
  CallPool() { free_.reserve(kKept); }  // here, not in give(): a worker that ends a call has no caller to report to
  Call* take() {
    std::lock_guard<std::mutex> hold(mutex_);
    if (free_.empty()) return nullptr;
    Call* call = free_.back();
    free_.pop_back();
    return call;
  }
  bool give(Call* call) noexcept {
    std::lock_guard<std::mutex> hold(mutex_);
    if (free_.size() >= kKept) return false;
    free_.push_back(call);
    return true;
  }

 private:
  static constexpr size_t kKept = 1024;
  std::mutex mutex_;
  std::vector<Call*> free_;
};

CallPool& pool() {
  static auto* calls = new CallPool;  // never destroyed: workers may still end calls while the process ends
  return *calls;
}

// The executor behind a handle, or nullptr with *code set.
aclOpExecutor* expect_executor(aclOpExecutor* handle, const char* function, int* code) {
  if (!handle) {
    *code = fail(ACLNN_ERR_INNER_NULLPTR, "%s: null executor", function);
    return nullptr;
  }
  aclOpExecutor* executor = executors().get(handle);
  if (!executor) report_misuse("%s: the executor is unknown, or was used up by its second phase", function);
  *code = executor ? 0 : fail(ACLNN_ERR_PARAM_INVALID, "%s: executor %p is unknown or was consumed by its second phase",
                              function, static_cast<void*>(handle));
  return executor;
}

// The call whose addresses may change: one that is still queued keeps its own, and the executor goes on with a copy.
Call& changeable(aclOpExecutor& executor) {
  if (!executor.call->unique()) {
    Call* copy = executor.call->clone();
    copy->workspace_bytes = executor.call->workspace_bytes;
    executor.call->release();
    executor.call = copy;
  }
  return *executor.call;
}

// The address setters count tensors and lists among the inputs, the outputs, or all; what is both counts in each.
enum class Among { inputs, outputs, all };
bool counts(Kind kind, Among among) {
  const bool in_and_out = kind == Kind::k_inout || kind == Kind::k_inouts;
  return among == Among::all || in_and_out || is_output(kind) == (among == Among::outputs);
}

int set_address(const char* function, aclOpExecutor* handle, Among among, size_t index, const aclTensor* tensor, void* addr) {
  CANN_ENTRY(function);
  std::lock_guard<std::mutex> hold(executor_mutex(handle));
  int code;
  aclOpExecutor* executor = expect_executor(handle, function, &code);
  if (!executor) return code;
  if (!tensor) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null tensor", function);
  if (!executor->repeatable)
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: %s's executor is not repeatable", function, executor->call->name());
  Call& call = changeable(*executor);
  size_t seen = 0;
  for (const Arg& arg : call.args) {
    if (!(is_tensor(arg.kind) || is_tensor_list(arg.kind)) || !counts(arg.kind, among)) continue;
    if (seen++ != index) continue;
    if (!is_tensor(arg.kind) || call.handles[arg.first] != tensor)
      return fail(ACLNN_ERR_PARAM_INVALID, "%s: tensor %p is not argument %zu of %s's first phase", function,
                  static_cast<const void*>(tensor), index, call.name());
    call.metas[arg.first].addr = addr;
    return 0;
  }
  return fail(ACLNN_ERR_PARAM_INVALID, "%s: index %zu; %s has %zu such tensors", function, index, call.name(), seen);
}

int set_list_address(const char* function, aclOpExecutor* handle, Among among, size_t index, size_t item,
                     const aclTensorList* list, void* addr) {
  CANN_ENTRY(function);
  std::lock_guard<std::mutex> hold(executor_mutex(handle));
  int code;
  aclOpExecutor* executor = expect_executor(handle, function, &code);
  if (!executor) return code;
  if (!list) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null tensor list", function);
  if (!executor->repeatable)
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: %s's executor is not repeatable", function, executor->call->name());
  Call& call = changeable(*executor);
  size_t seen = 0;  // irIndex counts the op's tensor arguments, lists and single ones alike
  for (const Arg& arg : call.args) {
    if (!(is_tensor(arg.kind) || is_tensor_list(arg.kind)) || !counts(arg.kind, among)) continue;
    if (seen++ != index) continue;
    if (!is_tensor_list(arg.kind) || item >= static_cast<size_t>(arg.count))
      return fail(ACLNN_ERR_PARAM_INVALID, "%s: argument %zu of %s has no tensor %zu in a list", function, index, call.name(), item);
    call.metas[arg.first + item].addr = addr;
    return 0;
  }
  return fail(ACLNN_ERR_PARAM_INVALID, "%s: index %zu; %s has %zu such arguments", function, index, call.name(), seen);
}

}  // namespace

namespace cann_sim {

Handles<aclOpExecutor>& executors() {
  static auto* made = [] {
    count_at_finalize("aclOpExecutor", [] { return executors().live(); }, [] {
      std::string text;
      size_t shown = 0;
      for (aclOpExecutor* e : executors().all())
        if (shown++ < 5) text += std::string(shown > 1 ? ", " : " of ") + e->call->name();
      return text;
    });
    return new Handles<aclOpExecutor>(1 << 18);
  }();
  return *made;
}

std::mutex& executor_mutex(const void* handle) {
  static std::mutex locks[64];
  return locks[reinterpret_cast<uintptr_t>(handle) / sizeof(aclOpExecutor) % 64];
}

void refuse(int code, const char* format, ...) {
  char text[512];
  va_list rest;
  va_start(rest, format);
  std::vsnprintf(text, sizeof text, format, rest);
  va_end(rest);
  throw Refusal{code, text};
}

namespace {

// The bytes of a tensor, in runs; a tensor of very many runs is left out, because the range around them is others' too.
void list_tensor(std::vector<Access>& uses, const TensorMeta& t, bool writes, bool is_input, const char* what) {
  constexpr int64_t kMostRuns = 4096;
  const int64_t size = element_size(t.dtype);
  if (!t.given() || !t.addr || !size || !t.numel()) return;
  int64_t index[kMaxRank] = {}, at = t.offset, run = 1, runs = 1;
  int inner = t.ndim;                   // dims from here on are one run
  for (; inner > 0 && (t.sizes[inner - 1] == 1 || t.strides[inner - 1] == run); --inner) run *= t.sizes[inner - 1];
  for (int d = 0; d < inner; ++d) runs *= t.strides[d] ? t.sizes[d] : 1;
  if (runs > kMostRuns) return;
  const bool whole = inner == 0 && is_input;  // what is both may be written only, as the target of a fill is
  while (true) {
    uses.push_back({static_cast<const char*>(t.addr) + at * size, static_cast<size_t>(run * size), writes, what, whole});
    int d = inner - 1;
    for (; d >= 0; --d) {
      if (!t.strides[d]) continue;
      at += t.strides[d];
      if (++index[d] < t.sizes[d]) break;
      at -= t.strides[d] * t.sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace

void Call::list_uses(std::vector<Access>& uses) const {
  for (int i = 0; i < row->nargs; ++i) {
    const Arg& arg = args[static_cast<size_t>(i)];
    if (!is_tensor(arg.kind) && !is_tensor_list(arg.kind)) continue;
    const bool both = arg.kind == Kind::k_inout || arg.kind == Kind::k_inouts;
    for (int32_t k = 0; k < arg.count; ++k) {
      const TensorMeta& t = metas[static_cast<size_t>(arg.first + k)];
      if (both || !is_output(arg.kind)) list_tensor(uses, t, false, !both, row->args[i].name);
      if (is_output(arg.kind)) list_tensor(uses, t, true, false, row->args[i].name);
    }
  }
  if (workspace_bytes) uses.push_back({workspace, workspace_bytes, true, "its workspace"});
}

Call* Call::make(const OpRow& row) {
  Call* call = pool().take();
  if (!call) call = new Call;
  call->row = &row;
  return call;
}

Call* Call::clone() const {
  Call* call = make(*row);
  try {
    call->execute = execute;
    call->args = args;
    call->metas = metas;
    call->handles = handles;
    call->scalars_ = scalars_;
    call->ints_ = ints_;
    call->floats_ = floats_;
    call->strings_ = strings_;
    call->described = described;
  } catch (...) {
    call->release();
    throw;
  }
  return call;
}

void Call::destroy() {
  args.clear();
  metas.clear();
  handles.clear();
  scalars_.clear();
  ints_.clear();
  floats_.clear();
  std::vector<std::string>().swap(strings_);
  std::vector<Described>().swap(described);
  workspace = nullptr;
  workspace_bytes = 0;
  retain();  // the pool's reference
  if (!pool().give(this)) delete this;
}

}  // namespace cann_sim

aclnnStatus aclnnInit(const char*) {
  CANN_ENTRY("aclnnInit");
  return 0;
}
aclnnStatus aclnnFinalize() {
  CANN_ENTRY("aclnnFinalize");
  return 0;
}

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  CANN_ENTRY("aclSetAclOpExecutorRepeatable");
  std::lock_guard<std::mutex> hold(executor_mutex(executor));
  int code;
  aclOpExecutor* found = expect_executor(executor, "aclSetAclOpExecutorRepeatable", &code);
  if (!found) return code;
  if (found->call->row->may_be_unrepeatable || found->call->row->dynamic_output)
    return fail(ACLNN_ERR_INNER, "aclSetAclOpExecutorRepeatable: %s copies between host and device itself and cannot be repeated",
                found->call->name());
  found->repeatable = true;
  return 0;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  CANN_ENTRY("aclDestroyAclOpExecutor");
  std::lock_guard<std::mutex> hold(executor_mutex(executor));
  int code;
  if (!expect_executor(executor, "aclDestroyAclOpExecutor", &code)) return code;
  executors().drop(executor);
  return 0;
}

// Both spellings are exported.
#define SETTERS(prefix)                                                                                                 \
  aclnnStatus prefix##SetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {   \
    return set_address(#prefix "SetInputTensorAddr", executor, Among::inputs, index, tensor, addr);                     \
  }                                                                                                                     \
  aclnnStatus prefix##SetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {  \
    return set_address(#prefix "SetOutputTensorAddr", executor, Among::outputs, index, tensor, addr);                   \
  }                                                                                                                     \
  aclnnStatus prefix##SetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {        \
    return set_address(#prefix "SetTensorAddr", executor, Among::all, index, tensor, addr);                             \
  }                                                                                                                     \
  aclnnStatus prefix##SetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,     \
                                                aclTensorList* tensors, void* addr) {                                   \
    return set_list_address(#prefix "SetDynamicInputTensorAddr", executor, Among::inputs, irIndex, relativeIndex,       \
                            tensors, addr);                                                                             \
  }                                                                                                                     \
  aclnnStatus prefix##SetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,    \
                                                 aclTensorList* tensors, void* addr) {                                  \
    return set_list_address(#prefix "SetDynamicOutputTensorAddr", executor, Among::outputs, irIndex, relativeIndex,     \
                            tensors, addr);                                                                             \
  }                                                                                                                     \
  aclnnStatus prefix##SetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,          \
                                           aclTensorList* tensors, void* addr) {                                        \
    return set_list_address(#prefix "SetDynamicTensorAddr", executor, Among::all, irIndex, relativeIndex, tensors, addr); \
  }
SETTERS(acl)
SETTERS(Acl)

// Scratch pools and the executor cache of clients that know them: there is nothing to pool, and no call is ever cached.
bool CanUsePTACache(const char*) { return false; }
aclOpExecutor* PTAFindExecCache(uint8_t*, size_t, uint64_t*) { return nullptr; }
aclOpExecutor* PTAGetExecCache(uint64_t, uint64_t*) { return nullptr; }
int InitHugeMemThreadLocal(void*, bool) { return 0; }
void UnInitHugeMemThreadLocal(void*, bool) {}
void ReleaseHugeMem(void*, bool) {}
void InitPTACacheThreadLocal() {}
void UnInitPTACacheThreadLocal() {}
void SetPTACacheHashKey(uint8_t*, size_t) {}
void SetPTAHashKey(uint64_t) {}
void AddTensorAddrToCachedList(void*) {}
