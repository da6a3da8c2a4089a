// What a capture makes and a replay runs: inside libascendcl only.
#pragma once
#include "runtime/stream.h"

namespace cann_sim {

// The captured tasks in the order of their calls. That order respects every event between the captured streams, so a
// replay runs them one after the other.
class GraphBody {
 public:
  struct Node {
    Task* task;
    int stream;
  };
  explicit GraphBody(uint32_t number) : id(number) {}
  ~GraphBody();
  size_t add(Task* task, int stream);            // takes over one reference; the node's number
  void replace(size_t node, Task* task);         // takes over one reference
  size_t size();
  Task* take(size_t node);                       // one reference more
  void replay(Stream& worker);
  std::vector<Node> list();                      // for printing; the graph keeps the tasks alive

  const uint32_t id;
  std::atomic<bool> capturing{true};

 private:
  std::mutex mutex_;                             // guards nodes_: an update may come in the middle of a replay
  std::mutex replaying_;                         // a task object runs in one replay at a time
  std::vector<Node> nodes_;
};

struct Graph {                                   // aclmdlRI
  explicit Graph(std::shared_ptr<GraphBody> b) : body(std::move(b)) {}
  const std::shared_ptr<GraphBody> body;
  std::string name;
  std::vector<std::pair<aclrtCallback, void*>> when_destroyed;
};
Handles<Graph>& graphs();

struct TaskGroup {                               // aclrtTaskGrp
  TaskGroup(std::shared_ptr<GraphBody> g, std::vector<size_t> n) : graph(std::move(g)), nodes(std::move(n)) {}
  const std::shared_ptr<GraphBody> graph;
  const std::vector<size_t> nodes;
};
Handles<TaskGroup>& task_groups();

}  // namespace cann_sim
