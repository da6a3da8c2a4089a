// Floats of 8 and 4 bits and the blocks of the MX formats: how they are rounded, stored and scaled. Registers no op.
#pragma once
#include "ops/result.h"

namespace cann_sim {

// A type by its bits: `least` is the exponent of the smallest normal number, `emax` that of the largest.
struct LowFloat {
  aclDataType type;
  int mantissa, least, emax;
  float most;
};
const LowFloat* low_float(aclDataType t);  // nullptr: not one that is computed here; HiFloat8 is read by load_low only
float most_of(aclDataType t);              // the largest number of a quantised type: int8, int4, and those of low_float
// Argument i is of a type that store_low writes; others are refused with 561003.
void expect_quantised(const Call& c, int i);
// Argument i has the type that argument `type` asks for.
void expect_dst_type(const Call& c, int type, int i);

// What the op's arguments ask for: how to round (empty: to the nearest), and where the type stands (-1: nowhere).
const char* round_mode(const Call& c);
int dst_type(const Call& c);

// The nearest whole number with ties to even for "rint" and an empty mode, with ties away from zero for "round".
float whole(float x, const char* mode);
// Rounds to the type of argument i, limits to its range and stores; `x` is float32 and dense. An int32 takes eight int4.
void store_low(Run& r, int i, const Value& x, const char* mode);
Value load_low(Run& r, int i);             // as float32

// ---- MX: every block of items along a dim shares a power of two, stored as an exponent of 8 bits (bias 127) ---------
struct Mx {
  aclDataType type;
  int64_t alg = 0;      // 0: the exponent of the largest item, less emax; 1 and 2: of the largest item / most, rounded up
  double most = 0;      // 0: the largest number of the type
  double least = 0;     // of a block's largest item
  int64_t block = 32;
};
// Arguments by name: scaleAlg, dstTypeMax or maxDtypeValue, maxLowBound, blocksize; the type is that of argument y.
Mx mx_of(const Call& c, int y);
void expect_mx(const Call& c, const Mx& mx, const char* mode);
uint8_t mx_exponent(float largest, const Mx& mx);
float mx_scaled(float x, uint8_t exponent);                 // x / 2^(exponent - 127)

// Where rows end that are scaled apart from each other: blocks do not reach over an end.
using Ends = std::vector<int64_t>;
// Scales x (float32) along a dim in place, and gives the exponents [..., pairs of blocks, ..., 2]; a last single one is 0.
// With `ends`, which needs dim 0 of 2, group g begins at pair start / (2 * block) + g.
Value mx_scale(const Value& x, int64_t dim, const Mx& mx, const Ends* ends = nullptr);
Sizes mx_scale_sizes(const Sizes& x, int64_t dim, int64_t block, int64_t groups = 0);
// Scales along a dim and stores: y and its exponents.
void store_mx(Run& r, const Value& x, int64_t dim, const Mx& mx, const char* mode, int y, int scales, const Ends* ends = nullptr);
void expect_mx_outputs(const Call& c, const Sizes& x, int64_t dim, const Mx& mx, int y, int scales, int64_t groups = 0);

// The same along the last dim and along the one before it, into y1Out and y2Out; groups of rows, where the op has them, are
// scaled apart from each other along the rows.
void expect_two_dims(const Call& c, const Sizes& x);
void store_two_dims(Run& r, const Value& x);

// The ends of groups from counts, or from ends as they are; none beyond `rows`.
Ends group_ends(const Value& groups, bool counts, int64_t rows);

}  // namespace cann_sim
