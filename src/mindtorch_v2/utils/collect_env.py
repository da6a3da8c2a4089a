"""What to say about a machine in a report: `python -m mindtorch_v2.utils.collect_env`."""
from __future__ import annotations

import importlib.metadata
import platform
import sys

import mindtorch_v2 as torch


def get_env_info() -> dict[str, str]:
    """Facts by name."""
    installed = {found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}
    return {"mindtorch_v2 version": installed.get("mindtorch_v2", "unknown"), "PyTorch API": str(torch.__version__),
            "OS": platform.platform(), "Python": sys.version.replace("\n", ""), "CPU": platform.machine(),
            "npus": str(torch.npu.device_count()), "numpy": installed.get("numpy", "none")}


def get_pretty_env_info() -> str:
    """The same as lines of text."""
    return "\n".join(f"{name}: {value}" for name, value in get_env_info().items())


def main() -> None:
    """Print it."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
