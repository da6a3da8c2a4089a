// Ranks that suspend their communicator in the midst of a collective and resume it: what was half sent is forgotten, and the
// next collective is right.
#include <hccl/hccl.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

namespace {

const uint32_t kRanks = 2;
const uint64_t kCount = 300000;        // more than a ring between two ranks holds
const int kRounds = 4;

std::atomic<int> arrived{0};

void meet(int round) {                 // of the threads: all have suspended before one resumes
  ++arrived;
  while (arrived.load() < static_cast<int>(kRanks) * round) std::this_thread::yield();
}

void work(uint32_t rank, HcclComm comm) {
  CHECK(aclrtSetDevice(static_cast<int32_t>(rank)));
  aclrtStream stream;
  CHECK(aclrtCreateStream(&stream));
  void* memory;
  const size_t bytes = kCount * sizeof(float);
  CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  std::vector<float> values(kCount);
  for (int round = 1; round <= kRounds; ++round) {
    if (rank == static_cast<uint32_t>(round) % kRanks)  // the others never come
      CHECK(HcclAllReduce(memory, memory, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    CHECK(HcclCommSuspend(comm));
    (void)aclrtSynchronizeStream(stream);               // of a collective that was under way: an error
    HcclResult error;
    CHECK(HcclGetCommAsyncError(comm, &error));
    HOLDS(error == HCCL_E_SUSPENDING);
    meet(round);
    CHECK(HcclCommResume(comm));
    values.assign(kCount, static_cast<float>(rank + 1));
    CHECK(aclrtMemcpy(memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(HcclAllReduce(memory, memory, kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(values.data(), bytes, memory, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (float value : values) HOLDS(value == 3);
  }
  CHECK(aclrtFree(memory));
  CHECK(aclrtDestroyStream(stream));
}

}  // namespace

int main() {
  CHECK(aclInit(nullptr));
  int32_t devices[kRanks] = {0, 1};
  HcclComm comms[kRanks];
  for (int32_t d : devices) CHECK(aclrtSetDevice(d));
  CHECK(HcclCommInitAll(kRanks, devices, comms));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(work, rank, comms[rank]);
  for (std::thread& t : threads) t.join();
  for (HcclComm comm : comms) CHECK(HcclCommDestroy(comm));
  for (int32_t d : devices) {
    CHECK(aclrtResetDevice(d));
    CHECK(aclrtResetDevice(d));
  }
  CHECK(aclFinalize());
  return 0;
}
