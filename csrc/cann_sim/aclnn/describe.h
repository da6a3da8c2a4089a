// An aclnn call as text: the op, and each argument with everything that CANN may look at.
#pragma once
#include <string>

#include "aclnn/call.h"

namespace cann_sim {

// aclnnAdd(self=f32[4,6], other=f32[4,6]:[1,4] in [24], alpha=f32 1, out=f32[4,6]) workspace 0
// A tensor: dtype and sizes; strides unless it is dense; "+n" an offset; "in [...]" storage dims that differ from the sizes;
// "format n" one that is not ND.
std::string describe(const Call& call);

}  // namespace cann_sim
