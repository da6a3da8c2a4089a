// What a capture makes and a replay runs: inside libascendcl only.
#pragma once
#include "runtime/stream.h"

namespace cann_sim {

// The captured tasks in the order of their calls. That order respects every event between the captured streams, so a
// replay runs them one after the other.
struct Condition;
struct Graph;
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
  // What orders the captured streams and is no task of a replay: records and waits of events, for printing.
  struct Note {
    size_t before;                               // the node it comes before
    int stream;
    std::string text;
  };
  void note(int stream, std::string text);
  std::vector<Note> notes();

  const uint32_t id;
  std::atomic<bool> capturing{true};
  bool branch = false, begun = false;            // of a conditional task; its capture has begun. Guarded by capture_mutex()
  std::vector<Graph*> branches;                  // of this graph's conditional tasks; guarded by capture_mutex()
  void add_condition(std::shared_ptr<Condition> condition);

 private:
  std::mutex mutex_;                             // guards what follows: an update may come in the middle of a replay
  std::vector<std::shared_ptr<Condition>> conditions_;
  std::mutex replaying_;                         // a task object runs in one replay at a time
  std::vector<Node> nodes_;
  std::vector<Note> notes_;
};

struct Graph {                                   // aclmdlRI
  explicit Graph(std::shared_ptr<GraphBody> b) : body(std::move(b)) {}
  const std::shared_ptr<GraphBody> body;
  std::string name;
  std::vector<std::pair<aclrtCallback, void*>> when_destroyed;
};
Handles<Graph>& graphs();
std::shared_ptr<GraphBody> new_graph_body();
Graph* captured_graph(aclrtStream stream, const char* function, int* code);  // that the stream is captured into

void drop_graph(Graph* graph);                   // with the graphs and handles of its conditional tasks

// The value that conditional tasks look at, in device memory (conditional.cpp).
struct Condition {
  Condition(uint64_t* at, uint32_t value, bool each_time) : device(at), initial(value), assigned(each_time) {}
  ~Condition();
  uint64_t value() const;
  void assign() const;                           // the initial value
  uint64_t* const device;
  const uint32_t initial;
  const bool assigned;                           // before each replay
};

size_t live_conditions();
void drop_conditions(const std::shared_ptr<GraphBody>& graph);  // the handles of its conditions

struct TaskGroup {                               // aclrtTaskGrp
  TaskGroup(std::shared_ptr<GraphBody> g, std::vector<size_t> n) : graph(std::move(g)), nodes(std::move(n)) {}
  const std::shared_ptr<GraphBody> graph;
  const std::vector<size_t> nodes;
};
Handles<TaskGroup>& task_groups();

}  // namespace cann_sim
