// The tables behind find() and find_pointwise(): names to kernels, filled at static initialisation.
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "library.h"

namespace mt {
namespace {

// Function-local, so that they exist before the first Register of any translation unit.
struct Entry {
  Kernel kernel;
  int32_t rare;
};
std::unordered_map<std::string_view, Entry>& kernels() {
  static std::unordered_map<std::string_view, Entry> table;
  return table;
}
std::unordered_map<std::string_view, Pointwise>& pointwise_kernels() {
  static std::unordered_map<std::string_view, Pointwise> table;
  return table;
}

}  // namespace

Register::Register(const char* name, Kernel kernel) {
  if (!kernels().emplace(name, Entry{kernel, 0}).second) throw std::logic_error(std::string("kernel registered twice: ") + name);
}
RegisterPointwise::RegisterPointwise(const Pointwise& k) {
  if (!pointwise_kernels().emplace(k.name, k).second)
    throw std::logic_error(std::string("pointwise kernel registered twice: ") + k.name);
}

Serves::Serves(int32_t rare, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto it = pointwise_kernels().find(name);
    if (it != pointwise_kernels().end()) it->second.rare |= rare;
    else kernels().at(name).rare |= rare;
  }
}

Kernel find(const char* name) {
  auto it = kernels().find(name);
  return it == kernels().end() ? nullptr : it->second.kernel;
}
int32_t rare_dtypes(const char* name) {
  auto it = kernels().find(name);
  return it == kernels().end() ? 0 : it->second.rare;
}
const Pointwise* find_pointwise(const char* name) {
  auto it = pointwise_kernels().find(name);
  return it == pointwise_kernels().end() ? nullptr : &it->second;
}

}  // namespace mt
