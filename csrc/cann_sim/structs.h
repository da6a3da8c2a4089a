// The C structs of CANN that the simulator reads or fills; sizes and offsets are those of the ABI, checked here.
#pragma once
#include "acl_abi.h"

struct aclrtMemLocation { uint32_t id; aclrtMemLocationType type; };
struct aclrtMallocAttribute { aclrtMallocAttrType attr; uint32_t value[2]; };
struct aclrtMallocConfig { aclrtMallocAttribute* attrs; size_t numAttrs; };
struct aclrtPtrAttributes { aclrtMemLocation location; uint32_t pageSize; uint32_t rsv[4]; };
struct aclrtPhysicalMemProp {
  aclrtMemHandleType handleType;
  aclrtMemAllocationType allocationType;
  aclrtMemAttr memAttr;
  aclrtMemLocation location;
  uint64_t reserve;
};
struct aclrtUtilizationInfo {
  int32_t cubeUtilization, vectorUtilization, aicpuUtilization, memoryUtilization;
  void* utilizationExtend;
};
struct aclCANNPackageVersion {
  char version[128], majorVersion[64], minorVersion[64], releaseVersion[64], patchVersion[64], reserved[128];
};
struct aclrtMemUceInfo { void* addr; size_t len; size_t reserved[14]; };
struct aclrtStreamConfigHandle { void* workptr; size_t workSize, flag; uint32_t priority; };
struct aclrtMemUsageInfo { char name[32]; uint64_t curMemSize, memPeakSize; size_t reserved[8]; };
struct aclrtErrorInfo { uint8_t tryRepair, hasDetail, reserved[2]; aclrtErrorType errorType; uint64_t detail[321]; };
struct aclrtUuid { char bytes[16]; };
struct aclrtStreamAttrValue { uint64_t value, reserve; };
struct aclrtMemcpyBatchAttr { aclrtMemLocation dstLoc, srcLoc; uint8_t rsv[16]; };
struct aclrtIpcEventHandle { char reserved[64]; };
struct HcclConfigValue { int32_t value; };
struct HcclRootInfo { char internal[4108]; };
struct HcclCommConfig {
  char reserved[24];
  uint32_t hcclBufferSize, hcclDeterministic;
  char hcclCommName[128], hcclUdi[128];
  uint32_t hcclOpExpansionMode, hcclRdmaTrafficClass, hcclRdmaServiceLevel;
};
struct HcclSendRecvItem {
  HcclSendRecvType sendRecvType;
  void* buf;
  uint64_t count;
  HcclDataType dataType;
  uint32_t remoteRank;
};

static_assert(sizeof(aclrtMemLocation) == 8 && sizeof(aclrtPtrAttributes) == 28, "ABI");
static_assert(sizeof(aclrtMallocAttribute) == 12 && sizeof(aclrtMallocConfig) == 16, "ABI");
static_assert(sizeof(aclrtPhysicalMemProp) == 32 && offsetof(aclrtPhysicalMemProp, reserve) == 24, "ABI");
static_assert(sizeof(aclrtUtilizationInfo) == 24 && sizeof(aclCANNPackageVersion) == 512, "ABI");
static_assert(sizeof(aclrtMemUceInfo) == 128 && sizeof(aclrtStreamConfigHandle) == 32, "ABI");
static_assert(sizeof(aclrtMemUsageInfo) == 112 && sizeof(aclrtErrorInfo) == 2576 && sizeof(aclrtUuid) == 16, "ABI");
static_assert(sizeof(aclrtStreamAttrValue) == 16 && sizeof(aclrtMemcpyBatchAttr) == 32, "ABI");
static_assert(sizeof(HcclRootInfo) == 4108 && sizeof(HcclCommConfig) == 300 && sizeof(HcclSendRecvItem) == 32, "ABI");
