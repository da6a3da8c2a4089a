// A graph in C++11: ops of two streams are captured and replayed on new values; a fork that does not rejoin is refused.
#include <aclnnop/aclnn_add.h>
#include <aclnnop/aclnn_mul.h>

#include <initializer_list>

#include "check.h"

namespace {

const int64_t kItems = 8;

aclTensor* tensor(void** memory) {
  CHECK(aclrtMalloc(memory, kItems * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST));
  return aclCreateTensor(&kItems, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kItems, 1, *memory);
}

void set(void* memory, float value) {
  float values[kItems];
  for (float& v : values) v = value;
  CHECK(aclrtMemcpy(memory, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
}

}  // namespace

int main() {
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream main_stream, side;
  CHECK(aclrtCreateStream(&main_stream));
  CHECK(aclrtCreateStream(&side));
  void *x_memory, *y_memory;
  aclTensor *x = tensor(&x_memory), *y = tensor(&y_memory);
  float one = 1;
  aclScalar* alpha = aclCreateScalar(&one, ACL_FLOAT);
  set(x_memory, 3);
  aclrtEvent fork, join;
  CHECK(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  CHECK(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));

  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  aclmdlRI graph = nullptr;
  CHECK(aclmdlRICaptureBegin(main_stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  CHECK(aclrtRecordEvent(fork, main_stream));
  CHECK(aclrtStreamWaitEvent(side, fork));
  CHECK(aclnnMulGetWorkspaceSize(x, x, y, &bytes, &executor));
  HOLDS(bytes == 0);
  CHECK(aclnnMul(nullptr, 0, executor, side));
  CHECK(aclrtRecordEvent(join, side));
  CHECK(aclrtStreamWaitEvent(main_stream, join));
  CHECK(aclnnAddGetWorkspaceSize(y, x, alpha, y, &bytes, &executor));
  CHECK(aclnnAdd(nullptr, 0, executor, main_stream));
  CHECK(aclmdlRICaptureEnd(main_stream, &graph));
  for (float value : {3.f, 5.f}) {
    set(x_memory, value);
    CHECK(aclmdlRIExecuteAsync(graph, main_stream));
    CHECK(aclrtSynchronizeStream(main_stream));
    float result[kItems];
    CHECK(aclrtMemcpy(result, sizeof result, y_memory, sizeof result, ACL_MEMCPY_DEVICE_TO_HOST));
    HOLDS(result[0] == value * value + value && result[kItems - 1] == result[0]);
  }
  CHECK(aclmdlRIDestroy(graph));

  CHECK(aclmdlRICaptureBegin(main_stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  CHECK(aclrtRecordEvent(fork, main_stream));
  CHECK(aclrtStreamWaitEvent(side, fork));
  HOLDS(aclmdlRICaptureEnd(main_stream, &graph) == ACL_ERROR_RT_STREAM_UNJOINED);

  aclDestroyScalar(alpha);
  aclDestroyTensor(x);
  aclDestroyTensor(y);
  CHECK(aclrtFree(x_memory));
  CHECK(aclrtFree(y_memory));
  CHECK(aclrtDestroyEvent(fork));
  CHECK(aclrtDestroyEvent(join));
  CHECK(aclrtDestroyStream(side));
  CHECK(aclrtDestroyStream(main_stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  puts("capture: OK");
}
