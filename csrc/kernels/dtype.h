// The dtypes: one row each, and what follows from a row's place. Conversions are in scalar.h, float8.h and convert.cpp.
#pragma once
#include <cstdint>

// X(number, torch's name, torch's scalar type, what C++ calls it, bytes). The order carries meaning, so that a test is one
// comparison: integers (bool first), then what is only stored, then floats from kHalf to kDouble, then complex numbers. kFloat to
// kComplexDouble follow each other, as the tables of reductions do.
// Dtypes that are only stored count as integers: no kernel knows them, and they have no gradient.
#define MT_DTYPES(X) \
  X(kBool, "bool", "Bool", "bool", 1) X(kUInt8, "uint8", "Byte", "unsigned char", 1) \
  X(kInt8, "int8", "Char", "signed char", 1) X(kInt16, "int16", "Short", "short", 2) \
  X(kInt32, "int32", "Int", "int", 4) X(kInt64, "int64", "Long", "long", 8) \
  X(kUInt16, "uint16", "UInt16", "unsigned short", 2) X(kUInt32, "uint32", "UInt32", "unsigned int", 4) \
  X(kUInt64, "uint64", "UInt64", "unsigned long", 8) \
  X(kUInt1, "uint1", "UInt1", "c10::dummy_uint1_7_t<1>", 1) X(kUInt2, "uint2", "UInt2", "c10::dummy_uint1_7_t<2>", 1) \
  X(kUInt3, "uint3", "UInt3", "c10::dummy_uint1_7_t<3>", 1) X(kUInt4, "uint4", "UInt4", "c10::dummy_uint1_7_t<4>", 1) \
  X(kUInt5, "uint5", "UInt5", "c10::dummy_uint1_7_t<5>", 1) X(kUInt6, "uint6", "UInt6", "c10::dummy_uint1_7_t<6>", 1) \
  X(kUInt7, "uint7", "UInt7", "c10::dummy_uint1_7_t<7>", 1) \
  X(kInt1, "int1", "Int1", "c10::dummy_int1_7_t<1>", 1) X(kInt2, "int2", "Int2", "c10::dummy_int1_7_t<2>", 1) \
  X(kInt3, "int3", "Int3", "c10::dummy_int1_7_t<3>", 1) X(kInt4, "int4", "Int4", "c10::dummy_int1_7_t<4>", 1) \
  X(kInt5, "int5", "Int5", "c10::dummy_int1_7_t<5>", 1) X(kInt6, "int6", "Int6", "c10::dummy_int1_7_t<6>", 1) \
  X(kInt7, "int7", "Int7", "c10::dummy_int1_7_t<7>", 1) \
  X(kBits1x8, "bits1x8", "Bits1x8", "c10::bits1x8", 1) X(kBits2x4, "bits2x4", "Bits2x4", "c10::bits2x4", 1) \
  X(kBits4x2, "bits4x2", "Bits4x2", "c10::bits4x2", 1) X(kBits8, "bits8", "Bits8", "c10::bits8", 1) \
  X(kBits16, "bits16", "Bits16", "c10::bits16", 2) \
  X(kQInt8, "qint8", "QInt8", "c10::qint8", 1) X(kQUInt8, "quint8", "QUInt8", "c10::quint8", 1) \
  X(kQInt32, "qint32", "QInt32", "c10::qint32", 4) X(kQUInt4x2, "quint4x2", "QUInt4x2", "c10::quint4x2", 1) \
  X(kQUInt2x4, "quint2x4", "QUInt2x4", "c10::quint2x4", 1) \
  X(kHalf, "float16", "Half", "c10::Half", 2) X(kBFloat16, "bfloat16", "BFloat16", "c10::BFloat16", 2) \
  X(kFloat8_e4m3fn, "float8_e4m3fn", "Float8_e4m3fn", "c10::Float8_e4m3fn", 1) \
  X(kFloat8_e5m2, "float8_e5m2", "Float8_e5m2", "c10::Float8_e5m2", 1) \
  X(kFloat8_e4m3fnuz, "float8_e4m3fnuz", "Float8_e4m3fnuz", "c10::Float8_e4m3fnuz", 1) \
  X(kFloat8_e5m2fnuz, "float8_e5m2fnuz", "Float8_e5m2fnuz", "c10::Float8_e5m2fnuz", 1) \
  X(kFloat8_e8m0fnu, "float8_e8m0fnu", "Float8_e8m0fnu", "c10::Float8_e8m0fnu", 1) \
  X(kFloat4_e2m1fn_x2, "float4_e2m1fn_x2", "Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2", 1) \
  X(kFloat, "float32", "Float", "float", 4) X(kDouble, "float64", "Double", "double", 8) \
  X(kComplexFloat, "complex64", "ComplexFloat", "c10::complex<float>", 8) \
  X(kComplexDouble, "complex128", "ComplexDouble", "c10::complex<double>", 16) \
  X(kComplexHalf, "complex32", "ComplexHalf", "c10::complex<c10::Half>", 4)

namespace mt {

enum DType : int32_t {
#define MT_DTYPE(NUMBER, ...) NUMBER,
  MT_DTYPES(MT_DTYPE)
#undef MT_DTYPE
  kNumDTypes
};

struct DTypeRow {
  const char *name, *word, *type;
  int bytes;
};
inline const DTypeRow& dtype_row(DType d) {
  static constexpr DTypeRow rows[kNumDTypes] = {
#define MT_DTYPE(NUMBER, NAME, WORD, TYPE, BYTES) {NAME, WORD, TYPE, BYTES},
      MT_DTYPES(MT_DTYPE)
#undef MT_DTYPE
  };
  return rows[d];
}
inline const char* dtype_name(DType d) { return dtype_row(d).name; }
inline const char* dtype_word(DType d) { return dtype_row(d).word; }
inline const char* dtype_type(DType d) { return dtype_row(d).type; }
inline int itemsize(DType d) {
  static constexpr int8_t sizes[kNumDTypes] = {
#define MT_DTYPE(NUMBER, NAME, WORD, TYPE, BYTES) BYTES,
      MT_DTYPES(MT_DTYPE)
#undef MT_DTYPE
  };
  return sizes[d];
}

inline bool is_floating(DType d) { return d >= kHalf && d <= kDouble; }
inline bool is_complex(DType d) { return d >= kComplexFloat; }
inline bool is_integral(DType d) { return d < kHalf; }  // bool counts as integral
inline bool is_float8(DType d) { return d >= kFloat8_e4m3fn && d <= kFloat8_e8m0fnu; }
inline bool is_only_stored(DType d) { return (d >= kUInt1 && d <= kQUInt2x4) || d == kFloat4_e2m1fn_x2; }

// Dtypes that only some kernels take: each says which (Serves, library.h), and is never called with another.
enum Rare : int32_t { kWideUnsigned = 1, kFloat8 = 2, kComplex32 = 4, kStored = 8, kAnyRare = 15 };
inline int32_t rare(DType d) {
  if (d <= kInt64 || d == kHalf || d == kBFloat16 || (d >= kFloat && d <= kComplexDouble)) return 0;
  return d <= kUInt64 ? kWideUnsigned : is_float8(d) ? kFloat8 : d == kComplexHalf ? kComplex32 : kStored;
}

// What a dtype that is only a storage format is computed in: float of the small floats, complex64 of complex32.
inline DType wide_of(DType d) {
  return d == kHalf || d == kBFloat16 || is_float8(d) ? kFloat : d == kComplexHalf ? kComplexFloat : d;
}
inline DType real_dtype(DType d) {
  return d == kComplexHalf ? kHalf : d == kComplexFloat ? kFloat : d == kComplexDouble ? kDouble : d;
}

}  // namespace mt
