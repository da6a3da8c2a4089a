"""The commands of `python -m mindtorch_v2` that are about this installation, and those that make pages of recordings."""
from mindtorch_v2._commands import info as info
from mindtorch_v2._commands import memory as memory
from mindtorch_v2._commands import selftest as selftest
from mindtorch_v2._commands import trace as trace
