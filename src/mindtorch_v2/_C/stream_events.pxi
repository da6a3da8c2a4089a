# Events of streams: CANN's calls by their addresses, and events that are kept for their next use.

cdef enum:
    MAX_DEVICES = 16                             # as in npu_memory.pxi

cdef extern from *:
    """
    // What one collective is to CANN: an order between two streams, the call, an event behind it. Returns which of the four
    // steps failed, 0: none. All parameters of HCCL's functions are integers or pointers, which both ABIs that CANN has
    // (x86-64 System V, AArch64) pass in one 8-byte slot each; what a function does not take is not read.
    struct CollectiveApi {
      int32_t (*record_event)(void*, void*) = nullptr;
      int32_t (*wait_event)(void*, void*) = nullptr;
      int32_t (*query_event)(void*, int32_t*) = nullptr;
    };
    static CollectiveApi collective_api;
    using CollectiveFunction = int32_t (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                           uint64_t, uint64_t);
    enum CollectiveStep { kNoStep, kRecordBefore, kWaitBefore, kCollective, kRecordBehind };
    static inline void* as_handle(uint64_t number) { return reinterpret_cast<void*>(number); }
    static inline int order_streams(uint64_t event, uint64_t first, uint64_t then, int32_t* code) {
      if ((*code = collective_api.record_event(as_handle(event), as_handle(first)))) return kRecordBefore;
      if ((*code = collective_api.wait_event(as_handle(then), as_handle(event)))) return kWaitBefore;
      return kNoStep;
    }
    static inline int run_collective(uint64_t function, const uint64_t* a, int32_t* code) {
      auto call = reinterpret_cast<CollectiveFunction>(function);
      *code = call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
      return *code ? kCollective : kNoStep;
    }
    static inline int record_behind(uint64_t event, uint64_t stream, int32_t* code) {
      return (*code = collective_api.record_event(as_handle(event), as_handle(stream))) ? kRecordBehind : kNoStep;
    }
    static inline void set_collective_api(uint64_t record, uint64_t wait, uint64_t query) {
      collective_api.record_event = reinterpret_cast<int32_t (*)(void*, void*)>(record);
      collective_api.wait_event = reinterpret_cast<int32_t (*)(void*, void*)>(wait);
      collective_api.query_event = reinterpret_cast<int32_t (*)(void*, int32_t*)>(query);
    }
    static inline int32_t wait_for_event(uint64_t stream, uint64_t event) {
      return collective_api.wait_event(as_handle(stream), as_handle(event));
    }
    static inline int32_t query_event(uint64_t event, int32_t* status) {
      return collective_api.query_event(as_handle(event), status);
    }
    """
    enum:
        kRecordBefore, kWaitBefore, kCollective, kRecordBehind
    void set_collective_api(uint64_t, uint64_t, uint64_t)
    int order_streams(uint64_t, uint64_t, uint64_t, int32_t*) nogil
    int run_collective(uint64_t, const uint64_t*, int32_t*) nogil
    int record_behind(uint64_t, uint64_t, int32_t*) nogil
    int32_t wait_for_event(uint64_t, uint64_t)
    int32_t query_event(uint64_t, int32_t*)

cdef tuple STEPS = ("", "aclrtRecordEvent", "aclrtStreamWaitEvent", "", "aclrtRecordEvent")
cdef enum:
    EVENT_COMPLETE = 1                           # ACL_EVENT_RECORDED_STATUS_COMPLETE

cdef vector[uint64_t] spare_events[MAX_DEVICES]
cdef uint64_t spare_events_start[MAX_DEVICES]    # the start of the device that they are of: events end with it
cdef object make_event = None                    # callable(device): an event that streams can wait for
cdef dict collective_functions = {}              # addresses by name
cdef object find_function = None                 # callable(name): an address


def _hccl_bind(size_t record, size_t wait, size_t query, events, functions) -> None:
    """Fills in CANN's functions: those of events by their addresses; callables that make events and find HCCL's functions."""
    global make_event, find_function
    set_collective_api(record, wait, query)
    make_event, find_function = events, functions
    collective_functions.clear()


cdef uint64_t take_event(int device) except? 0:
    """An event of a device whose context the calling thread has."""
    cdef uint64_t event
    if spare_events_start[device] != start_of(device):
        spare_events[device].clear()
        spare_events_start[device] = start_of(device)
    if spare_events[device].empty():
        return make_event(device)
    event = spare_events[device].back()
    spare_events[device].pop_back()
    return event


cdef int give_event(int device, uint64_t start, uint64_t event) except -1:
    """Keeps an event for the next user. Makes no call: it runs wherever a record is dropped."""
    if start == start_of(device) and start == spare_events_start[device]:
        spare_events[device].push_back(event)
    return 0


cdef uint64_t collective_function(str name) except 0:
    cdef PyObject* found = PyDict_GetItemWithError(collective_functions, name)
    if found == NULL:
        collective_functions[name] = find_function(name)
        return collective_functions[name]
    return <object>found
