/* Two streams in C99: copies with pinned memory, events between them, elapsed time, a host function, an unknown handle. */
#include <string.h>

#include "check.h"

enum { N = 1 << 16 };

static void count(void* counter) { ++*(int*)counter; }

static void copies(aclrtStream first, aclrtStream second) {
  aclrtEvent begin, end;
  void *host, *device, *other;
  float elapsed = -1;
  int called = 0;
  CHECK(aclrtMallocHost(&host, N));
  CHECK(aclrtMalloc(&device, N, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMalloc(&other, N, ACL_MEM_MALLOC_NORMAL_ONLY));
  HOLDS((uintptr_t)device % 512 == 0 && (uintptr_t)other % 512 == 0);
  CHECK(aclrtCreateEventExWithFlag(&begin, ACL_EVENT_TIME_LINE | ACL_EVENT_SYNC));
  CHECK(aclrtCreateEventExWithFlag(&end, ACL_EVENT_TIME_LINE | ACL_EVENT_SYNC));
  memset(host, 7, N);
  CHECK(aclrtRecordEvent(begin, first));
  CHECK(aclrtMemcpyAsync(device, N, host, N, ACL_MEMCPY_HOST_TO_DEVICE, first));
  CHECK(aclrtRecordEvent(end, first));
  CHECK(aclrtStreamWaitEvent(second, end));
  CHECK(aclrtMemcpyAsync(other, N, device, N, ACL_MEMCPY_DEVICE_TO_DEVICE, second));
  CHECK(aclrtLaunchHostFunc(second, count, &called));
  CHECK(aclrtSynchronizeStream(second));
  HOLDS(called == 1);
  memset(host, 0, N);
  CHECK(aclrtMemcpy(host, N, other, N, ACL_MEMCPY_DEVICE_TO_HOST));
  HOLDS(((char*)host)[0] == 7 && ((char*)host)[N - 1] == 7);
  CHECK(aclrtEventElapsedTime(&elapsed, begin, end));
  HOLDS(elapsed >= 0);
  CHECK(aclrtDestroyEvent(begin));
  CHECK(aclrtDestroyEvent(end));
  CHECK(aclrtFree(device));
  CHECK(aclrtFree(other));
  CHECK(aclrtFreeHost(host));
}

int main(void) {
  aclrtStream first, second;
  uint32_t devices = 0;
  CHECK(aclInit(NULL));
  CHECK(aclrtGetDeviceCount(&devices));
  HOLDS(devices >= 1);
  CHECK(aclrtSetDevice(0));
  CHECK(aclrtCreateStream(&first));
  CHECK(aclrtCreateStreamWithConfig(&second, 0, ACL_STREAM_FAST_LAUNCH));
  copies(first, second);
  CHECK(aclrtDestroyStream(second));
  HOLDS(aclrtSynchronizeStream(second) != ACL_SUCCESS); /* it is gone */
  CHECK(aclrtDestroyStream(first));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  puts("streams: OK");
  return 0;
}
