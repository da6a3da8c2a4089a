/* What the programs share: a call that must succeed, and a condition that must hold; either ends the program with 1. */
#ifndef CHECK_H
#define CHECK_H
#include <acl/acl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                    \
  do {                                                                                                 \
    const int code_ = (int)(call);                                                                     \
    if (code_) {                                                                                       \
      const char* message_ = aclGetRecentErrMsg();                                                     \
      fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call, code_, message_ ? message_ : ""); \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)
#define HOLDS(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);  \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
#endif
