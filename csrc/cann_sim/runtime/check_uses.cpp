// Who used which bytes last: the map behind the reports of races, of freed memory and of memory that was never written.
#include <algorithm>

#include "runtime/check.h"

namespace cann_sim {
namespace {

bool knows(const Known& known, const Use& use) {
  return !use.count || (use.actor < known.size() && known[use.actor] >= use.count);
}

std::string at_text(uintptr_t at, uint64_t bytes) {
  char text[64];
  snprintf(text, sizeof text, "%llu bytes at %#llx", static_cast<unsigned long long>(bytes),
           static_cast<unsigned long long>(at));
  return text;
}

std::string key_of(const Use& a, const Use& b) {
  return std::string(a.task) + "." + a.what + "|" + b.task + "." + b.what + (a.writes ? "w" : "r") + (b.writes ? "w" : "r");
}

void report_race(const Use& earlier, const Use& later, uintptr_t at, uint64_t bytes) {
  if (!settings().check_race) return;
  report_problem("race", key_of(earlier, later),
                 describe_use(earlier) + " and " + describe_use(later) + " use the same memory, " + at_text(at, bytes) +
                     ", and no event or synchronisation orders them");
}

}  // namespace

void UseMap::cut(uintptr_t at) {
  auto next = cells_.upper_bound(at);
  if (next == cells_.begin()) return;
  auto cell = std::prev(next);
  if (cell->first == at || cell->second.end <= at) return;
  Cell upper = cell->second;
  cell->second.end = at;
  cells_.emplace_hint(next, at, std::move(upper));
}

void UseMap::compare(const Cell& cell, uintptr_t at, const Access& access, const Use& use, const Known& known) {
  const uint64_t bytes = cell.end - at;
  if (cell.freed) {
    if (!settings().check_memory) return;
    report_problem("memory", key_of(cell.write, use),
                   describe_use(use) + " after " + cell.write.task + " gave the memory back: " + at_text(at, bytes));
    return;
  }
  if (!knows(known, cell.write)) report_race(cell.write, use, at, bytes);
  if (!access.writes) return;
  for (const Use& read : cell.reads)
    if (!knows(known, read)) report_race(read, use, at, bytes);
}

// The cell that begins there; host memory that was not seen before gets one.
UseMap::Cells::iterator UseMap::cell_at(Cells::iterator next, uintptr_t at, uintptr_t end) {
  if (next != cells_.end() && next->first == at) return next;
  Cell fresh;
  fresh.end = next == cells_.end() ? end : std::min(end, next->first);
  return cells_.emplace_hint(next, at, std::move(fresh));
}

void UseMap::use(const Access& access, const Use& use, const Known& known) {
  const auto begin = reinterpret_cast<uintptr_t>(access.at);
  const uintptr_t end = begin + access.bytes;
  if (!access.bytes) return;
  cut(begin);
  cut(end);
  auto cell = cells_.lower_bound(begin);
  uint64_t unwritten = 0;
  bool freed = false;
  for (uintptr_t at = begin; at < end;) {
    cell = cell_at(cell, at, end);
    Cell& c = cell->second;
    if (c.reused && knows(known, c.write)) c.freed = c.reused = false, c.write = Use{};  // another life
    compare(c, at, access, use, known);
    freed |= c.freed;
    if (c.unwritten) unwritten += c.end - at;
    at = c.end;
    if (!access.writes && !c.freed) {
      auto stale = [&](const Use& read) { return read.actor == use.actor || knows(known, read); };
      c.reads.erase(std::remove_if(c.reads.begin(), c.reads.end(), stale), c.reads.end());
      c.reads.push_back(use);
    }
    ++cell;
  }
  if (freed) return;                    // it stays freed, whatever was tried
  if (!access.writes && access.whole && unwritten == access.bytes && settings().check_memory)
    report_problem("memory", std::string(use.task) + "." + use.what + " unwritten",
                   describe_use(use) + ": nothing has written the memory since it was allocated, " + at_text(begin, access.bytes));
  if (!access.writes) return;
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(end));
  Cell written;
  written.end = end;
  written.write = use;
  cells_.emplace(begin, std::move(written));
}

bool UseMap::was_written_unknown(uintptr_t at, uint64_t bytes, const Known& known) {
  cut(at);
  cut(at + bytes);
  for (auto cell = cells_.lower_bound(at); cell != cells_.end() && cell->first < at + bytes; ++cell)
    if (!knows(known, cell->second.write)) return true;
  return false;
}

void UseMap::forget(uintptr_t at, uint64_t bytes) {
  cut(at);
  cut(at + bytes);
  cells_.erase(cells_.lower_bound(at), cells_.lower_bound(at + bytes));
}

void UseMap::begin_life(uintptr_t at, uint64_t bytes, bool written) {
  forget(at, bytes);
  Cell fresh;
  fresh.end = at + bytes;
  fresh.unwritten = !written;
  cells_.emplace(at, std::move(fresh));
}

void UseMap::end_life(uintptr_t at, uint64_t bytes, const Use& by, const Known& known, bool reused) {
  cut(at);
  cut(at + bytes);
  const auto last = cells_.lower_bound(at + bytes);
  for (auto cell = cells_.lower_bound(at); cell != last; ++cell) {
    auto expect_done = [&](const Use& use) {
      if (knows(known, use) || !settings().check_memory) return;
      report_problem("memory", key_of(use, by),
                     std::string(by.task) + " gives memory back that " + describe_use(use) + " may still use: " +
                         at_text(cell->first, cell->second.end - cell->first) + "; nothing has waited for that task");
    };
    expect_done(cell->second.write);
    for (const Use& read : cell->second.reads) expect_done(read);
  }
  cells_.erase(cells_.lower_bound(at), last);
  Cell gone;
  gone.end = at + bytes;
  gone.freed = true;
  gone.reused = reused;
  gone.write = by;
  cells_.emplace(at, std::move(gone));
}

}  // namespace cann_sim
