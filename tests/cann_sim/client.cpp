// A client of CANN's runtime in C++, linked against libascendcl: threads, streams, events, memory and graphs at once.
// It prints the first thing that goes wrong and exits with 1. `client bench` prints what queueing a task costs.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <acl/acl.h>

#define MUST(call)                                                                                      \
  do {                                                                                                  \
    if (int code = (call)) {                                                                            \
      const char* message = aclGetRecentErrMsg();                                                       \
      fprintf(stderr, "%s:%d: %s answered %d: %s\n", __FILE__, __LINE__, #call, code, message ? message : ""); \
      exit(1);                                                                                          \
    }                                                                                                   \
  } while (0)
#define EXPECT(condition)                                                                 \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);             \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

namespace {

constexpr size_t kBytes = 8192;

bool holds(const void* device, unsigned char value) {
  unsigned char host[kBytes];
  MUST(aclrtMemcpy(host, kBytes, device, kBytes, ACL_MEMCPY_DEVICE_TO_HOST));
  for (unsigned char c : host)
    if (c != value) return false;
  return true;
}

void* allocate(size_t bytes = kBytes) {
  void* p;
  MUST(aclrtMalloc(&p, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
  return p;
}

aclrtStream make_stream() {
  aclrtStream s;
  MUST(aclrtCreateStream(&s));
  return s;
}

aclrtEvent make_event() {
  aclrtEvent e;
  MUST(aclrtCreateEventExWithFlag(&e, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE));
  return e;
}

// A chain of streams: each waits for the one before, copies its block, and records. The last block has the value.
void pipeline(int rounds) {
  constexpr int kStages = 4;
  std::vector<aclrtStream> streams;
  std::vector<aclrtEvent> events;
  std::vector<void*> blocks = {allocate()};
  for (int i = 0; i < kStages; ++i) {
    streams.push_back(make_stream());
    events.push_back(make_event());
    blocks.push_back(allocate());
  }
  for (int round = 1; round <= rounds; ++round) {
    MUST(aclrtMemsetAsync(blocks[0], kBytes, round, kBytes, streams[0]));
    for (int i = 0; i < kStages; ++i) {
      if (i) MUST(aclrtStreamWaitEvent(streams[i], events[i - 1]));
      MUST(aclrtMemcpyAsync(blocks[i + 1], kBytes, blocks[i], kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, streams[i]));
      MUST(aclrtRecordEvent(events[i], streams[i]));
    }
    MUST(aclrtStreamWaitEvent(streams[0], events[kStages - 1]));  // the next round overwrites block 0
    MUST(aclrtSynchronizeEvent(events[kStages - 1]));
    EXPECT(holds(blocks[kStages], static_cast<unsigned char>(round)));
  }
  for (aclrtStream s : streams) MUST(aclrtDestroyStream(s));
  for (aclrtEvent e : events) MUST(aclrtDestroyEvent(e));
  for (void* p : blocks) MUST(aclrtFree(p));
}

// Blocks of many sizes come and go while other threads' tasks run.
void churn(int rounds) {
  aclrtStream s = make_stream();
  unsigned state = 12345;
  for (int i = 0; i < rounds; ++i) {
    state = state * 1664525 + 1013904223;
    size_t bytes = kBytes + (state >> 8) % (600 << 10);
    void* p = allocate(bytes);
    MUST(aclrtMemsetAsync(p, bytes, i, bytes, s));
    MUST(aclrtSynchronizeStream(s));
    EXPECT(holds(p, static_cast<unsigned char>(i)));
    MUST(aclrtFree(p));
  }
  MUST(aclrtDestroyStream(s));
}

std::atomic<int> calls{0};
void count_call(void*) { ++calls; }

void graph(int rounds) {
  aclrtStream s = make_stream(), side = make_stream();
  aclrtEvent fork = make_event(), join = make_event();
  void *a = allocate(), *b = allocate();
  MUST(aclmdlRICaptureBegin(s, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  MUST(aclrtRecordEvent(fork, s));
  MUST(aclrtStreamWaitEvent(side, fork));
  MUST(aclrtMemcpyAsync(b, kBytes, a, kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, side));
  MUST(aclrtLaunchHostFunc(side, count_call, nullptr));
  MUST(aclrtRecordEvent(join, side));
  MUST(aclrtStreamWaitEvent(s, join));
  aclmdlRI made;
  MUST(aclmdlRICaptureEnd(s, &made));
  for (int i = 1; i <= rounds; ++i) {
    MUST(aclrtMemsetAsync(a, kBytes, i, kBytes, s));
    MUST(aclmdlRIExecuteAsync(made, s));
    MUST(aclrtSynchronizeStream(s));
    EXPECT(holds(b, static_cast<unsigned char>(i)));
  }
  MUST(aclmdlRIDestroy(made));
  for (aclrtStream one : {s, side}) MUST(aclrtDestroyStream(one));
  for (aclrtEvent e : {fork, join}) MUST(aclrtDestroyEvent(e));
  for (void* p : {a, b}) MUST(aclrtFree(p));
}

// Streams are destroyed while their work is under way, without a wait.
void ends(int rounds) {
  void* p = allocate();
  for (int i = 0; i < rounds; ++i) {
    aclrtStream s = make_stream();
    for (int k = 0; k < 20; ++k) MUST(aclrtMemsetAsync(p, kBytes, k, kBytes, s));
    MUST(i % 2 ? aclrtDestroyStreamForce(s) : aclrtStreamAbort(s));
    if (i % 2 == 0) {
      int code = aclrtDestroyStream(s);
      EXPECT(code == 0 || code == ACL_ERROR_RT_STREAM_ABORT);
    }
  }
  MUST(aclrtSynchronizeDevice());
  MUST(aclrtFree(p));
}

void together(int rounds) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    for (auto work : {pipeline, churn, graph, ends})
      threads.emplace_back([work, i, rounds] {
        MUST(aclrtSetDevice(i));
        work(rounds);
      });
  for (std::thread& t : threads) t.join();
  EXPECT(calls.load() == 2 * rounds);
}

double cost_ns(int tasks, aclrtStream s, void* p) {
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < tasks; ++i) aclrtMemsetAsync(p, 64, i, 64, s);
  auto end = std::chrono::steady_clock::now();
  aclrtSynchronizeStream(s);
  return std::chrono::duration<double, std::nano>(end - begin).count() / tasks;
}

void bench() {
  MUST(aclrtSetDevice(0));
  aclrtStream s = make_stream();
  void* p = allocate();
  cost_ns(1000, s, p);
  double best = 1e9;
  for (int i = 0; i < 20; ++i) best = std::min(best, cost_ns(10000, s, p));
  printf("queueing one task: %.0f ns\n", best);
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10000; ++i) {
    aclrtMemsetAsync(p, 64, i, 64, s);
    aclrtSynchronizeStream(s);
  }
  auto end = std::chrono::steady_clock::now();
  printf("one task and its synchronisation: %.0f ns\n", std::chrono::duration<double,
         std::nano>(end - begin).count() / 1e4);
}

}  // namespace

int main(int argc, char** argv) {
  MUST(aclInit(nullptr));
  if (argc > 1 && !strcmp(argv[1], "bench")) bench();
  else together(argc > 1 ? atoi(argv[1]) : 20);
  MUST(aclFinalize());
  return 0;
}
