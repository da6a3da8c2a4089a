// Capture into graphs.
#include "runtime/stream.h"
namespace cann_sim {
struct CapturePoint {};
bool any_capture() { return false; }
bool capture_task(Stream&, Task*, int*) { return false; }
bool capture_record(Stream&, Event&, int*) { return false; }
bool capture_wait(Stream&, Event&, int*) { return false; }
int refuse_captured_event(Event&, const char*) { return 0; }
int refuse_pageable_copy(aclrtStream, const char*) { return 0; }
int refuse_captured_stream(Stream&, const char*) { return 0; }
int refuse_unsafe_call(const char*) { return 0; }
void unsubscribe_stream(StreamHandle*) {}
void report_exception(const Stream&, int) {}
void drop_virtual_memory(Device&) {}
}
