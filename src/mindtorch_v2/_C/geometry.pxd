# Sizes, strides and broadcasting in C++ (geometry.h), as Cython sees them.
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool

cdef extern from "geometry.h" namespace "mt::geometry" nogil:
    cdef struct Measure:
        int64_t count
        cbool contiguous, too_large
    void copy_dims(int64_t*, const int64_t*, int)
    Measure measure(int, const int64_t*, const int64_t*)
    void strides_for "mt::geometry::contiguous_strides"(int, const int64_t*, int64_t*)
    cbool has_plain_strides(int, const int64_t*, const int64_t*)
    cbool dense_strides "mt::geometry::is_dense"(int, const int64_t*, const int64_t*)
    cbool expanded_strides "mt::geometry::has_overlap"(int, const int64_t*, const int64_t*)
    cbool channels_last_order "mt::geometry::is_channels_last"(int, const int64_t*, const int64_t*, int)
    cbool suggests_channels_last(int, const int64_t*, const int64_t*)
    void channels_last_strides(int, const int64_t*, int64_t*)
    void pack_strides "mt::geometry::packed_strides"(int, const int64_t*, const int64_t*, int64_t*)
    void walked_strides(int, const int64_t*, int, const int64_t* const*, int64_t*)
    cbool strides_as "mt::geometry::view_strides"(int, int64_t, const int64_t*, const int64_t*, int, const int64_t*, int64_t*)
    int widen "mt::geometry::broadcast"(int, int64_t*, int, const int64_t*)
