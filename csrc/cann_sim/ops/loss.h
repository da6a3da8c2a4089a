// What losses share with the older ops. No op lives here.
#pragma once
#include <cstdint>
#include <string>

#include "ops/value.h"

namespace cann_sim {

// Cross entropy of rows of logits with a share of every class, and its slope; all dense (loss_classes.cpp).
void soft_cross_entropy(const float* x, const float* shares, int64_t rows, int64_t classes, float* loss, float* slope);
// The loss of each row of scores, or their mean or sum, into `out`; `marks` gets 1 where a class is a target. A row of targets
// ends at the first negative one; scores and targets have the same shape.
void multilabel_margin(const Value& scores, const Value& targets, const std::string& reduction, const Value& out, const Value& marks);

}  // namespace cann_sim
