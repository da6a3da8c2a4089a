// The thread pool behind parallel_for.
#include "parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "processors.h"

namespace mt {
namespace {

thread_local bool inside = false;  // a body is running on this thread: nested loops run inline

// Waking a sleeping thread takes longer than a small product, and on a virtual processor that has halted longer than many a
// large one. Both sides poll before they sleep: at first without pause, then, for as long as there is usually something to do
// between two ops, giving way to whoever else is to run.
constexpr std::chrono::microseconds kPoll(100), kYield(2000);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A round: the caller publishes a body, workers come in and take pieces of it, the caller closes the round and waits until
// all who came in have left. Who polls comes in and leaves without the mutex, and writes on a line of its own: what fifteen
// threads write at once costs more than most bodies. Of each pair below one side writes first and reads the other's word
// then, in one order for all threads, so that at least one of them sees the other: open_ and a worker's busy, round_ and a
// worker's asleep, busy and waiting_.
class Pool {
 public:
  // Fewer workers where the system has no thread or no memory for one: the caller works too, so none is needed.
  explicit Pool(int workers)
      : wanted(workers), poll_(workers < processors()), shares_(workers + 1), workers_(workers + 1) {
    threads_.reserve(workers);
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this, i] { serve(i + 1); });
    } catch (const std::exception&) {
      return;
    }
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      ++round_;
    }
    for (Worker& w : workers_) w.wake.notify_all();
    for (auto& t : threads_) t.join();
  }
  const int wanted;

  void run(int64_t n, int64_t chunk, const std::function<void(int64_t, int64_t)>& body) {
    body_ = &body;
    n_ = n;
    chunk_ = chunk;
    const int64_t pieces = (n + chunk - 1) / chunk, members = std::min(pieces, int64_t(shares_.size()));
    members_.store(members, std::memory_order_relaxed);
    for (int64_t t = 0; t < members; ++t) {
      shares_[t].next.store(pieces * t / members, std::memory_order_relaxed);
      shares_[t].end = pieces * (t + 1) / members;
    }
    error_ = nullptr;
    open_ = true;
    ++round_;
    wake(members);
    work(0);
    open_ = false;  // a worker that comes only now has nothing to do, and is not waited for
    size_t left = 1;  // also of who is no member: it may have come late from the round before, which had more
    const auto all_left = [&] {
      while (left < workers_.size() && !workers_[left].busy) ++left;
      return left == workers_.size();
    };
    poll(all_left);
    if (!all_left()) {
      std::unique_lock<std::mutex> lock(mutex_);
      waiting_ = true;
      done_.wait(lock, all_left);
      waiting_ = false;
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // What threads write is on lines of its own.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};  // piece
    int64_t end = 0;
  };
  struct alignas(64) Worker {
    std::atomic<bool> busy{false}, asleep{false};
    std::condition_variable wake;
  };

  template <class Ready> void poll(Ready ready) {
    if (!poll_) return;
    const auto begin = std::chrono::steady_clock::now();
    auto now = begin;
    while (now < begin + kYield) {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return;
        relax();
      }
      if (now >= begin + kPoll) std::this_thread::yield();
      now = std::chrono::steady_clock::now();
    }
  }

  void wake(int64_t members) {
    bool locked = false;
    for (int64_t t = 1; t < members; ++t) {
      if (!workers_[t].asleep) continue;
      if (!locked) {
        std::lock_guard<std::mutex> lock(mutex_);  // a worker about to sleep sleeps, or has seen the round
        locked = true;
      }
      workers_[t].wake.notify_one();
    }
  }

  // A thread works off its own share, then what is left of the others': the same part of an operand goes to the same thread
  // in op after op, whose cache may still hold it.
  void work(size_t thread) {
    inside = true;
    const size_t members = size_t(members_.load(std::memory_order_relaxed));
    for (size_t i = 0; i < members; ++i) {
      Share& share = shares_[(thread + i) % members];
      if (i == 1)  // the lines of all others at once
        for (size_t other = 0; other < members; ++other) __builtin_prefetch(&shares_[other]);
      while (share.next.load(std::memory_order_relaxed) < share.end) {  // a look costs less than an addition
        const int64_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= share.end) break;
        try {
          (*body_)(piece * chunk_, std::min((piece + 1) * chunk_, n_));
        } catch (...) {
          std::lock_guard<std::mutex> lock(mutex_);
          if (!error_) error_ = std::current_exception();
          for (Share& other : shares_) other.next.store(other.end, std::memory_order_relaxed);
        }
      }
    }
    inside = false;
  }

  void serve(size_t thread) {
    Worker& me = workers_[thread];
    uint64_t seen = 0;
    for (;;) {
      poll([&] { return round_ != seen; });
      if (round_ == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        me.asleep = true;
        me.wake.wait(lock, [&] { return round_ != seen; });
        me.asleep = false;
      }
      if (stop_) return;
      seen = round_;
      if (int64_t(thread) >= members_.load(std::memory_order_relaxed)) continue;  // fewer pieces than threads
      me.busy = true;
      if (open_) work(thread);  // of the round that was seen or a later one: while this worker is busy none ends
      me.busy = false;
      if (waiting_) {
        std::lock_guard<std::mutex> lock(mutex_);
        done_.notify_one();
      }
    }
  }

  const bool poll_;  // not when there are more threads than processors: polling would keep the others from running
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable done_;
  const std::function<void(int64_t, int64_t)>* body_ = nullptr;
  int64_t n_ = 0, chunk_ = 1;
  std::exception_ptr error_;
  std::vector<Share> shares_;    // of each thread; the caller is the first
  std::vector<Worker> workers_;  // likewise; the caller's is not used
  alignas(64) std::atomic<uint64_t> round_{0};
  std::atomic<int64_t> members_{0};  // threads that have a share of the round
  std::atomic<bool> open_{false}, stop_{false}, waiting_{false};
};

std::mutex pool_mutex;  // held by the one caller that uses the pool
Pool* pool = nullptr;   // never freed at exit: workers may outlive static destruction
std::atomic<int> num_threads{0};

// The child of a fork has the parent's Pool object but none of its threads: forget it, and make the mutex new.
void after_fork_in_child() {
  pool = nullptr;
  new (&pool_mutex) std::mutex();
}

}  // namespace

int get_num_threads() {
  int n = num_threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    num_threads.store(n, std::memory_order_relaxed);
  }
  return n;
}

bool in_parallel() { return inside; }

void set_num_threads(int n) { num_threads.store(std::max(1, n), std::memory_order_relaxed); }

void parallel_ranges(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  int threads = get_num_threads();
  grain = std::max<int64_t>(grain, 1);
  std::unique_lock<std::mutex> lock(pool_mutex, std::defer_lock);
  if (inside || threads == 1 || n <= grain || !lock.try_lock()) return body(0, n);
  if (!pool || pool->wanted != threads - 1) {
    static bool registered = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;
    (void)registered;
    delete pool;
    pool = nullptr;
    pool = new Pool(threads - 1);
  }
  // A few chunks per thread, so that a thread that was descheduled does not hold up the rest.
  int64_t pieces = std::min<int64_t>((n + grain - 1) / grain, int64_t(threads) * 4);
  pool->run(n, (n + pieces - 1) / pieces, body);
}

}  // namespace mt
