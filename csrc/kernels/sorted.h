// Sorted copies of rows of numbers, for kernels that do not ask where the items stood. Defined in sort.cpp.
#pragma once
#include <cstdint>

namespace mt {

// values: the n items of x in order, NaN last. scratch: so many bytes.
template <class T> int64_t sorted_scratch(int64_t n);
template <class T> void sorted(const T* x, int64_t n, T* values, void* scratch);

}  // namespace mt
