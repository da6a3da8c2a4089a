// The arithmetic of reducing collectives: sum, product, maximum and minimum of every numeric HCCL data type.
#include "hccl/transfer.h"
#include "scalar.h"

namespace cann_sim {
namespace {

// Integers wrap as the hardware's do: signed overflow would be undefined in C++.
template <class T> T wrapping(T a, T b, bool product) {
  using U = std::make_unsigned_t<T>;
  // Widened first: uint16 times uint16 is computed as int, and would overflow it.
  unsigned long long x = static_cast<U>(a), y = static_cast<U>(b);
  return static_cast<T>(product ? x * y : x + y);
}

template <class T, HcclReduceOp op> T combine(T a, T b) {
  if constexpr (op == HCCL_REDUCE_MAX) return a > b || a != a ? a : b;  // a NaN wins
  if constexpr (op == HCCL_REDUCE_MIN) return a < b || a != a ? a : b;
  if constexpr (std::is_integral_v<T>) return wrapping(a, b, op == HCCL_REDUCE_PROD);
  else return op == HCCL_REDUCE_PROD ? a * b : a + b;
}

template <class T, HcclReduceOp op> void reduce(void* dst, const void* src, size_t count) {
  using C = mt::compute_t<T>;
  T* into = static_cast<T*>(dst);
  const T* from = static_cast<const T*>(src);
  for (size_t i = 0; i < count; ++i) into[i] = mt::cast<T>(combine<C, op>(mt::cast<C>(into[i]), mt::cast<C>(from[i])));
}

template <class T> ReduceFn by_op(HcclReduceOp op) {
  switch (op) {
    case HCCL_REDUCE_SUM: return reduce<T, HCCL_REDUCE_SUM>;
    case HCCL_REDUCE_PROD: return reduce<T, HCCL_REDUCE_PROD>;
    case HCCL_REDUCE_MAX: return reduce<T, HCCL_REDUCE_MAX>;
    case HCCL_REDUCE_MIN: return reduce<T, HCCL_REDUCE_MIN>;
    default: return nullptr;
  }
}

}  // namespace

ReduceFn find_reduce(HcclDataType dtype, HcclReduceOp op) {
  switch (dtype) {
    case HCCL_DATA_TYPE_INT8: return by_op<int8_t>(op);
    case HCCL_DATA_TYPE_INT16: return by_op<int16_t>(op);
    case HCCL_DATA_TYPE_INT32: return by_op<int32_t>(op);
    case HCCL_DATA_TYPE_INT64: return by_op<int64_t>(op);
    case HCCL_DATA_TYPE_UINT8: return by_op<uint8_t>(op);
    case HCCL_DATA_TYPE_UINT16: return by_op<uint16_t>(op);
    case HCCL_DATA_TYPE_UINT32: return by_op<uint32_t>(op);
    case HCCL_DATA_TYPE_UINT64: return by_op<uint64_t>(op);
    case HCCL_DATA_TYPE_FP16: return by_op<mt::f16>(op);
    case HCCL_DATA_TYPE_BFP16: return by_op<mt::bf16>(op);
    case HCCL_DATA_TYPE_FP32: return by_op<float>(op);
    case HCCL_DATA_TYPE_FP64: return by_op<double>(op);
    default: return nullptr;
  }
}

size_t hccl_element_size(HcclDataType dtype) {
  switch (dtype) {
    case HCCL_DATA_TYPE_INT8:
    case HCCL_DATA_TYPE_UINT8: return 1;
    case HCCL_DATA_TYPE_INT16:
    case HCCL_DATA_TYPE_UINT16:
    case HCCL_DATA_TYPE_FP16:
    case HCCL_DATA_TYPE_BFP16: return 2;
    case HCCL_DATA_TYPE_INT32:
    case HCCL_DATA_TYPE_UINT32:
    case HCCL_DATA_TYPE_FP32: return 4;
    case HCCL_DATA_TYPE_INT64:
    case HCCL_DATA_TYPE_UINT64:
    case HCCL_DATA_TYPE_FP64: return 8;
    case HCCL_DATA_TYPE_INT128: return 16;
    case 14:
    case 15:
    case 16:
    case 17: return 1;  // hif8, fp8e4m3, fp8e5m2, fp8e8m0 of newer CANN: they move, and are not reduced
    default: return 0;
  }
}

}  // namespace cann_sim
