// From a run-time dtype to a type: MT_DISPATCH(set, dtype, "op", T, { body using T }).
#pragma once
#include <stdexcept>
#include <string>

#include "view.h"

namespace mt {

[[noreturn]] inline void unsupported(const char* op, DType d) {
  throw std::runtime_error(std::string("\"") + op + "\" not implemented for '" + dtype_name(d) + "'");
}

}  // namespace mt

#define MT_CASE(D, TYPE, T, ...) case D: { using T = TYPE; __VA_ARGS__ } break;
#define MT_INTS(T, ...) \
  MT_CASE(kUInt8, uint8_t, T, __VA_ARGS__) MT_CASE(kInt8, int8_t, T, __VA_ARGS__) \
  MT_CASE(kInt16, int16_t, T, __VA_ARGS__) MT_CASE(kInt32, int32_t, T, __VA_ARGS__) MT_CASE(kInt64, int64_t, T, __VA_ARGS__)
#define MT_UNSIGNED(T, ...) \
  MT_CASE(kUInt16, uint16_t, T, __VA_ARGS__) MT_CASE(kUInt32, uint32_t, T, __VA_ARGS__) \
  MT_CASE(kUInt64, uint64_t, T, __VA_ARGS__)
#define MT_BOOL(T, ...) MT_CASE(kBool, ::mt::b8, T, __VA_ARGS__)
#define MT_FLOATS(T, ...) MT_CASE(kFloat, float, T, __VA_ARGS__) MT_CASE(kDouble, double, T, __VA_ARGS__)
#define MT_HALVES(T, ...) MT_CASE(kHalf, ::mt::f16, T, __VA_ARGS__) MT_CASE(kBFloat16, ::mt::bf16, T, __VA_ARGS__)
#define MT_COMPLEX(T, ...) MT_CASE(kComplexFloat, ::mt::c64, T, __VA_ARGS__) MT_CASE(kComplexDouble, ::mt::c128, T, __VA_ARGS__)

#define MT_SWITCH(dtype, op, cases) switch (dtype) { cases default: ::mt::unsupported(op, dtype); }
#define MT_DISPATCH_ALL(dtype, op, T, ...) MT_SWITCH(dtype, op, \
  MT_BOOL(T, __VA_ARGS__) MT_INTS(T, __VA_ARGS__) MT_FLOATS(T, __VA_ARGS__) MT_HALVES(T, __VA_ARGS__) MT_COMPLEX(T, __VA_ARGS__))
#define MT_DISPATCH_REAL(dtype, op, T, ...) MT_SWITCH(dtype, op, \
  MT_BOOL(T, __VA_ARGS__) MT_INTS(T, __VA_ARGS__) MT_FLOATS(T, __VA_ARGS__) MT_HALVES(T, __VA_ARGS__))
#define MT_DISPATCH_REAL_UNSIGNED(dtype, op, T, ...) MT_SWITCH(dtype, op, \
  MT_BOOL(T, __VA_ARGS__) MT_INTS(T, __VA_ARGS__) MT_UNSIGNED(T, __VA_ARGS__) MT_FLOATS(T, __VA_ARGS__) MT_HALVES(T, __VA_ARGS__))
#define MT_DISPATCH_FLOATING(dtype, op, T, ...) MT_SWITCH(dtype, op, MT_FLOATS(T, __VA_ARGS__) MT_HALVES(T, __VA_ARGS__))

// By size alone, for kernels that only move items (gather, index, flip): T is an unsigned type of that size.
#define MT_DISPATCH_SIZE(dtype, op, T, ...) switch (::mt::itemsize(dtype)) { \
  case 1: { using T = uint8_t; __VA_ARGS__ } break; case 2: { using T = uint16_t; __VA_ARGS__ } break; \
  case 4: { using T = uint32_t; __VA_ARGS__ } break; case 8: { using T = uint64_t; __VA_ARGS__ } break; \
  default: { using T = ::mt::c128; __VA_ARGS__ } break; }

// Index tensors are int64 or int32.
#define MT_DISPATCH_INDEX(dtype, op, T, ...) MT_SWITCH(dtype, op, \
  MT_CASE(kInt32, int32_t, T, __VA_ARGS__) MT_CASE(kInt64, int64_t, T, __VA_ARGS__))
