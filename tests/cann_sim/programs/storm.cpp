// Many threads on shared streams of two devices, with short queues: random work in a random but sound order has to end, and
// every piece of it has to have run once. It finds lost wake-ups and deadlocks of the runtime; CANN_SIM_DEPTH makes queues shorter.
#include <acl/acl_rt_memory_soma.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "check.h"

namespace {

const int kDevices = 2, kStreams = 6, kThreads = 4, kRounds = 150;
const size_t kBytes = 4096;

std::atomic<int> ran{0};
void count(void*) { ++ran; }

struct Lane {                          // a stream and what only its own tasks touch
  aclrtStream stream;
  void* block;
  std::mutex mutex;                    // pairs of tasks that belong together are queued in one go
};

struct Chip {
  aclrtContext context;
  Lane lanes[kStreams];
  aclmdlRI graph;
  aclrtNotify notify[kStreams];
  aclrtMemPool pool;
};

void open(Chip& chip, int device) {
  CHECK(aclrtSetDevice(device));
  CHECK(aclrtGetCurrentContext(&chip.context));
  for (int i = 0; i < kStreams; ++i) {
    CHECK(aclrtCreateStream(&chip.lanes[i].stream));
    CHECK(aclrtMalloc(&chip.lanes[i].block, kBytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtCreateNotify(&chip.notify[i], 0));
  }
  CHECK(aclmdlRICaptureBegin(chip.lanes[0].stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  CHECK(aclrtLaunchHostFunc(chip.lanes[0].stream, count, nullptr));
  CHECK(aclmdlRICaptureEnd(chip.lanes[0].stream, &chip.graph));
  aclrtMemPoolProps props = {};
  props.location.id = static_cast<uint32_t>(device);
  props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  CHECK(aclrtMemPoolCreate(&chip.pool, &props));
}

// What one round queues for the counter.
int queue(Chip& chip, std::mt19937& random) {
  Lane& lane = chip.lanes[random() % kStreams];
  Lane& other = chip.lanes[random() % kStreams];
  switch (random() % 7) {
    case 0: CHECK(aclrtLaunchHostFunc(lane.stream, count, nullptr)); return 1;
    case 1: CHECK(aclmdlRIExecuteAsync(chip.graph, lane.stream)); return 1;
    case 2: {                          // a later task of another stream waits for an earlier one of this stream
      aclrtEvent event;
      CHECK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
      CHECK(aclrtRecordEvent(event, lane.stream));
      CHECK(aclrtStreamWaitEvent(other.stream, event));
      CHECK(aclrtDestroyEvent(event));
      CHECK(aclrtLaunchHostFunc(other.stream, count, nullptr));
      return 1;
    }
    case 3: {                          // recorded before it is waited for, by nobody else meanwhile
      const int i = static_cast<int>(random() % kStreams);
      std::lock_guard<std::mutex> hold(chip.lanes[i].mutex);
      CHECK(aclrtRecordNotify(chip.notify[i], chip.lanes[i].stream));
      CHECK(aclrtWaitAndResetNotify(chip.notify[i], chip.lanes[i].stream, 0));
      return 0;
    }
    case 4: {
      void* block;
      CHECK(aclrtMemPoolMallocAsync(&block, kBytes, chip.pool, lane.stream));
      CHECK(aclrtMemsetAsync(block, kBytes, 1, kBytes, lane.stream));
      CHECK(aclrtMemPoolFreeAsync(block, lane.stream));
      return 0;
    }
    case 5: {
      aclrtEvent event;
      CHECK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE));
      CHECK(aclrtRecordEvent(event, lane.stream));
      CHECK(aclrtSynchronizeEvent(event));
      CHECK(aclrtDestroyEvent(event));
      return 0;
    }
    default:
      CHECK(aclrtMemsetAsync(lane.block, kBytes, 1, kBytes, lane.stream));
      if (random() % 8 == 0) CHECK(aclrtSynchronizeStream(lane.stream));
      return 0;
  }
}

void close(Chip& chip, int device) {
  CHECK(aclrtSetDevice(device));
  CHECK(aclrtSynchronizeDevice());
  CHECK(aclmdlRIDestroy(chip.graph));
  CHECK(aclrtMemPoolDestroy(chip.pool));
  for (int i = 0; i < kStreams; ++i) {
    CHECK(aclrtDestroyStream(chip.lanes[i].stream));
    CHECK(aclrtFree(chip.lanes[i].block));
    CHECK(aclrtDestroyNotify(chip.notify[i]));
  }
  CHECK(aclrtResetDevice(device));
  CHECK(aclrtResetDevice(device));
}

}  // namespace

int main() {
  CHECK(aclInit(nullptr));
  static Chip chips[kDevices];
  for (int d = 0; d < kDevices; ++d) open(chips[d], d);
  std::atomic<int> queued{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t, &queued] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < kRounds; ++round) {
        Chip& chip = chips[random() % kDevices];
        CHECK(aclrtSetCurrentContext(chip.context));
        queued += queue(chip, random);
      }
    });
  for (std::thread& t : threads) t.join();
  for (int d = 0; d < kDevices; ++d) close(chips[d], d);
  HOLDS(ran.load() == queued.load() && ran.load() > 0);
  CHECK(aclFinalize());
  return 0;
}
