// Capture: which streams are recorded into a graph, how events draw others in, and what is not allowed meanwhile.
#include <set>

#include "runtime/graph.h"

namespace cann_sim {

// How much of each captured stream is known to come before a point: the count of its tasks.
using Progress = std::map<Stream*, uint64_t>;

class Capture {
 public:
  Capture(std::shared_ptr<GraphBody> g, Stream* s, aclmdlRICaptureMode m)
      : graph(std::move(g)), origin(s), mode(m), thread(std::this_thread::get_id()), serial(next_serial++) {}
  const std::shared_ptr<GraphBody> graph;
  Stream* const origin;
  const aclmdlRICaptureMode mode;
  const std::thread::id thread;
  const uint64_t serial;
  Graph* handle = nullptr;
  bool invalid = false;
  std::map<Stream*, Progress> progress;          // of every stream that takes part
  std::map<Stream*, std::vector<size_t>> groups;  // open task groups: the nodes so far
  TaskGroup* updates = nullptr;                   // not a capture but an update: the tasks replace those of the group
  std::vector<Task*> replacements;
  UseMap uses;                                    // by the captured streams: a replay may run branches at once

  void join(Stream* s) {
    s->retain();
    s->capture = this;
    ++progress[s][s];                             // taking part must be joined again, even without a task
  }
  void leave_all() {
    for (auto& p : progress) {
      p.first->capture = nullptr;
      p.first->release();
    }
    progress.clear();
  }
  // A stream whose newest task is not known to come before the end of the origin; nullptr: none.
  Stream* unjoined() {
    for (auto& p : progress)
      if (p.first != origin && progress[origin][p.first] < p.second[p.first]) return p.first;
    return nullptr;
  }
  static uint64_t next_serial;                    // guarded by capture_mutex()
};
uint64_t Capture::next_serial = 1;

struct CapturePoint {                             // an event recorded into a capture
  uint64_t serial;
  Progress before;
  uint64_t number;                                // of the record, for printing
};

namespace {

std::atomic<int> active{0};
std::atomic<uint32_t> next_graph{0};
thread_local aclmdlRICaptureMode thread_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;

std::map<uint64_t, Capture*>& captures() {        // guarded by capture_mutex()
  static auto& one = *new std::map<uint64_t, Capture*>;
  return one;
}

Capture* capture_of(const Event& e) {
  if (!e.captured) return nullptr;
  auto found = captures().find(e.captured->serial);
  return found == captures().end() ? nullptr : found->second;
}

void end_capture(Capture* c) {
  c->leave_all();
  captures().erase(c->serial);
  --active;
  delete c;
}

int invalidate(Capture* c, int code, const char* format, const char* function) {
  c->invalid = true;
  return fail(code, format, function);
}

// A capture because of which this thread must not make a blocking call; nullptr: none.
Capture* forbidding_capture() {
  if (thread_mode == ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return nullptr;
  for (auto& c : captures()) {
    if (c.second->updates) continue;
    bool mine = c.second->thread == std::this_thread::get_id();
    if (mine && c.second->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED) return c.second;
    if (!mine && c.second->mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL && thread_mode == ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)
      return c.second;
  }
  return nullptr;
}

bool is_default(const Stream& s) {
  Context* c = peek_context();
  return c && c->default_stream && c->default_stream->stream == &s;
}

// The branches of a graph are compared while it is captured; a replay counts as tasks of one stream.
void note_captured(Capture& c, const Stream& s, const Task& task) {
  Known known;
  for (auto& p : c.progress[const_cast<Stream*>(&s)]) {
    const auto actor = static_cast<size_t>(p.first->id) + 1;
    if (known.size() <= actor) known.resize(actor + 1, 0);
    known[actor] = p.second;
  }
  std::vector<Access> used;
  task.list_uses(used);
  const auto actor = static_cast<uint32_t>(s.id) + 1;
  Use use{actor, known[actor], task.name(), "", s.custom_tag.load(), false};
  for (const Access& access : used) {
    use.what = access.what;
    use.writes = access.writes;
    c.uses.use(access, use, known);
  }
}

StreamHandle* find_for_capture(aclrtStream stream, const char* function, int* code) {
  StreamHandle* found = find_stream(stream, function, code);
  if (!found || !is_default(*found->stream)) return found;
  *code = fail(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "%s: not on the default stream", function);
  return nullptr;
}

// Starts the capture of a stream into the graph that target() returns; target() is called with capture_mutex() held.
template <class Target>
int begin_capture(aclrtStream stream, aclmdlRICaptureMode mode, const char* function, Target target) {
  if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %d is not a capture mode", function, mode);
  int code = 0;
  StreamHandle* found = find_for_capture(stream, function, &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (found->stream->capture)
    return fail(ACL_ERROR_RT_STREAM_CAPTURED, "%s: stream %d is being captured already", function, found->stream->id);
  Graph* handle = target(&code);
  if (!handle) return code;
  auto capture = new Capture(handle->body, found->stream, mode);
  capture->handle = handle;
  capture->join(found->stream);
  captures()[capture->serial] = capture;
  ++active;
  return 0;
}

// Whether the stream's capture records a branch of a conditional task. The client got its handle from aclmdlRIAddCondTask.
bool captures_branch(aclrtStream stream) {
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclmdlRICaptureEnd", &code);
  std::lock_guard<std::mutex> hold(capture_mutex());
  return found && found->stream->capture && found->stream->capture->graph->branch;
}

// A branch of a conditional task of this graph that was not captured to its end; nullptr: none.
Graph* open_branch(const GraphBody& graph) {
  for (Graph* branch : graph.branches)
    if (branch->body->capturing.load()) return branch;
  return nullptr;
}

class UpdateTask final : public ControlTask {
 public:
  UpdateTask(std::shared_ptr<GraphBody> graph, std::vector<size_t> nodes, std::vector<Task*> tasks)
      : graph_(std::move(graph)), nodes_(std::move(nodes)), tasks_(std::move(tasks)) {}
  ~UpdateTask() override {
    for (Task* t : tasks_) t->release();
  }
  void run() override {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      tasks_[i]->retain();
      graph_->replace(nodes_[i], tasks_[i]);
    }
  }
  const char* name() const override { return "aclmdlRICaptureTaskUpdate"; }

 private:
  std::shared_ptr<GraphBody> graph_;
  std::vector<size_t> nodes_;
  std::vector<Task*> tasks_;
};

}  // namespace

Graph* captured_graph(aclrtStream stream, const char* function, int* code) {
  StreamHandle* found = find_for_capture(stream, function, code);
  if (!found) return nullptr;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = found->stream->capture;
  if (c && !c->updates && !c->invalid) return c->handle;
  *code = fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "%s: stream %d is not being captured", function, found->stream->id);
  return nullptr;
}

std::shared_ptr<GraphBody> new_graph_body() { return std::make_shared<GraphBody>(next_graph.fetch_add(1)); }

std::mutex& capture_mutex() {
  static std::mutex& one = *new std::mutex;
  return one;
}

bool any_capture() { return active.load(std::memory_order_acquire) > 0; }

bool capture_task(Stream& s, Task* task, int* code) {
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = s.capture;
  if (!c) {
    Capture* other = is_default(s) ? forbidding_capture() : nullptr;
    if (!other) return false;
    task->release();
    *code = invalidate(other, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
                       "%s: the default stream is not to be used during a capture", "launch");
  } else if (c->invalid) {
    task->release();
    *code = fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "launch: the capture of stream %d is invalid", s.id);
  } else if (c->updates) {
    c->replacements.push_back(task);
  } else {
    size_t node = c->graph->add(task, s.id);
    ++c->progress[&s][&s];
    if (following_order()) note_captured(*c, s, *task);
    auto group = c->groups.find(&s);
    if (group != c->groups.end()) group->second.push_back(node);
  }
  return true;
}

bool capture_record(Stream& s, Event& e, int* code) {
  std::lock_guard<std::mutex> hold(capture_mutex());
  e.captured.reset();
  Capture* c = s.capture;
  if (!c || c->updates || (e.flags & ACL_EVENT_EXTERNAL)) return false;
  if (c->invalid) {
    *code = fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "aclrtRecordEvent: the capture of stream %d is invalid",
                 s.id);
    return true;
  }
  static uint64_t records = 0;                    // guarded by capture_mutex()
  e.captured = std::make_shared<CapturePoint>(CapturePoint{c->serial, c->progress[&s], ++records});
  c->graph->note(s.id, "EVENT_RECORD_" + std::to_string(records));
  return true;
}

bool capture_wait(Stream& s, Event& e, int* code) {
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture *here = s.capture, *there = capture_of(e);
  if ((e.flags & ACL_EVENT_EXTERNAL) || (here && here->updates) || (!here && !there)) return false;
  const char* function = "aclrtStreamWaitEvent";
  if (!there) {
    std::lock_guard<std::mutex> look(e.mutex);
    if (e.latest || e.one_shot())
      *code = invalidate(here, ACL_ERROR_RT_CAPTURE_DEPENDENCY, "%s: the event was recorded outside of the capture",
                         function);
  } else if (here && here != there) {
    *code = invalidate(here, ACL_ERROR_STREAM_CAPTURE_CONFLICT, "%s: the event belongs to another capture", function);
  } else if (!here && is_default(s)) {
    *code = invalidate(there, ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "%s: the default stream cannot be captured",
                       function);
  } else {
    if (!here) there->join(&s);
    Progress& mine = there->progress[&s];
    for (auto& p : e.captured->before) mine[p.first] = std::max(mine[p.first], p.second);
    there->graph->note(s.id, "EVENT_WAIT_" + std::to_string(e.captured->number));
  }
  return true;
}

void abandon_capture(Stream& s) {
  if (!any_capture()) return;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = s.capture;
  if (!c) return;
  Graph* handle = c->graph && c->graph->branch ? nullptr : c->handle;
  for (Task* t : c->replacements) t->release();
  end_capture(c);
  if (handle) drop_graph(handle);
}

int refuse_captured_stream(Stream& s, const char* function) {
  if (!any_capture()) return 0;
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (!s.capture) return 0;
  return invalidate(s.capture, ACL_ERROR_RT_STREAM_CAPTURED, "%s: the stream is being captured", function);
}

int refuse_captured_event(Event& e, const char* function) {
  if (!any_capture()) return 0;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = capture_of(e);
  return c ? invalidate(c, ACL_ERROR_RT_EVENT_CAPTURED, "%s: the event is part of a capture", function) : 0;
}

int refuse_unsafe_call(const char* function) {
  if (!any_capture()) return 0;
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (!forbidding_capture()) return 0;
  return fail(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "%s: a capture is going on whose mode forbids this call here; see "
              "aclmdlRICaptureThreadExchangeMode", function);
}

int refuse_pageable_copy(aclrtStream stream, const char* function) {
  if (!any_capture()) return 0;
  int code = 0;
  StreamHandle* found = find_stream(stream, function, &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (!found->stream->capture || !forbidding_capture()) return 0;
  return invalidate(found->stream->capture, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT,
                    "%s: host memory that is not pinned cannot be part of a capture", function);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
  CANN_ENTRY("aclmdlRICaptureBegin");
  return begin_capture(stream, mode, "aclmdlRICaptureBegin", [](int* code) {
    Graph* made = graphs().make(new_graph_body());
    if (!made) *code = fail(ACL_ERROR_RT_NO_MODEL_RESOURCE, "aclmdlRICaptureBegin: too many graphs");
    return made;
  });
}

aclError aclmdlRICaptureToModelRIBegin(aclrtStream stream, aclmdlRI modelRI, aclmdlRICaptureMode mode) {
  CANN_ENTRY("aclmdlRICaptureToModelRIBegin");
  return begin_capture(stream, mode, "aclmdlRICaptureToModelRIBegin", [modelRI](int* code) {
    Graph* found = modelRI ? graphs().get(modelRI) : nullptr;
    if (!found || !found->body->branch)
      *code = fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICaptureToModelRIBegin: %p is not a graph that aclmdlRIAddCondTask made",
                   modelRI);
    else if (found->body->begun)
      *code = fail(ACL_ERROR_RT_MODEL_CAPTURED, "aclmdlRICaptureToModelRIBegin: the graph has been captured already");
    else found->body->begun = true;
    return *code ? nullptr : found;
  });
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* modelRI) {
  const int planned = planned_fault("aclmdlRICaptureEnd");  // the capture is over all the same
  if (!modelRI && !captures_branch(stream)) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRICaptureEnd: modelRI is NULL");
  int code = 0;
  StreamHandle* found = find_for_capture(stream, "aclmdlRICaptureEnd", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = found->stream->capture;
  if (!c || c->updates)
    return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "aclmdlRICaptureEnd: stream %d is not being captured",
                found->stream->id);
  if (c->origin != found->stream)
    return fail(ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED, "aclmdlRICaptureEnd: the capture began on stream %d",
                c->origin->id);
  if (c->mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && c->thread != std::this_thread::get_id())
    return fail(ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD, "aclmdlRICaptureEnd: the capture began in another thread");
  const bool branch = c->graph->branch;
  if (modelRI) *modelRI = nullptr;
  Stream* loose = c->unjoined();
  if (planned) {
    code = planned;
  } else if (c->invalid) {
    code = fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
                "aclmdlRICaptureEnd: an illegal call made the capture invalid");
  } else if (loose) {
    code = fail(ACL_ERROR_RT_STREAM_UNJOINED, "aclmdlRICaptureEnd: stream %d took part and was not joined again",
                loose->id);
  } else if (!c->groups.empty()) {
    code = fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureEnd: a task group is still open");
  } else if (open_branch(*c->graph)) {
    code = fail(ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING,
                "aclmdlRICaptureEnd: a branch of a conditional task was not captured to its end");
  } else if (branch && !graphs().check(c->handle)) {
    code = fail(ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "aclmdlRICaptureEnd: the graph with the conditional task is gone");
  }
  Graph* handle = c->handle;
  c->graph->capturing = branch && code;             // a branch that failed keeps the other graph from ending
  end_capture(c);
  if (code && !branch) drop_graph(handle);
  else if (!code && modelRI) *modelRI = handle;
  return code;
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* modelRI) {
  CANN_ENTRY("aclmdlRICaptureGetInfo");
  if (!status || !modelRI)
    return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRICaptureGetInfo: %s is NULL", status ? "modelRI" : "status");
  int code = 0;
  StreamHandle* found = find_stream(stream, "aclmdlRICaptureGetInfo", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = found->stream->capture;
  bool captured = c && !c->updates;
  *status = !captured ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
            : c->invalid ? ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED : ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
  *modelRI = captured ? c->handle : nullptr;
  return 0;
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  CANN_ENTRY("aclmdlRICaptureThreadExchangeMode");
  if (!mode) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRICaptureThreadExchangeMode: mode is NULL");
  if (*mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || *mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICaptureThreadExchangeMode: %d is not a capture mode", *mode);
  std::swap(*mode, thread_mode);
  return 0;
}

// ---- task groups: parts of a graph that are replaced later ----------------------------------------------------

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream stream) {
  CANN_ENTRY("aclmdlRICaptureTaskGrpBegin");
  int code = 0;
  StreamHandle* found = find_for_capture(stream, "aclmdlRICaptureTaskGrpBegin", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = found->stream->capture;
  if (!c || c->updates)
    return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "aclmdlRICaptureTaskGrpBegin: the stream is not being captured");
  if (!c->groups.emplace(found->stream, std::vector<size_t>()).second)
    return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskGrpBegin: the stream has an open group");
  return 0;
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp* handle) {
  CANN_ENTRY("aclmdlRICaptureTaskGrpEnd");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRICaptureTaskGrpEnd: handle is NULL");
  int code = 0;
  StreamHandle* found = find_for_capture(stream, "aclmdlRICaptureTaskGrpEnd", &code);
  if (!found) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  Capture* c = found->stream->capture;
  auto group = c ? c->groups.find(found->stream) : decltype(c->groups.find(found->stream))();
  if (!c || group == c->groups.end())
    return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskGrpEnd: the stream has no open group");
  TaskGroup* made = task_groups().make(c->graph, group->second);
  c->groups.erase(group);
  if (!made) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "aclmdlRICaptureTaskGrpEnd: too many groups");
  *handle = made;
  return 0;
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle) {
  CANN_ENTRY("aclmdlRICaptureTaskUpdateBegin");
  int code = 0;
  StreamHandle* found = find_for_capture(stream, "aclmdlRICaptureTaskUpdateBegin", &code);
  if (!found) return code;
  TaskGroup* group = handle ? task_groups().get(handle) : nullptr;
  if (!group) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICaptureTaskUpdateBegin: %p is not a task group", handle);
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (found->stream->capture)
    return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
                "aclmdlRICaptureTaskUpdateBegin: the stream is being captured or updated");
  auto update = new Capture(group->graph, found->stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
  update->updates = group;
  update->join(found->stream);
  captures()[update->serial] = update;
  ++active;
  return 0;
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  CANN_ENTRY("aclmdlRICaptureTaskUpdateEnd");
  int code = 0;
  StreamHandle* found = find_for_capture(stream, "aclmdlRICaptureTaskUpdateEnd", &code);
  if (!found) return code;
  Task* update;
  {
    std::lock_guard<std::mutex> hold(capture_mutex());
    Capture* c = found->stream->capture;
    if (!c || !c->updates)
      return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskUpdateEnd: the stream is not being updated");
    size_t expected = c->updates->nodes.size(), given = c->replacements.size();
    update = new UpdateTask(c->graph, c->updates->nodes, std::move(c->replacements));
    end_capture(c);
    if (given != expected) {
      update->release();
      return fail(ACL_ERROR_RT_MODEL_UPDATE_FAILED, "aclmdlRICaptureTaskUpdateEnd: the group has %zu tasks, got %zu",
                  expected, given);
    }
  }
  return enqueue(stream, update);
}
