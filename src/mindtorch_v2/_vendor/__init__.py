"""torch._vendor: other packages' code under torch's name; here only how versions compare."""
