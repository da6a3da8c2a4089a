# cython: language_level=3
"""Has the kernel end a child process together with its parent."""
import os


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, unsigned long value)
    int PR_SET_PDEATHSIG


def die_with_parent(int signal_number, int parent) -> None:
    """The kernel sends a signal when the parent ends, however it ends: no worker stays behind. Survives exec."""
    prctl(PR_SET_PDEATHSIG, <unsigned long>signal_number)
    if os.getppid() != parent:                    # it ended before the call
        os._exit(1)
