// HiFloat8: a sign, a prefix that says how long the exponent is, the exponent, and what is left for the fraction. Registers no op.
#pragma once
#include "ops/result.h"

namespace cann_sim {

float hifloat8_value(uint8_t code);
uint8_t hifloat8_code(float x);          // the nearest, ties away from zero; from 1.25 * 2^15 on infinity
Value from_hifloat8(const Value& codes);  // float32
Value to_hifloat8(const Value& x);        // the codes, as uint8

}  // namespace cann_sim
