// The program of docs/cann_sim.md: two vectors are added on the device.
#include <acl/acl.h>
#include <aclnnop/aclnn_add.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) if (int code = (call)) { printf("%s: %d %s\n", #call, code, aclGetRecentErrMsg()); exit(1); }

int main() {
  const int64_t n = 4, stride = 1;
  const size_t bytes = n * sizeof(float);
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream;
  CHECK(aclrtCreateStream(&stream));

  void* memory[3];  // a, b, out
  aclTensor* tensors[3];
  std::vector<float> values{1, 2, 3, 4};
  for (int i = 0; i < 3; ++i) {
    CHECK(aclrtMalloc(&memory[i], bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(memory[i], bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    tensors[i] = aclCreateTensor(&n, 1, ACL_FLOAT, &stride, 0, ACL_FORMAT_ND, &n, 1, memory[i]);
  }
  float two = 2;
  aclScalar* alpha = aclCreateScalar(&two, ACL_FLOAT);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor;
  void* workspace = nullptr;
  CHECK(aclnnAddGetWorkspaceSize(tensors[0], tensors[1], alpha, tensors[2], &workspace_size, &executor));
  if (workspace_size) CHECK(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclnnAdd(workspace, workspace_size, executor, stream));
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(values.data(), bytes, memory[2], bytes, ACL_MEMCPY_DEVICE_TO_HOST));
  for (float value : values) printf("%g ", value);  // 3 6 9 12

  aclDestroyScalar(alpha);
  for (int i = 0; i < 3; ++i) aclDestroyTensor(tensors[i]), aclrtFree(memory[i]);
  if (workspace) CHECK(aclrtFree(workspace));
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
}
