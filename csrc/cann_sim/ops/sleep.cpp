// aclnnSleep: a stream that is busy for some time.
#include <chrono>
#include <thread>

#include "ops/op.h"

namespace cann_sim {
namespace {

// (cycles): of a clock of 1 GHz here, whatever a card's is; what ends the stream ends the sleep.
void check(const Call& c) { EXPECT(c.ints(0).size() == 1 && c.ints(0)[0] >= 0, "%s: expected one number of cycles", c.name()); }
void run(Run& r) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(r.call.ints(0)[0]);
  while (!interrupted() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

const Op sleep("aclnnSleep", check, run);

}  // namespace
}  // namespace cann_sim
