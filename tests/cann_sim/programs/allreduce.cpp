// HCCL in C++11: two devices of one process, a thread each, add up what they hold.
#include <hccl/hccl.h>

#include <thread>
#include <vector>

#include "check.h"

namespace {

void rank_of(int rank, HcclComm comm) {
  CHECK(aclrtSetDevice(rank));
  aclrtStream stream;
  CHECK(aclrtCreateStream(&stream));
  uint32_t size = 0, id = 9;
  CHECK(HcclGetRankSize(comm, &size));
  CHECK(HcclGetRankId(comm, &id));
  HOLDS(size == 2 && id == static_cast<uint32_t>(rank));
  float values[4] = {1.f + rank, 2, 3, 4};
  void *in, *out;
  CHECK(aclrtMalloc(&in, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMalloc(&out, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
  CHECK(aclrtMemcpy(in, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
  CHECK(HcclAllReduce(in, out, 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(values, sizeof values, out, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
  HOLDS(values[0] == 3 && values[1] == 4 && values[3] == 8);
  CHECK(aclrtFree(in));
  CHECK(aclrtFree(out));
  CHECK(aclrtDestroyStream(stream));
}

}  // namespace

int main() {
  CHECK(aclInit(nullptr));
  int32_t devices[] = {0, 1};
  HcclComm comms[2];
  CHECK(HcclCommInitAll(2, devices, comms));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) threads.emplace_back(rank_of, rank, comms[rank]);
  for (std::thread& t : threads) t.join();
  for (HcclComm comm : comms) CHECK(HcclCommDestroy(comm));
  for (int32_t device : devices) CHECK(aclrtResetDevice(device));
  CHECK(aclFinalize());
  puts("allreduce: OK");
}
