// Graphs after their capture: replayed, printed, named, destroyed. How they come to be is in capture.cpp.
#include "runtime/graph.h"
#include "runtime/memory.h"

#include <cstdio>
#include <cstring>

namespace cann_sim {
namespace {

class ReplayTask final : public ControlTask {
 public:
  explicit ReplayTask(std::shared_ptr<GraphBody> graph) : graph_(std::move(graph)) {
    if (settings().check_race) note_sources();
  }
  void run() override {
    graph_->replay(*Stream::of_this_worker());
    for (const Source& s : sources_)
      if (host_knew && is_pinned(s.at, s.bytes)) watch_source(s.at, s.bytes, s.hash, *host_knew);
  }
  const char* name() const override { return "aclmdlRIExecuteAsync"; }

 private:
  struct Source {                                // pinned memory that a task of the graph reads
    const void* at;
    size_t bytes;
    uint64_t hash;                               // when the replay was queued
  };
  void note_sources() {
    std::vector<Access> used;
    for (size_t i = 0, n = graph_->size(); i < n; ++i) {
      Task* task = graph_->take(i);              // an update may replace it meanwhile
      task->list_uses(used);
      task->release();
    }
    for (const Access& access : used)
      if (!access.writes && access.bytes && is_pinned(access.at, access.bytes))
        sources_.push_back({access.at, access.bytes, hash_source(access.at, access.bytes)});
  }
  std::shared_ptr<GraphBody> graph_;
  std::vector<Source> sources_;
};

// A graph as a trace: its tasks one after the other, each of one microsecond, with the records and waits between streams.
class Drawing {
 public:
  Drawing(FILE* file, uint32_t graph) : file_(file), graph_(graph) { fprintf(file_, "[\n"); }
  void add(const char* name, const char* type, int stream) {
    fprintf(file_,
            "%s{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %u, \"tid\": \"stream%d\", \"ts\": %zu.0, \"dur\": 1.0, \"args\": "
            "{\"Model Id\": %u, \"Stream Id\": %d, \"Task Id\": %zu, \"Task Type\": \"%s\"}}",
            count_ ? ",\n" : "", name, graph_, stream, count_, graph_, stream, count_, type);
    ++count_;
  }
  void end() { fprintf(file_, "\n]\n"); }

 private:
  FILE* const file_;
  const uint32_t graph_;
  size_t count_ = 0;
};

void draw(FILE* file, GraphBody& graph) {
  Drawing drawing(file, graph.id);
  const std::vector<GraphBody::Node> nodes = graph.list();
  const std::vector<GraphBody::Note> notes = graph.notes();
  auto note = notes.begin();
  for (size_t i = 0; i <= nodes.size(); ++i) {
    for (; note != notes.end() && note->before <= i; ++note) {
      const std::string type = note->text.substr(0, note->text.rfind('_'));
      drawing.add(note->text.c_str(), type.c_str(), note->stream);
    }
    if (i < nodes.size()) drawing.add(nodes[i].task->name(), "KERNEL", nodes[i].stream);
  }
  drawing.end();
}

Graph* find_graph(aclmdlRI handle, const char* function, int* code) {
  if (!handle) return *code = fail(ACL_ERROR_INVALID_PARAM, "%s: modelRI is NULL", function), nullptr;
  Graph* found = is_forked_child() ? nullptr : graphs().get(handle);
  if (!found) *code = fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is not a live graph", function, handle);
  else if (found->body->capturing.load()) {
    *code = fail(ACL_ERROR_RT_MODEL_CAPTURED, "%s: the graph is still being captured", function);
    return nullptr;
  } else if (found->body->branch) {
    *code = fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the graph belongs to a conditional task of another", function);
    return nullptr;
  }
  return found;
}

}  // namespace

GraphBody::~GraphBody() {
  for (Node& n : nodes_) n.task->release();
}

size_t GraphBody::add(Task* task, int stream) {
  std::lock_guard<std::mutex> hold(mutex_);
  nodes_.push_back({task, stream});
  return nodes_.size() - 1;
}

void GraphBody::replace(size_t node, Task* task) {
  std::lock_guard<std::mutex> hold(mutex_);
  nodes_[node].task->release();
  nodes_[node].task = task;
}

size_t GraphBody::size() {
  std::lock_guard<std::mutex> hold(mutex_);
  return nodes_.size();
}

Task* GraphBody::take(size_t node) {
  std::lock_guard<std::mutex> hold(mutex_);
  nodes_[node].task->retain();
  return nodes_[node].task;
}

std::vector<GraphBody::Node> GraphBody::list() {
  std::lock_guard<std::mutex> hold(mutex_);
  return nodes_;
}

void GraphBody::note(int stream, std::string text) {
  std::lock_guard<std::mutex> hold(mutex_);
  notes_.push_back({nodes_.size(), stream, std::move(text)});
}

std::vector<GraphBody::Note> GraphBody::notes() {
  std::lock_guard<std::mutex> hold(mutex_);
  return notes_;
}

void GraphBody::replay(Stream& worker) {
  std::lock_guard<std::mutex> hold(replaying_);
  {
    std::lock_guard<std::mutex> look(mutex_);
    for (auto& condition : conditions_)
      if (condition->assigned) condition->assign();
  }
  for (size_t i = 0, n = size(); i < n && !Stream::interrupted(); ++i) {
    Task* task = take(i);
    worker.run_task(task);
    task->release();
  }
}

void GraphBody::add_condition(std::shared_ptr<Condition> condition) {
  std::lock_guard<std::mutex> hold(mutex_);
  conditions_.push_back(std::move(condition));
}

Handles<Graph>& graphs() {
  static Handles<Graph>& pool = *new Handles<Graph>(65536);
  return pool;
}

void drop_graph(Graph* graph) {
  const std::shared_ptr<GraphBody> body = graph->body;
  for (TaskGroup* group : task_groups().all())
    if (group->graph == body) task_groups().drop(group);
  drop_conditions(body);
  for (Graph* branch : body->branches)
    if (graphs().check(branch)) drop_graph(branch);
  graphs().drop(graph);
}

Handles<TaskGroup>& task_groups() {
  static Handles<TaskGroup>& pool = *new Handles<TaskGroup>(65536);
  return pool;
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream) {
  CANN_ENTRY("aclmdlRIExecuteAsync");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIExecuteAsync", &code);
  if (!g) return code;
  return enqueue(stream, new ReplayTask(g->body));
}

aclError aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout) {
  CANN_ENTRY("aclmdlRIExecute");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIExecute", &code);
  if (!g) return code;
  if (timeout < -1) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIExecute: bad timeout %d", timeout);
  if (int refused = refuse_unsafe_call("aclmdlRIExecute")) return refused;
  if (int refused = enqueue(nullptr, new ReplayTask(g->body))) return refused;
  return aclrtSynchronizeStreamWithTimeout(nullptr, timeout);
}

aclError aclmdlRIDestroy(aclmdlRI modelRI) {
  CANN_ENTRY("aclmdlRIDestroy");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIDestroy", &code);
  if (!g) return code;
  auto told = g->when_destroyed;
  {
    std::lock_guard<std::mutex> hold(capture_mutex());
    drop_graph(g);                    // replays that are queued keep the tasks
  }
  for (auto& callback : told) callback.first(callback.second);
  return 0;
}

aclError aclmdlRIDestroyRegisterCallback(aclmdlRI modelRI, aclrtCallback func, void* userData) {
  CANN_ENTRY("aclmdlRIDestroyRegisterCallback");
  if (!func) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRIDestroyRegisterCallback: func is NULL");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIDestroyRegisterCallback", &code);
  if (!g) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  g->when_destroyed.emplace_back(func, userData);
  return 0;
}

aclError aclmdlRIDestroyUnregisterCallback(aclmdlRI modelRI, aclrtCallback func) {
  CANN_ENTRY("aclmdlRIDestroyUnregisterCallback");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIDestroyUnregisterCallback", &code);
  if (!g) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  for (auto i = g->when_destroyed.begin(); i != g->when_destroyed.end(); ++i)
    if (i->first == func) return g->when_destroyed.erase(i), 0;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIDestroyUnregisterCallback: the callback is not registered");
}

aclError aclmdlRIDebugPrint(aclmdlRI modelRI) {
  CANN_ENTRY("aclmdlRIDebugPrint");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIDebugPrint", &code);
  if (!g) return code;
  printf("graph %u, %zu tasks\n", g->body->id, g->body->size());
  for (const GraphBody::Node& n : g->body->list()) printf("  stream %d: %s\n", n.stream, n.task->name());
  fflush(stdout);
  return 0;
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char* path, uint32_t flags) {
  CANN_ENTRY("aclmdlRIDebugJsonPrint");
  if (!path) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRIDebugJsonPrint: path is NULL");
  if (flags > ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIDebugJsonPrint: unknown flags %u", flags);
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIDebugJsonPrint", &code);
  if (!g) return code;
  FILE* file = fopen(path, "w");
  if (!file) return fail(ACL_ERROR_RT_FILE_OPEN, "aclmdlRIDebugJsonPrint: cannot write %s", path);
  draw(file, *g->body);
  fclose(file);
  return 0;
}

aclError aclmdlRIGetId(aclmdlRI modelRI, uint32_t* modelRIId) {
  CANN_ENTRY("aclmdlRIGetId");
  if (!modelRIId) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRIGetId: modelRIId is NULL");
  Graph* g = modelRI ? graphs().get(modelRI) : nullptr;  // also while it is being captured
  if (!g) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIGetId: %p is not a live graph", modelRI);
  *modelRIId = g->body->id;
  return 0;
}

aclError aclmdlRISetName(aclmdlRI modelRI, const char* name) {
  CANN_ENTRY("aclmdlRISetName");
  if (!name) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRISetName: name is NULL");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRISetName", &code);
  if (!g) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  g->name = name;
  return 0;
}

aclError aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char* name) {
  CANN_ENTRY("aclmdlRIGetName");
  if (!name) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRIGetName: name is NULL");
  int code = 0;
  Graph* g = find_graph(modelRI, "aclmdlRIGetName", &code);
  if (!g) return code;
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (g->name.size() >= maxLen)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIGetName: the name needs %zu bytes, got %u", g->name.size() + 1,
                maxLen);
  memcpy(name, g->name.c_str(), g->name.size() + 1);
  return 0;
}
