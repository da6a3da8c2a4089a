// What products of quantised matrices read: integers as they lie in memory, and scales. Their ops: quant_matmul.cpp.
#pragma once
#include "ops/op.h"

namespace cann_sim {

// The sizes of what a tensor holds; an int32 is eight int4 along the dim whose items lie side by side.
Sizes held_sizes(const TensorMeta& t);
Value held(Run& r, int i);       // int8 items of int8, int4 and packed int32
Value held(Run& r, const TensorMeta& t);
Value scale_of(Run& r, int i);   // float scales, or those of the hardware: a float in the low half of 64 bits
Value scale_of(const Value& v);
Value offsets_in(const Value& parameters);          // the offsets beside scales of the hardware
void store_int8(const Value& out, const Value& x);  // rounds and limits
// Scales as [k, n] or what broadcasts to it: one number, one a column, or one a column and group of rows.
Value spread(const Value& v, int64_t k, int64_t n, int64_t group);

}  // namespace cann_sim
