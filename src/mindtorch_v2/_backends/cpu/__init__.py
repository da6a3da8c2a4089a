"""The cpu backend; its kernels are the C++ library that _C loads."""
