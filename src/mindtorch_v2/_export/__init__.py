"""torch._export: what packages import of it; graphs of programs are made by torch.export."""
from mindtorch_v2._export import wrappers as wrappers
