// libatb.so: the names of the Ascend Transformer Boost library that torch_npu's plugin needs to be loaded. Each refuses.
#include "runtime/runtime.h"

#define ATB_EXPORT __attribute__((visibility("default")))

namespace atb {

struct Context;
struct Tensor;
class Operation;
namespace infer {
struct LinearParam;
struct ElewiseParam;
struct RmsNormParam;
struct GroupTopkParam;
struct SelfAttentionParam;
struct PagedAttentionParam;
struct ReshapeAndCacheParam;
struct RopeParam;
}  // namespace infer

ATB_EXPORT int CreateContext(Context** context) {
  if (context) *context = nullptr;
  return cann_sim::refuse_function("atb::CreateContext");
}
ATB_EXPORT int DestroyContext(Context*) { return cann_sim::refuse_function("atb::DestroyContext"); }
ATB_EXPORT int DestroyOperation(Operation*) { return cann_sim::refuse_function("atb::DestroyOperation"); }

class ATB_EXPORT Utils {
 public:
  static uint64_t GetTensorSize(const Tensor&);
};
uint64_t Utils::GetTensorSize(const Tensor&) {
  cann_sim::refuse_function("atb::Utils::GetTensorSize");
  return 0;
}

template <class Param> const char* name_of();
template <class Param> ATB_EXPORT int CreateOperation(const Param&, Operation** operation) {
  if (operation) *operation = nullptr;
  return cann_sim::refuse_function(name_of<Param>());
}
#define ATB_OPERATION(Param)                                                                         \
  template <> const char* name_of<infer::Param>() { return "atb::CreateOperation<atb::infer::" #Param ">"; } \
  template ATB_EXPORT int CreateOperation<infer::Param>(const infer::Param&, Operation**);
ATB_OPERATION(LinearParam)
ATB_OPERATION(ElewiseParam)
ATB_OPERATION(RmsNormParam)
ATB_OPERATION(GroupTopkParam)
ATB_OPERATION(SelfAttentionParam)
ATB_OPERATION(PagedAttentionParam)
ATB_OPERATION(ReshapeAndCacheParam)
ATB_OPERATION(RopeParam)

}  // namespace atb
