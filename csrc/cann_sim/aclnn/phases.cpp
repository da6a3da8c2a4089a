// libopapi: the two phases that all aclnn ops share. What an op checks and computes beyond its row is under ops/.
#include <cmath>
#include <cstring>

#include "aclnn/describe.h"
#include "aclnn/executor_lock.h"
#include "ops/op.h"
#include "runtime/device.h"
#include "runtime/guard.h"
#include "runtime/overflow.h"

namespace cann_sim {
namespace {

bool is_in(const char* const* names, const char* name) {
  for (; *names; ++names)
    if (!strcmp(*names, name)) return true;
  return false;
}

uint32_t family_bit() {
  uint32_t bit = 1;
  for (const char* const* f = family_names; *f; ++f, bit <<= 1)
    if (!strcmp(*f, soc().family)) return bit;
  return 0;
}

void refuse_argument(const OpRow& row, const ArgRow& arg, int code, const char* what) {
  refuse(code, "%s: argument %s %s", row.name, arg.name, what);
}

// The object behind a handle; nullptr when it is absent and may be.
template <class T>
const T* object(const OpRow& row, const ArgRow& arg, Handles<T>& pool, const void* handle) {
  if (!handle) {
    // An empty list is passed as null, so lists may always be absent.
    if (!arg.optional && !is_tensor_list(arg.kind)) refuse_argument(row, arg, ACLNN_ERR_PARAM_NULLPTR, "is null");
    return nullptr;
  }
  const T* found = pool.get(handle);
  if (!found) refuse_argument(row, arg, ACLNN_ERR_PARAM_INVALID, "is not a live object of its kind");
  return found;
}

bool is_dense(const TensorMeta& t) {
  int64_t step = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (t.sizes[d] != 1 && t.strides[d] != step) return false;
    step *= t.sizes[d];
  }
  return true;
}

// Whether the memory at the tensor's address has these elements.
bool holds(const TensorMeta& t, int64_t low, int64_t high) {
  const bool half_byte = t.dtype == ACL_INT4 || t.dtype == ACL_FLOAT4_E2M1 || t.dtype == ACL_FLOAT4_E1M2;
  const int64_t bits = half_byte ? 4 : t.dtype == ACL_UINT1 ? 1 : 8 * element_size(t.dtype);
  int64_t first, last;
  if (__builtin_mul_overflow(low, bits, &first) || __builtin_mul_overflow(high, bits, &last)) return false;
  first >>= 3;
  last = (last + bits - 1) >> 3;
  return is_device_memory(static_cast<const char*>(t.addr) + first, static_cast<size_t>(last - first + 1));
}

void check_tensor(const OpRow& row, const ArgRow& arg, const TensorMeta& t) {
  // Clients pass an empty float tensor in a list for an index that is absent, and in place of an optional tensor one of no
  // items, whose dims and data type say nothing.
  if ((is_tensor_list(arg.kind) || arg.optional) && t.numel() == 0) return;
  static const bool no_bfloat16 = is_in(families_without_bfloat16, soc().family);
  if (t.dtype == ACL_BF16 && no_bfloat16)
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: argument %s is bfloat16, which %s does not have", row.name, arg.name, soc().name);
  if (arg.dtypes && !((arg.dtypes >> t.dtype) & 1))
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: argument %s does not take data type %d", row.name, arg.name, t.dtype);
  if (t.ndim < arg.min_rank || t.ndim > arg.max_rank)
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: argument %s has %d dims; expected %d to %d", row.name, arg.name, t.ndim,
           arg.min_rank, arg.max_rank);
  int64_t low = t.offset, high = t.offset;
  bool too_far = false;  // beyond what 64 bits count
  for (int d = 0; d < t.ndim; ++d) {
    if (t.sizes[d] == 0) return;
    int64_t& end = t.strides[d] < 0 ? low : high;
    int64_t reach;
    too_far |= __builtin_mul_overflow(t.strides[d], t.sizes[d] - 1, &reach) || __builtin_add_overflow(end, reach, &end);
  }
  // storageDims are what the client says of its memory; the allocation is what counts where they say less.
  if (too_far || ((low < 0 || high >= t.storage_numel) && !holds(t, low, high)))
    refuse(ACLNN_ERR_PARAM_INVALID, "%s: argument %s reaches elements %ld to %ld, which its memory does not have", row.name,
           arg.name, low, high);
  if (arg.dense && !is_dense(t)) refuse_argument(row, arg, ACLNN_ERR_PARAM_INVALID, "is not contiguous, which it has to be");
  if (!t.addr) refuse_argument(row, arg, ACLNN_ERR_PARAM_NULLPTR, "has elements and a null address");
}

void take_tensor(Call& call, const ArgRow& arg, const aclTensor* t) {
  if (t) {
    check_tensor(*call.row, arg, t->meta);
    call.metas.push_back(t->meta);
  } else {
    call.metas.push_back(TensorMeta{});
  }
  call.handles.push_back(const_cast<aclTensor*>(t));
}

// Copies one argument out of the client's objects; throws Refusal.
void take(Call& call, const ArgRow& arg, const Raw& raw) {
  const OpRow& row = *call.row;
  Arg a{arg.kind};
  a.count = 1;
  switch (arg.kind) {
    case Kind::k_tensor: case Kind::k_out: case Kind::k_inout: {
      a.first = static_cast<int32_t>(call.metas.size());
      const aclTensor* t = object(row, arg, tensors(), raw.p);
      take_tensor(call, arg, t);
      a.given = t;
      break;
    }
    case Kind::k_tensors: case Kind::k_outs: case Kind::k_inouts: {
      a.first = static_cast<int32_t>(call.metas.size());
      const aclTensorList* list = object(row, arg, tensor_lists(), raw.p);
      a.given = list;
      a.count = list ? static_cast<int32_t>(list->items.size()) : 0;
      call.metas.reserve(call.metas.size() + static_cast<size_t>(a.count));
      call.handles.reserve(call.handles.size() + static_cast<size_t>(a.count));
      for (int32_t i = 0; i < a.count; ++i) {
        const aclTensor* item = list->items[i];
        if (item && !tensors().check(item)) refuse_argument(row, arg, ACLNN_ERR_PARAM_INVALID, "holds a destroyed tensor");
        take_tensor(call, arg, item);
      }
      break;
    }
    case Kind::k_scalar: {
      const aclScalar* s = object(row, arg, scalars(), raw.p);
      a.given = s;
      a.first = static_cast<int32_t>(call.scalars_.size());
      call.scalars_.push_back(s ? *s : aclScalar{});
      break;
    }
    case Kind::k_scalars: {
      const aclScalarList* list = object(row, arg, scalar_lists(), raw.p);
      a.given = list;
      a.first = static_cast<int32_t>(call.scalars_.size());
      a.count = list ? static_cast<int32_t>(list->items.size()) : 0;
      for (int32_t i = 0; i < a.count; ++i) {
        if (!scalars().check(list->items[i])) refuse_argument(row, arg, ACLNN_ERR_PARAM_INVALID, "holds a destroyed scalar");
        call.scalars_.push_back(*list->items[i]);
      }
      break;
    }
    case Kind::k_ints: case Kind::k_bools: {
      a.first = static_cast<int32_t>(call.ints_.size());
      if (arg.kind == Kind::k_ints) {
        if (const aclIntArray* x = object(row, arg, int_arrays(), raw.p))
          a.given = true, call.ints_.append(x->items.data(), x->items.data() + x->items.size());
      } else if (const aclBoolArray* x = object(row, arg, bool_arrays(), raw.p)) {
        a.given = true, call.ints_.append(x->items.data(), x->items.data() + x->items.size());
      }
      a.count = static_cast<int32_t>(call.ints_.size()) - a.first;
      break;
    }
    case Kind::k_floats: {
      a.first = static_cast<int32_t>(call.floats_.size());
      if (const aclFloatArray* x = object(row, arg, float_arrays(), raw.p))
        a.given = true, call.floats_.append(x->items.data(), x->items.data() + x->items.size());
      a.count = static_cast<int32_t>(call.floats_.size()) - a.first;
      break;
    }
    case Kind::k_string:
      a.first = static_cast<int32_t>(call.strings_.size());
      a.given = raw.p;
      call.strings_.emplace_back(raw.p ? static_cast<const char*>(raw.p) : "");
      break;
    case Kind::k_double: case Kind::k_float:
      a.given = true;
      a.d = raw.d;
      break;
    default:
      a.given = true;
      a.i = raw.i;
  }
  call.args.push_back(a);
}

// The scratch that CANN requests when it has to make a tensor contiguous; the simulator scribbles on it while it runs.
uint64_t default_workspace(const Call& call) {
  uint64_t bytes = 0;
  for (const TensorMeta& t : call.metas) bytes += scratch_of(t);
  return bytes;
}

// A result that is no finite number, in the mode in which the device says so.
void look_for_overflow(Run& run) {
  const Call& call = run.call;
  for (int i = 0; i < call.row->nargs; ++i) {
    if (!is_output(call.row->args[i].kind)) continue;
    for (const TensorMeta& t : call.tensors(i)) {
      if (!t.given() || !computes(t.dtype) || !is_float(dtype_of(t.dtype))) continue;
      const Value v = run.value(t).to(mt::kFloat).dense();
      const float* p = v.ptr<float>();
      for (int64_t k = 0, n = v.numel(); k < n; ++k)
        if (!std::isfinite(p[k])) return note_overflow();
    }
  }
}

// Whether every output has no items: as on a card there is nothing to do then, whatever the inputs are. Ranks of a group
// meet all the same, and what a dynamic output gets is written into its description.
bool writes_nothing(const Call& call) {
  bool has_output = false;
  for (int i = 0; i < call.row->nargs; ++i) {
    const ArgRow& arg = call.row->args[i];
    if (arg.kind == Kind::k_string && !strcmp(arg.name, "group")) return false;
    if (!is_output(arg.kind)) continue;
    for (const TensorMeta& t : call.tensors(i)) {
      if (t.given() && t.numel()) return false;
      has_output |= t.given();
    }
  }
  return has_output && !call.row->dynamic_output;
}

void execute(const Call& call) {
  if (writes_nothing(call)) return;
  Run run(call);
  if (call.workspace_bytes) {  // a workspace that another user also writes must not go unnoticed
    Pins pins;
    std::memset(pins.resolve(call.workspace, call.workspace_bytes), 0xA5, call.workspace_bytes);
  }
  try {
    call.row->impl->run(run);
  } catch (const Refusal& refusal) {  // of what the first phase could not see, or did not look at
    throw LateRefusal(refusal.code, std::string(call.name()) + ": " + refusal.message);
  } catch (const LateRefusal& refusal) {
    throw LateRefusal(refusal.code, std::string(call.name()) + ": " + refusal.what());
  }
  if (notes_overflow()) look_for_overflow(run);
}

}  // namespace

uint64_t scratch_of(const TensorMeta& t) {
  return !t.given() || is_dense(t) ? 0 : (static_cast<uint64_t>(t.numel() * element_size(t.dtype)) + 511) / 512 * 512;
}

// The serial number of the object behind an argument; 0: there is none.
static uint32_t serial_of(Kind kind, const void* handle) {
  switch (kind) {
    case Kind::k_tensor: case Kind::k_out: case Kind::k_inout: return tensors().serial(handle);
    case Kind::k_tensors: case Kind::k_outs: case Kind::k_inouts: return tensor_lists().serial(handle);
    case Kind::k_scalar: return scalars().serial(handle);
    case Kind::k_scalars: return scalar_lists().serial(handle);
    case Kind::k_ints: return int_arrays().serial(handle);
    case Kind::k_floats: return float_arrays().serial(handle);
    case Kind::k_bools: return bool_arrays().serial(handle);
    default: return 0;
  }
}

// On a card the second phase reads the objects of the first: here they were copied, so only a check finds what is gone.
static void check_described(const Call& call) {
  for (const Described& d : call.described) {
    const ArgRow& arg = call.row->args[d.argument];
    if (serial_of(arg.kind, d.handle) != d.serial)
      report_misuse("%s: argument %s was destroyed between the phases; it has to live until the second one returns",
                    call.name(), arg.name);
  }
}

int refuse_op(const OpRow& row) {
  return fail(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, "%s: no kernel; this CANN exports the op and does not compute it", row.name);
}

// The first phase, which may throw; `made` is the call, of which the executor takes over the reference.
static int prepare(const OpRow& row, const Raw* raw, uint64_t* workspace, aclOpExecutor** executor, Call*& made) {
  if (int planned = planned_fault(row.name)) return planned;
  if (!workspace || !executor) return fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null workspaceSize or executor", row.name);
  if (!row.impl) return refuse_op(row);
  static const uint32_t own = family_bit();
  if (row.families && !(row.families & own))
    return fail(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, "%s: no kernel for %s", row.name, soc().name);
  if (int code = check_context()) return code;
  Call* call = made = Call::make(row);
  for (int i = 0; i < row.nargs; ++i) take(*call, row.args[i], raw[i]);
  if (settings().check_memory)
    for (int i = 0; i < row.nargs; ++i)
      if (const uint32_t serial = serial_of(row.args[i].kind, raw[i].p)) call->described.push_back({raw[i].p, serial, i});
  if (row.impl->check) row.impl->check(*call);
  *workspace = row.impl->workspace ? row.impl->workspace(*call) : default_workspace(*call);
  call->execute = execute;
  call->workspace_bytes = *workspace;
  *executor = executors().make(call);
  if (!*executor) return fail(ACLNN_ERR_INNER_CREATE_EXECUTOR, "%s: too many executors are alive", row.name);
  made = nullptr;
  return 0;
}

int first_phase(const OpRow& row, const Raw* raw, uint64_t* workspace, aclOpExecutor** executor) {
  Call* made = nullptr;
  int code;
  try {
    code = prepare(row, raw, workspace, executor, made);
  } catch (const Refusal& refusal) {
    const bool named = refusal.message.rfind(row.name, 0) == 0;  // checks that many ops share cannot name the op
    code = fail(refusal.code, "%s%s%s", named ? "" : row.name, named ? "" : ": ", refusal.message.c_str());
  } catch (const DeviceFault& fault) {  // shapes that a check works with and that do not go together
    code = fail(ACLNN_ERR_PARAM_INVALID, "%s: %s", row.name, fault.what());
  } catch (...) {
    code = aclnn_code_for_exception<int>(row.name);
  }
  if (made) made->release();
  return code;
}

int second_phase(const OpRow& row, void* workspace, uint64_t bytes, aclOpExecutor* handle, aclrtStream stream) {
  const int planned = planned_fault(row.name, "launch ");
  if (!handle) return fail(ACLNN_ERR_INNER_NULLPTR, "%s: null executor", row.name);
  std::lock_guard<std::mutex> hold(executor_mutex(handle));
  aclOpExecutor* executor = executors().get(handle);
  if (!executor) {
    report_misuse("%s: the executor is unknown, or an earlier second phase has used it up; on a card this is memory that was "
                  "freed", row.name);
    return fail(ACLNN_ERR_PARAM_INVALID, "%s: executor %p is unknown, or was consumed by an earlier second phase", row.name,
                static_cast<void*>(handle));
  }
  check_described(*executor->call);
  if (executor->repeatable) executor->call->described.clear();  // later launches read the tensors alone
  Call* call = executor->call;
  int code = planned;  // which uses the executor up as any other failure does
  if (code) {
    // nothing more to check
  } else if (call->row != &row) {
    code = fail(ACLNN_ERR_PARAM_INVALID, "%s: the executor was made by %s", row.name, call->name());
  } else if (bytes < call->workspace_bytes) {
    code = fail(ACLNN_ERR_PARAM_INVALID, "%s: a workspace of %lu bytes; %lu are needed", row.name, bytes, call->workspace_bytes);
  } else if (call->workspace_bytes && !workspace) {
    code = fail(ACLNN_ERR_PARAM_NULLPTR, "%s: null workspace; %lu bytes are needed", row.name, call->workspace_bytes);
  } else {
    for (size_t i = 0; i < call->handles.size() && !code; ++i)
      if (call->handles[i] && !tensors().check(call->handles[i]))
        code = fail(ACLNN_ERR_PARAM_INVALID, "%s: a tensor was destroyed between the phases", row.name);
  }
  if (!code) try {
    if (recording()) record_call(describe(*call));
    // A repeatable call that is still queued keeps its addresses: the next launch takes a copy.
    Call* launched = executor->repeatable && !call->unique() ? call->clone() : (call->retain(), call);
    launched->workspace = workspace;
    launched->workspace_bytes = call->workspace_bytes;
    code = enqueue(stream, launched);
  } catch (...) {
    code = aclnn_code_for_exception<int>(row.name);
  }
  if (!executor->repeatable) executors().drop(handle);  // also when the phase failed
  return code;
}

}  // namespace cann_sim

// For `cann-sim info`.
CANN_ABI int cannSimOpCount() { return cann_sim::op_count; }
CANN_ABI const char* cannSimOpName(int i) {
  return i >= 0 && i < cann_sim::op_count ? cann_sim::op_rows[i].name : nullptr;
}
CANN_ABI int cannSimOpComputed(int i) {
  if (i < 0 || i >= cann_sim::op_count) return 0;
  const cann_sim::OpRow& row = cann_sim::op_rows[i];
  return row.impl && (!row.families || row.families & cann_sim::family_bit());
}
CANN_ABI int cannSimOpAbsent(int i) {
  return i >= 0 && i < cann_sim::op_count && cann_sim::is_absent(cann_sim::op_rows[i].name);
}
