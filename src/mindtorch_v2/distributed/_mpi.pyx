# cython: language_level=3
"""MPI as the cpu's engine calls it: a library opened at run time, communicators, and requests that can be waited for."""
from libc.stdint cimport int64_t, intptr_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from "mpi_engine.h" namespace "mt_mpi" nogil:
    ctypedef void* Handle
    ctypedef int64_t Count
    ctypedef void UserFunction(void*, void*, Count*, Handle*)
    Handle constant(intptr_t)
    Handle kWorld, kErrorsReturn, kByte
    int kSerialized

    cdef cppclass Lock "std::mutex":
        void lock()
        void unlock()

    cdef cppclass Mpi:
        Lock lock
        string open(const char*)
        string text(int)
        int Init_thread(int*, char***, int, int*)
        int Initialized(int*)
        int Finalized(int*)
        int Finalize()
        int Comm_rank(Handle, int*)
        int Comm_size(Handle, int*)
        int Comm_dup(Handle, Handle*)
        int Comm_free(Handle*)
        int Comm_group(Handle, Handle*)
        int Comm_create_group(Handle, Handle, int, Handle*)
        int Comm_set_errhandler(Handle, Handle)
        int Group_incl(Handle, int, const int*, Handle*)
        int Group_free(Handle*)
        int Op_create_c(UserFunction*, int, Handle*)
        int Ibarrier(Handle, Handle*)
        int Iallreduce_c(const void*, void*, Count, Handle, Handle, Handle, Handle*)
        int Ireduce_c(const void*, void*, Count, Handle, Handle, int, Handle, Handle*)
        int Ireduce_scatter_block_c(const void*, void*, Count, Handle, Handle, Handle, Handle*)
        int Ibcast_c(void*, Count, Handle, int, Handle, Handle*)
        int Iallgather_c(const void*, Count, Handle, void*, Count, Handle, Handle, Handle*)
        int Igather_c(const void*, Count, Handle, void*, Count, Handle, int, Handle, Handle*)
        int Iscatter_c(const void*, Count, Handle, void*, Count, Handle, int, Handle, Handle*)
        int Ialltoallv_c(const void*, const Count*, const intptr_t*, Handle, void*, const Count*, const intptr_t*, Handle,
                         Handle, Handle*)
        int Isend_c(const void*, Count, Handle, int, int, Handle, Handle*)
        int Irecv_c(void*, Count, Handle, int, int, Handle, Handle*)

    Mpi& mpi()

    cdef cppclass Pending:
        Handle request
        int error
        int status[8]
        vector[Count] counts
        vector[intptr_t] offsets
        cbool test()

    cbool wait_any "mt_mpi::wait_any"(const vector[Pending*]&, double, int)
    UserFunction* half_function(cbool, int)


class MpiError(RuntimeError):
    """What MPI said."""


cdef int checked(int code, str what) except -1:
    if code:
        raise MpiError(f"{what}: {mpi().text(code).decode()}")
    return 0


def open_library(path: str) -> None:
    """Opens the MPI library; its functions are MPI 4's, by the standard ABI of MPI 5."""
    cdef string missing = mpi().open(path.encode())
    if missing.size():
        raise ImportError(missing.decode())


def init() -> None:
    """MPI_Init_thread, which connects to the process manager that the environment names; nothing if that was done."""
    cdef int there = 0, given = 0, code
    checked(mpi().Initialized(&there), "MPI_Initialized")
    if there:
        return
    with nogil:
        code = mpi().Init_thread(NULL, NULL, kSerialized, &given)
    checked(code, "MPI_Init_thread")
    if given < kSerialized:
        raise MpiError("[MPI_Init_thread] expected a library for threads (MPI_THREAD_SERIALIZED), got a lower level")
    checked(mpi().Comm_set_errhandler(kWorld, kErrorsReturn), "MPI_Comm_set_errhandler")


def finalize() -> None:
    """MPI_Finalize; every rank must call it."""
    cdef int code
    with nogil:
        code = mpi().Finalize()
    checked(code, "MPI_Finalize")


def is_finalized() -> bool:
    """Whether MPI has ended in this process; it cannot be started again."""
    cdef int flag = 0
    checked(mpi().Finalized(&flag), "MPI_Finalized")
    return flag != 0


def make_half_op(bfloat: bool, op: int) -> int:
    """An MPI operation on 16-bit floats that travel as uint16; op: sum, product, minimum, maximum."""
    cdef Handle made = NULL
    checked(mpi().Op_create_c(half_function(bfloat, op), 1, &made), "MPI_Op_create")
    return <uintptr_t>made


cdef class Request:
    """One started operation."""
    cdef Pending* pending

    def __cinit__(self) -> None:
        self.pending = new Pending()

    def __dealloc__(self):
        # One that is not done is MPI's still: it is left to it.
        if self.pending.test():
            del self.pending

    def test(self) -> bool:
        """Whether it is done; raises MPI's error."""
        cdef cbool done
        with nogil:
            done = self.pending.test()
        if done:
            checked(self.pending.error, "MPI_Test")
        return done

    @property
    def source(self) -> int:
        """The rank that sent what was received."""
        return self.pending.status[0]

    def wait(self, seconds: float) -> bool:
        """Waits; False when the time is over."""
        cdef vector[Pending*] all
        cdef double limit = seconds
        cdef cbool done
        all.push_back(self.pending)
        with nogil:
            done = wait_any(all, limit, 10)
        if done:
            checked(self.pending.error, "MPI_Wait")
        return done


def wait_for_any(list requests, seconds: float) -> bool:
    """Waits for one of them; False when the time is over."""
    cdef vector[Pending*] all
    cdef double limit = seconds
    cdef cbool done
    cdef Request one
    for one in requests:
        all.push_back(one.pending)
    with nogil:
        done = wait_any(all, limit, 50)           # no caller waits for it: leave the cpu to those that compute
    return done


cdef class Communicator:
    """A group of ranks with a context of its own. Addresses, byte counts, data types and operations are ints."""
    cdef Handle handle
    cdef readonly int rank, size

    @staticmethod
    def world() -> Communicator:
        """A copy of MPI_COMM_WORLD."""
        cdef Handle made = NULL
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Comm_dup(kWorld, &made)
            mpi().lock.unlock()
        checked(code, "MPI_Comm_dup")
        return Communicator._of(made)

    @staticmethod
    cdef Communicator _of(Handle handle):
        cdef Communicator made = Communicator.__new__(Communicator)
        made.handle = handle
        checked(mpi().Comm_set_errhandler(handle, kErrorsReturn), "MPI_Comm_set_errhandler")
        checked(mpi().Comm_rank(handle, &made.rank), "MPI_Comm_rank")
        checked(mpi().Comm_size(handle, &made.size), "MPI_Comm_size")
        return made

    @staticmethod
    def of_ranks(ranks: list[int], tag: int) -> Communicator:
        """A group of ranks of the world, in this order. Only they call, all with the same tag."""
        cdef vector[int] members = ranks
        cdef Handle world = NULL, group = NULL, made = NULL
        cdef int code, number = tag
        checked(mpi().Comm_group(kWorld, &world), "MPI_Comm_group")
        code = mpi().Group_incl(world, <int>members.size(), members.data(), &group)
        if code == 0:
            with nogil:
                mpi().lock.lock()
                code = mpi().Comm_create_group(kWorld, group, number, &made)
                mpi().lock.unlock()
            mpi().Group_free(&group)
        mpi().Group_free(&world)
        checked(code, "MPI_Comm_create_group")
        return Communicator._of(made)

    def free(self) -> None:
        """Gives it back; all its ranks must."""
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Comm_free(&self.handle)
            mpi().lock.unlock()
        checked(code, "MPI_Comm_free")

    def barrier(self) -> Request:
        cdef Request r = Request()
        mpi().lock.lock()
        cdef int code = mpi().Ibarrier(self.handle, &r.pending.request)
        mpi().lock.unlock()
        return started(r, code, "MPI_Ibarrier")

    def all_reduce(self, uintptr_t data, Count count, intptr_t dtype, intptr_t op) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Iallreduce_c(constant(1), <void*>data, count, constant(dtype), constant(op), self.handle,
                                      &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Iallreduce")

    def reduce(self, uintptr_t data, Count count, intptr_t dtype, intptr_t op, int root) -> Request:
        cdef Request r = Request()
        cdef const void* send = constant(1) if self.rank == root else <void*>data
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Ireduce_c(send, <void*>data, count, constant(dtype), constant(op), root, self.handle,
                                   &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Ireduce")

    def reduce_scatter(self, uintptr_t send, uintptr_t recv, Count count, intptr_t dtype, intptr_t op) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Ireduce_scatter_block_c(<void*>send, <void*>recv, count, constant(dtype), constant(op), self.handle,
                                                 &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Ireduce_scatter_block")

    def broadcast(self, uintptr_t data, Count bytes_, int root) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Ibcast_c(<void*>data, bytes_, kByte, root, self.handle, &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Ibcast")

    def all_gather(self, uintptr_t send, uintptr_t recv, Count bytes_) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Iallgather_c(<void*>send, bytes_, kByte, <void*>recv, bytes_, kByte, self.handle,
                                      &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Iallgather")

    def gather(self, uintptr_t send, uintptr_t recv, Count bytes_, int root) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Igather_c(<void*>send, bytes_, kByte, <void*>recv, bytes_, kByte, root, self.handle,
                                   &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Igather")

    def scatter(self, uintptr_t send, uintptr_t recv, Count bytes_, int root) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Iscatter_c(<void*>send, bytes_, kByte, <void*>recv, bytes_, kByte, root, self.handle,
                                    &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Iscatter")

    def all_to_all(self, uintptr_t send, list send_bytes, uintptr_t recv, list recv_bytes) -> Request:
        cdef Request r = Request()
        cdef int code, n = self.size, i
        cdef intptr_t at
        for counts in (send_bytes, recv_bytes):
            at = 0
            for i in range(n):
                r.pending.counts.push_back(counts[i])
                r.pending.offsets.push_back(at)
                at += <intptr_t>counts[i]
        with nogil:
            mpi().lock.lock()
            code = mpi().Ialltoallv_c(<void*>send, r.pending.counts.data(), r.pending.offsets.data(), kByte, <void*>recv,
                                      r.pending.counts.data() + n, r.pending.offsets.data() + n, kByte, self.handle,
                                      &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Ialltoallv")

    def send(self, uintptr_t data, Count bytes_, int to, int tag) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Isend_c(<void*>data, bytes_, kByte, to, tag, self.handle, &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Isend")

    def recv(self, uintptr_t data, Count bytes_, int source, int tag) -> Request:
        cdef Request r = Request()
        cdef int code
        with nogil:
            mpi().lock.lock()
            code = mpi().Irecv_c(<void*>data, bytes_, kByte, source, tag, self.handle, &r.pending.request)
            mpi().lock.unlock()
        return started(r, code, "MPI_Irecv")


cdef Request started(Request request, int code, str what):
    checked(code, what)
    return request
