// Conditional tasks of a graph: a value in device memory decides at each replay which of several other graphs runs, or how often.
#include "runtime/allocation.h"
#include "runtime/graph.h"
#include "runtime/memory.h"

namespace cann_sim {
namespace {

struct ConditionHandle {                         // aclmdlRICondHandle
  ConditionHandle(std::shared_ptr<GraphBody> g, std::shared_ptr<Condition> c) : graph(std::move(g)), condition(std::move(c)) {}
  const std::shared_ptr<GraphBody> graph;
  const std::shared_ptr<Condition> condition;
};

Handles<ConditionHandle>& conditions() {
  static Handles<ConditionHandle>& pool = *new Handles<ConditionHandle>(65536);
  return pool;
}

class ConditionalTask final : public ControlTask {
 public:
  ConditionalTask(aclmdlRICondTaskType type, std::shared_ptr<Condition> condition, std::vector<std::shared_ptr<GraphBody>> branches)
      : type_(type), condition_(std::move(condition)), branches_(std::move(branches)) {}
  void run() override {
    Stream& worker = *Stream::of_this_worker();
    if (type_ == ACL_MODEL_RI_COND_TYPE_WHILE) {
      while (condition_->value() && !Stream::interrupted()) {
        branches_[0]->replay(worker);
        if (settings().mode == Mode::null) return;  // nothing there changes the value
      }
      return;
    }
    const uint64_t value = condition_->value(), chosen = type_ == ACL_MODEL_RI_COND_TYPE_IF ? !value : value;
    if (chosen < branches_.size()) branches_[chosen]->replay(worker);
  }
  void list_uses(std::vector<Access>& used) const override {
    used.push_back({condition_->device, sizeof(uint64_t), false, "the condition"});
  }
  const char* name() const override { return "aclmdlRIAddCondTask"; }

 private:
  const aclmdlRICondTaskType type_;
  const std::shared_ptr<Condition> condition_;
  const std::vector<std::shared_ptr<GraphBody>> branches_;
};

// What a handle stands for, or nothing. Another thread may destroy its graph: handles go under this lock, and what they
// share stays with the copy.
std::shared_ptr<ConditionHandle> condition_of(aclmdlRICondHandle handle) {
  std::lock_guard<std::mutex> hold(capture_mutex());
  const ConditionHandle* found = conditions().get(handle);
  return found ? std::make_shared<ConditionHandle>(*found) : nullptr;
}

bool is_count(aclmdlRICondTaskType type, uint32_t size) {
  switch (type) {
    case ACL_MODEL_RI_COND_TYPE_IF: return size == 1 || size == 2;
    case ACL_MODEL_RI_COND_TYPE_WHILE: return size == 1;
    default: return size > 0;
  }
}

}  // namespace

Condition::~Condition() {
  uintptr_t base;
  Allocation kept;
  if (find_allocation(device, &base, &kept)) release(device, "aclmdlRIDestroy");  // a reset device has freed it already
}
uint64_t Condition::value() const { return *reinterpret_cast<volatile uint64_t*>(worker_address(device)); }
void Condition::assign() const { *reinterpret_cast<volatile uint64_t*>(worker_address(device)) = initial; }

size_t live_conditions() { return conditions().live(); }

void drop_conditions(const std::shared_ptr<GraphBody>& graph) {
  for (ConditionHandle* handle : conditions().all())
    if (handle->graph == graph) conditions().drop(handle);
}

}  // namespace cann_sim

using namespace cann_sim;

aclError aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue, aclmdlRICondHandleFlag flag,
                                  aclmdlRICondHandle* handle) {
  CANN_ENTRY("aclmdlRICondHandleCreate");
  if (!handle) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRICondHandleCreate: handle is NULL");
  if (flag != 0 && flag != ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICondHandleCreate: unknown flag %d", static_cast<int>(flag));
  std::shared_ptr<GraphBody> body;
  {
    std::lock_guard<std::mutex> hold(capture_mutex());
    if (const Graph* graph = modelRI ? graphs().get(modelRI) : nullptr) body = graph->body;
  }
  if (!body || !body->capturing.load())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICondHandleCreate: %p is not a graph that is being captured", modelRI);
  void* memory = nullptr;
  if (int code = allocate(&memory, sizeof(uint64_t), ACL_MEM_MALLOC_NORMAL_ONLY, 32, "aclmdlRICondHandleCreate")) return code;
  auto made = std::make_shared<Condition>(static_cast<uint64_t*>(memory), defaultLaunchValue,
                                          flag == ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT);
  made->assign();
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (!graphs().get(modelRI)) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICondHandleCreate: %p was destroyed meanwhile", modelRI);
  *handle = conditions().make(body, made);
  if (!*handle) return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "aclmdlRICondHandleCreate: too many handles");
  body->add_condition(made);
  return 0;
}

aclError aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t** ptr) {
  CANN_ENTRY("aclmdlRICondHandleGetCondPtr");
  if (!ptr) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRICondHandleGetCondPtr: ptr is NULL");
  const auto found = condition_of(handle);
  if (!found) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRICondHandleGetCondPtr: %p is not a condition", handle);
  *ptr = found->condition->device;
  return 0;
}

aclError aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags) {
  CANN_ENTRY("aclmdlRIAddCondTask");
  constexpr uint32_t kMost = 4096;               // branches
  if (flags) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: flags must be 0, got %u", flags);
  if (!params.modelRIArray) return fail(ACL_ERROR_INVALID_PARAM, "aclmdlRIAddCondTask: modelRIArray is NULL");
  if (params.type < ACL_MODEL_RI_COND_TYPE_IF || params.type > ACL_MODEL_RI_COND_TYPE_SWITCH)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: %d is not a type of condition", static_cast<int>(params.type));
  if (!is_count(params.type, params.size) || params.size > kMost)
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: %u branches do not go with type %d", params.size,
                static_cast<int>(params.type));
  const auto condition = condition_of(params.handle);
  if (!condition) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: %p is not a condition", params.handle);
  int code = 0;
  Graph* graph = captured_graph(stream, "aclmdlRIAddCondTask", &code);
  if (!graph) return code;
  // Whether the handle is still that of the condition's graph; under the lock of captures.
  auto belongs = [&] { return graphs().check(graph) && graph->body == condition->graph; };
  if (std::lock_guard<std::mutex> hold(capture_mutex()); !belongs())
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: the condition belongs to another graph");
  std::vector<std::shared_ptr<GraphBody>> bodies;
  std::vector<Graph*> made;
  for (uint32_t i = 0; i < params.size; ++i) {
    bodies.push_back(new_graph_body());
    bodies.back()->branch = true;
    if (Graph* branch = graphs().make(bodies.back())) made.push_back(branch);
  }
  code = made.size() < params.size ? fail(ACL_ERROR_RT_NO_MODEL_RESOURCE, "aclmdlRIAddCondTask: too many graphs")
                                   : enqueue(stream, new ConditionalTask(params.type, condition->condition, bodies));
  std::lock_guard<std::mutex> hold(capture_mutex());
  if (!code && !belongs()) code = fail(ACL_ERROR_RT_PARAM_INVALID, "aclmdlRIAddCondTask: the graph was destroyed meanwhile");
  if (code) {
    for (Graph* branch : made) graphs().drop(branch);
    return code;
  }
  for (uint32_t i = 0; i < params.size; ++i) {
    graph->body->branches.push_back(made[i]);
    params.modelRIArray[i] = made[i];
  }
  return 0;
}
