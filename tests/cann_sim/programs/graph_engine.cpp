// The names of the graph engine that onnxruntime's CANN provider is linked to: strings as keys of options, and refusals.
#include "check.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace ge {
class AscendString {
 public:
  AscendString() = default;
  AscendString(const char* text);
  const char* GetString() const;
  bool operator<(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> name_;
};
class Graph {
 public:
  explicit Graph(const char* name);

 private:
  std::shared_ptr<void> impl_;
};
struct ModelBufferData;
uint32_t aclgrphBuildInitialize(std::map<AscendString, AscendString>& options);
uint32_t aclgrphParseONNXFromMem(const char* data, size_t size, const std::map<AscendString, AscendString>& options, Graph& graph);
uint32_t aclgrphBuildModel(const Graph& graph, const std::map<AscendString, AscendString>& options, ModelBufferData& model);
void aclgrphBuildFinalize();
}  // namespace ge

int main() {
  std::map<ge::AscendString, ge::AscendString> options;
  options["soc"] = "Ascend910B2";
  options["soc"] = "Ascend310P3";
  options[ge::AscendString()] = "";
  HOLDS(options.size() == 2 && !std::strcmp(options["soc"].GetString(), "Ascend310P3"));
  ge::Graph graph("net");
  HOLDS(ge::aclgrphBuildInitialize(options) != 0);
  const char* message = aclGetRecentErrMsg();
  HOLDS(message && std::strstr(message, "ge::aclgrphBuildInitialize"));
  HOLDS(ge::aclgrphParseONNXFromMem("", 0, options, graph) != 0);
  ge::aclgrphBuildFinalize();
  return 0;
}
