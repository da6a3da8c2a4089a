// Calls CANN directly, without Python: softmax of a matrix on the device. On a host without a card:
//   c++ -std=c++11 examples/aclnn.cpp $(cann-sim cc) -o softmax && cann-sim run ./softmax
#include <acl/acl.h>
#include <aclnnop/aclnn_softmax.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) if (int code = (call)) { printf("%s: %d %s\n", #call, code, aclGetRecentErrMsg()); exit(1); }

int main() {
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream;
  CHECK(aclrtCreateStream(&stream));
  printf("on %s\n", aclrtGetSocName());

  const int64_t shape[] = {2, 3}, strides[] = {3, 1};
  std::vector<float> values{1, 2, 3, 0, 0, 0};
  const size_t bytes = values.size() * sizeof(float);
  void *given, *made, *workspace = nullptr;
  CHECK(aclrtMalloc(&given, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMalloc(&made, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMemcpy(given, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  aclTensor* x = aclCreateTensor(shape, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 2, given);
  aclTensor* y = aclCreateTensor(shape, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 2, made);

  // Every aclnn op has two phases: the first says how much workspace it needs, the second puts it on the stream.
  uint64_t size = 0;
  aclOpExecutor* executor;
  CHECK(aclnnSoftmaxGetWorkspaceSize(x, 1, y, &size, &executor));
  if (size) CHECK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclnnSoftmax(workspace, size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(values.data(), bytes, made, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  for (int row = 0; row < 2; ++row) printf("%.4f %.4f %.4f\n", values[3 * row], values[3 * row + 1], values[3 * row + 2]);

  aclDestroyTensor(x);
  aclDestroyTensor(y);
  if (workspace) CHECK(aclrtFree(workspace));
  CHECK(aclrtFree(given));
  CHECK(aclrtFree(made));
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
}
