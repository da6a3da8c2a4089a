// Threads for large work: one pool per process, made at the first use, remade after a fork.
#pragma once
#include <cstdint>
#include <functional>

namespace mt {

int get_num_threads();
void set_num_threads(int n);
bool in_parallel();  // inside the body of a parallel_for, where another one runs inline

// Calls body(begin, end) over disjoint ranges that cover [0, n), each of at least `grain` items; inline when n <= grain,
// when one thread is set, inside another parallel_for, or while the pool serves another caller. An exception of the body
// is thrown again in the caller after all ranges have ended.
void parallel_ranges(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

template <class F> inline void parallel_for(int64_t n, int64_t grain, F&& body) {
  if (n <= 0) return;
  if (n <= grain || get_num_threads() == 1) body(int64_t(0), n);
  else parallel_ranges(n, grain, std::ref(body));  // a reference: no heap memory for the captures
}

// Items of cheap pointwise work worth a second thread.
constexpr int64_t kGrain = 32768;

}  // namespace mt
