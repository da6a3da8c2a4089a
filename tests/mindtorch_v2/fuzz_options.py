"""The command line options that all fuzzers share; `make fuzz` gives them."""
from __future__ import annotations

import argparse


def parser(doc: str | None, executions: int) -> argparse.ArgumentParser:
    """A parser with the seed, the number of executions and of processes; the first line of doc describes the program."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--executions", type=int, default=executions)
    made.add_argument("--jobs", type=int, default=1, help="processes at a time")
    return made
