"""Writes a checkpoint of a model and its optimizer from the npu and reads it again; PyTorch, where installed, reads it too."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import mindtorch_v2 as torch

THEIRS = """
import sys, torch
found = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
model = torch.nn.Linear(8, 4)
model.load_state_dict(found["model"])
optimizer = torch.optim.AdamW(model.parameters())
optimizer.load_state_dict(found["optimizer"])
model.weight.data.mul_(2)
torch.save({"model": model.state_dict()}, sys.argv[2])
print("PyTorch", torch.__version__, "read step", int(optimizer.state[model.weight]["step"]), "and wrote a model back")
"""


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 8, device="npu")).square().mean().backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.pt"), Path(folder, "theirs.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, ours)
        found = torch.load(ours, map_location="cpu")
        same = torch.equal(found["model"]["weight"], model.weight.detach().cpu())
        print(f"{ours.stat().st_size} bytes, read back the same: {same}")
        if find_spec("torch") is None:
            print("PyTorch is not installed: the exchange is left out")
            return
        subprocess.run([sys.executable, "-c", THEIRS, str(ours), str(theirs)], check=True)
        back = torch.load(theirs, map_location="npu")["model"]["weight"]
        print("what PyTorch wrote is here:", torch.equal(back, model.weight.detach() * 2), "on", back.device)


if __name__ == "__main__":
    main()
