// What losses share with the older ops. No op lives here.
#pragma once
#include <cstdint>

namespace cann_sim {

// Cross entropy of rows of logits with a share of every class, and its slope; all dense (loss_classes.cpp).
void soft_cross_entropy(const float* x, const float* shares, int64_t rows, int64_t classes, float* loss, float* slope);

}  // namespace cann_sim
