// Products, a reduction over a list of dims and a dynamic output in C++11; a repeatable executor with new addresses.
#include <aclnnop/aclnn_matmul.h>
#include <aclnnop/aclnn_nonzero.h>
#include <aclnnop/aclnn_reduce_sum.h>

#include <memory>
#include <vector>

#include "check.h"

namespace {

struct Tensor {
  std::vector<int64_t> dims;
  void* memory = nullptr;
  aclTensor* handle = nullptr;
  Tensor(std::vector<int64_t> d, aclDataType type, const void* values, size_t bytes) : dims(d) {
    std::vector<int64_t> strides(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    if (values) CHECK(aclrtMemcpy(memory, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    handle = aclCreateTensor(dims.data(), dims.size(), type, strides.data(), 0, ACL_FORMAT_ND, dims.data(), dims.size(), memory);
    HOLDS(handle != nullptr);
  }
  Tensor(const Tensor&) = delete;
  ~Tensor() {
    CHECK(aclDestroyTensor(handle));
    CHECK(aclrtFree(memory));
  }
  template <class T> std::vector<T> read(size_t n) const {
    std::vector<T> values(n);
    CHECK(aclrtMemcpy(values.data(), n * sizeof(T), memory, n * sizeof(T), ACL_MEMCPY_DEVICE_TO_HOST));
    return values;
  }
};

typedef aclnnStatus (*Second)(void*, uint64_t, aclOpExecutor*, aclrtStream);
void launch(Second second, uint64_t bytes, aclOpExecutor* executor, aclrtStream stream) {
  void* workspace = nullptr;
  if (bytes) CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(second(workspace, bytes, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  if (workspace) CHECK(aclrtFree(workspace));
}

void multiply(aclrtStream stream) {
  const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 0, 1, 1, 1}, c[] = {2, 0, 0, 2, 2, 2};
  Tensor left({2, 3}, ACL_FLOAT, a, sizeof a), right({3, 2}, ACL_FLOAT, b, sizeof b), other({3, 2}, ACL_FLOAT, c, sizeof c);
  Tensor out({2, 2}, ACL_FLOAT, nullptr, 16), sum({2}, ACL_FLOAT, nullptr, 8);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnMatmulGetWorkspaceSize(left.handle, right.handle, out.handle, 0, &bytes, &executor));
  CHECK(aclSetAclOpExecutorRepeatable(executor));
  launch(aclnnMatmul, bytes, executor, stream);
  HOLDS((out.read<float>(4) == std::vector<float>{4, 5, 10, 11}));
  CHECK(aclSetInputTensorAddr(executor, 1, right.handle, other.memory));
  launch(aclnnMatmul, bytes, executor, stream);
  HOLDS((out.read<float>(4) == std::vector<float>{8, 10, 20, 22}));
  CHECK(aclDestroyAclOpExecutor(executor));

  const int64_t dim = 1;
  aclIntArray* dims = aclCreateIntArray(&dim, 1);
  CHECK(aclnnReduceSumGetWorkspaceSize(out.handle, dims, false, ACL_FLOAT, sum.handle, &bytes, &executor));
  launch(aclnnReduceSum, bytes, executor, stream);
  HOLDS((sum.read<float>(2) == std::vector<float>{18, 42}));
  CHECK(aclDestroyIntArray(dims));
}

void find(aclrtStream stream) {
  const float values[] = {0, 5, 0, 7};
  Tensor in({4}, ACL_FLOAT, values, sizeof values), places({4, 1}, ACL_INT64, nullptr, 32);
  uint64_t bytes = 0, ndim = 0;
  aclOpExecutor* executor = nullptr;
  CHECK(aclnnNonzeroGetWorkspaceSize(in.handle, places.handle, &bytes, &executor));
  launch(aclnnNonzero, bytes, executor, stream);
  int64_t* found = nullptr;
  CHECK(aclGetViewShape(places.handle, &found, &ndim));
  std::unique_ptr<int64_t[]> owner(found);
  HOLDS(ndim == 2 && found[0] == 2 && found[1] == 1);
  HOLDS((places.read<int64_t>(2) == std::vector<int64_t>{1, 3}));
}

}  // namespace

int main() {
  aclrtStream stream;
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  CHECK(aclrtCreateStream(&stream));
  multiply(stream);
  find(stream);
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  puts("products: OK");
}
