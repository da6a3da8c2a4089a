"""The commands of `python -m mindtorch_v2` that are about this installation."""
from mindtorch_v2._commands import info as info
from mindtorch_v2._commands import selftest as selftest
