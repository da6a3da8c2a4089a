/* Ops by type, by handle and casts as CANN's operator samples call them, and the data sets that clients make for models. */
#include "check.h"

#define COUNT 6

typedef struct {
  aclTensorDesc* desc;
  aclDataBuffer* buffer;
  void* memory;
} Operand;

static Operand operand(aclDataType type, const void* values) {
  const int64_t dims[2] = {2, 3};
  const size_t bytes = COUNT * aclDataTypeSize(type);
  Operand made;
  made.desc = aclCreateTensorDesc(type, 2, dims, ACL_FORMAT_ND);
  CHECK(aclrtMalloc(&made.memory, bytes, ACL_MEM_MALLOC_NORMAL_ONLY));
  if (values) CHECK(aclrtMemcpy(made.memory, bytes, values, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
  made.buffer = aclCreateDataBuffer(made.memory, bytes);
  HOLDS(made.desc && made.buffer);
  return made;
}

static void release(Operand* o) {
  aclDestroyTensorDesc(o->desc);
  CHECK(aclDestroyDataBuffer(o->buffer));
  CHECK(aclrtFree(o->memory));
}

static void expect(const Operand* o, float first, float last, aclrtStream stream) {
  float found[COUNT];
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(found, sizeof found, o->memory, sizeof found, ACL_MEMCPY_DEVICE_TO_HOST));
  HOLDS(found[0] == first && found[COUNT - 1] == last);
}

static void ops(aclrtStream stream) {
  const float values[COUNT] = {1, 2, 3, 4, 5, 6};
  const int32_t whole[COUNT] = {7, 0, 0, 0, 0, -9};
  Operand x = operand(ACL_FLOAT, values), y = operand(ACL_FLOAT, values), z = operand(ACL_FLOAT, NULL),
          numbers = operand(ACL_INT32, whole);
  const aclTensorDesc* in[2];
  const aclTensorDesc* out[1];
  const aclDataBuffer* from[2];
  aclDataBuffer* to[1];
  aclopHandle *handle = NULL, *cast = NULL;
  in[0] = x.desc, in[1] = y.desc, out[0] = z.desc;
  from[0] = x.buffer, from[1] = y.buffer, to[0] = z.buffer;
  CHECK(aclopSetModelDir("op_models"));
  CHECK(aclopExecute("Add", 2, in, from, 1, out, to, NULL, stream));
  expect(&z, 2, 12, stream);
  CHECK(aclopCreateHandle("Mul", 2, in, 1, out, NULL, &handle));
  CHECK(aclopExecWithHandle(handle, 2, from, 1, to, stream));
  expect(&z, 1, 36, stream);
  HOLDS(aclopExecWithHandle(handle, 1, from, 1, to, stream) != 0);
  HOLDS(aclopExecute("NoSuchOp", 2, in, from, 1, out, to, NULL, stream) != 0);
  CHECK(aclopExecuteV2("Sub", 2, (aclTensorDesc**)in, (aclDataBuffer**)from, 1, (aclTensorDesc**)out, to, NULL, stream));
  expect(&z, 0, 0, stream);
  CHECK(aclopCast(numbers.desc, numbers.buffer, z.desc, z.buffer, 0, stream));
  expect(&z, 7, -9, stream);
  CHECK(aclopCreateHandleForCast(numbers.desc, z.desc, 0, &cast));
  from[0] = numbers.buffer;
  CHECK(aclopExecWithHandle(cast, 1, from, 1, to, stream));
  expect(&z, 7, -9, stream);
  aclopDestroyHandle(handle);
  aclopDestroyHandle(cast);
  HOLDS(aclopExecWithHandle(cast, 1, from, 1, to, stream) != 0);
  release(&x), release(&y), release(&z), release(&numbers);
}

static void data_sets(void) {
  Operand x = operand(ACL_FLOAT, NULL);
  aclmdlDataset* set = aclmdlCreateDataset();
  aclmdlDesc* model = aclmdlCreateDesc();
  uint32_t number = 0;
  HOLDS(set && model && aclmdlGetDatasetNumBuffers(set) == 0);
  CHECK(aclmdlAddDatasetBuffer(set, x.buffer));
  HOLDS(aclmdlGetDatasetNumBuffers(set) == 1 && aclmdlGetDatasetBuffer(set, 0) == x.buffer);
  HOLDS(!aclmdlGetDatasetBuffer(set, 1) && !aclmdlGetDatasetTensorDesc(set, 0));
  CHECK(aclmdlSetDatasetTensorDesc(set, x.desc, 0));
  HOLDS(aclGetTensorDescNumDims(aclmdlGetDatasetTensorDesc(set, 0)) == 2);
  HOLDS(aclmdlSetDatasetTensorDesc(set, x.desc, 1) != 0);
  HOLDS(aclmdlLoadFromFile("model.om", &number) != 0 && aclmdlGetDesc(model, number) != 0);
  CHECK(aclmdlDestroyDataset(set));
  HOLDS(aclmdlDestroyDataset(set) != 0);
  CHECK(aclmdlDestroyDesc(model));
  release(&x);
}

int main(void) {
  aclrtStream stream = NULL;
  CHECK(aclInit(NULL));
  CHECK(aclrtSetDevice(0));
  CHECK(aclrtCreateStream(&stream));
  ops(stream);
  data_sets();
  CHECK(aclrtDestroyStream(stream));
  CHECK(aclrtResetDevice(0));
  CHECK(aclFinalize());
  return 0;
}
