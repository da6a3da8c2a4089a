// libgraph.so and the libraries of the graph engine (GE): what onnxruntime's CANN provider needs to be loaded. Strings work,
// building and parsing graphs refuse.
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "runtime/runtime.h"

#define GE_EXPORT __attribute__((visibility("default")))

namespace ge {

struct ModelBufferData;
using Status = uint32_t;
constexpr Status kFailed = 0xffffffff;  // GRAPH_FAILED

// Clients copy and destroy strings and graphs inline: both hold one shared pointer and nothing else.
class GE_EXPORT AscendString {
 public:
  AscendString(const char* text);
  const char* GetString() const;
  size_t GetLength() const;
  bool operator<(const AscendString& other) const;
  bool operator>(const AscendString& other) const;
  bool operator<=(const AscendString& other) const;
  bool operator>=(const AscendString& other) const;
  bool operator==(const AscendString& other) const;
  bool operator!=(const AscendString& other) const;

 private:
  int compare(const AscendString& other) const { return std::strcmp(GetString(), other.GetString()); }
  std::shared_ptr<std::string> name_;
};

AscendString::AscendString(const char* text) {
  if (text) name_ = std::make_shared<std::string>(text);
}
const char* AscendString::GetString() const { return name_ ? name_->c_str() : ""; }
size_t AscendString::GetLength() const { return name_ ? name_->size() : 0; }
bool AscendString::operator<(const AscendString& other) const { return compare(other) < 0; }
bool AscendString::operator>(const AscendString& other) const { return compare(other) > 0; }
bool AscendString::operator<=(const AscendString& other) const { return compare(other) <= 0; }
bool AscendString::operator>=(const AscendString& other) const { return compare(other) >= 0; }
bool AscendString::operator==(const AscendString& other) const { return compare(other) == 0; }
bool AscendString::operator!=(const AscendString& other) const { return compare(other) != 0; }

class GE_EXPORT Graph {
 public:
  explicit Graph(const char* name);

 private:
  std::shared_ptr<void> impl_;
};
Graph::Graph(const char*) {}

using Options = std::map<AscendString, AscendString>;

namespace {

Status refuse(const char* function) {
  cann_sim::refuse_function(function);
  return kFailed;
}

}  // namespace

GE_EXPORT Status aclgrphBuildInitialize(Options&) { return refuse("ge::aclgrphBuildInitialize"); }
GE_EXPORT Status aclgrphBuildModel(const Graph&, const Options&, ModelBufferData&) {
  return refuse("ge::aclgrphBuildModel");
}
GE_EXPORT Status aclgrphSaveModel(const char*, const ModelBufferData&) { return refuse("ge::aclgrphSaveModel"); }
GE_EXPORT void aclgrphBuildFinalize() {}
GE_EXPORT Status aclgrphParseONNXFromMem(const char*, size_t, const Options&, Graph&) {
  return refuse("ge::aclgrphParseONNXFromMem");
}
GE_EXPORT Status aclgrphParseONNX(const char*, const Options&, Graph&) { return refuse("ge::aclgrphParseONNX"); }

}  // namespace ge
