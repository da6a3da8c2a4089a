"""The launcher, with torchrun's flags: python -m mindtorch_v2.distributed.run --nproc-per-node 2 train.py --lr 1."""
from __future__ import annotations

import argparse
import os
import socket
import sys
import uuid
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed._agent import Agent, ChildFailedError, LaunchConfig, SignalException


def get_args_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser("mindtorch-run", description="Starts the processes of a distributed program.")

    def flag(name: str, *more: str, **options: Any) -> None:
        parser.add_argument(name, name.replace("-", "_").replace("__", "--", 1), *more, **options)

    flag("--nnodes", default="1:1", help="number of hosts, or MIN:MAX")
    flag("--nproc-per-node", default="1", help="workers of this host: a number, auto, cpu or npu")
    flag("--rdzv-backend", default="static", help="static (with --node-rank), or c10d (ranks in the order of arrival)")
    flag("--rdzv-endpoint", default="", help="HOST[:PORT] of the store of all hosts")
    flag("--rdzv-id", default="none", help="the name of the job, the same on all hosts")
    flag("--rdzv-conf", default="", help="KEY=VALUE,…: join_timeout, is_host")
    flag("--standalone", action="store_true", help="one host, on a free port")
    flag("--max-restarts", type=int, default=0)
    flag("--monitor-interval", type=float, default=0.1)
    flag("--start-method", default="spawn", choices=["spawn", "fork", "forkserver"], help="kept for torchrun's callers")
    flag("--role", default="default")
    flag("--log-dir", default=None)
    flag("--redirects", "-r", default="0", help="0 nothing, 1 stdout, 2 stderr, 3 both, or RANK:BITS,…")
    flag("--tee", "-t", default="0", help="as --redirects, but shown too")
    flag("--local-ranks-filter", default="", help="local ranks whose output is shown: 0,1")
    flag("--node-rank", type=int, default=0)
    flag("--master-addr", default="127.0.0.1")
    flag("--master-port", type=int, default=29500)
    flag("--local-addr", default=None, help="kept for torchrun's callers")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    flag("--no-python", action="store_true", help="the program is no Python")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: list[str] | None) -> argparse.Namespace:
    return get_args_parser().parse_args(args)


def processes_per_node(text: str) -> int:
    """A number, or what stands for one."""
    if text.isdigit() and int(text) > 0:
        return int(text)
    if text in ("npu", "gpu") or (text == "auto" and torch.npu.is_available()):
        if not torch.npu.is_available():
            raise ValueError("npu is not available.")
        return torch.npu.device_count()
    if text in ("cpu", "auto"):
        return os.cpu_count() or 1
    raise ValueError(f"Unsupported nproc_per_node value: {text}")


def bits_of(text: str, nproc: int) -> dict[int, int]:
    """--redirects and --tee by local rank."""
    if ":" not in text:
        return dict.fromkeys(range(nproc), int(text))
    return {int(rank): int(bits) for rank, _, bits in (part.partition(":") for part in text.split(","))}


def config_from_args(args: argparse.Namespace) -> LaunchConfig:
    nproc = processes_per_node(args.nproc_per_node)
    smallest, _, largest = args.nnodes.partition(":")
    if largest and largest != smallest:
        print(f"mindtorch-run: the number of hosts does not change here: {largest} are waited for", file=sys.stderr)
    config = LaunchConfig(
        command=command_of(args), nproc=nproc, nnodes=int(largest or smallest), run_id=args.rdzv_id, role=args.role,
        max_restarts=args.max_restarts, monitor_interval=args.monitor_interval, log_dir=args.log_dir,
        redirects=bits_of(args.redirects, nproc), tee=bits_of(args.tee, nproc),
        shown={int(rank) for rank in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None)
    conf: dict[str, str] = dict(pair.split("=", 1) for pair in args.rdzv_conf.split(",") if pair)
    config.join_timeout = float(conf.get("join_timeout", conf.get("timeout", 600)))
    if args.standalone:
        config.host, config.port, config.nnodes, config.node_rank, config.run_id = "127.0.0.1", 0, 1, 0, str(uuid.uuid4())
    elif args.rdzv_backend == "static":
        config.host, config.port, config.node_rank = args.master_addr, args.master_port, args.node_rank
        if args.rdzv_endpoint:
            config.host, config.port = endpoint(args.rdzv_endpoint)
        config.serves = args.node_rank == 0
    elif args.rdzv_backend == "c10d":
        config.host, config.port = endpoint(args.rdzv_endpoint)
        config.serves = conf.get("is_host", str(is_this_host(config.host))).lower() in ("1", "true", "yes")
    else:
        raise ValueError(f"--rdzv-backend: expected static or c10d, got {args.rdzv_backend}")
    return config


def endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "29400")
    return host or "127.0.0.1", int(port or 29400)


def is_this_host(name: str) -> bool:
    """Whether a name is one of this host's."""
    if name in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        theirs = {item[4][0] for item in socket.getaddrinfo(name, None)}
        ours = {item[4][0] for item in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:                               # a name that does not resolve is another host's
        return False
    return bool(theirs & ours)


def command_of(args: argparse.Namespace) -> list[str]:
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return [args.training_script, *args.training_script_args]
    return [sys.executable, "-u", *(["-m"] if args.module else []), args.training_script, *args.training_script_args]


def run(args: argparse.Namespace) -> None:
    Agent(config_from_args(args)).run()


def main(args: list[str] | None = None) -> None:
    """The console script."""
    try:
        run(parse_args(args))
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except SignalException as came:
        sys.exit(128 + came.number)


determine_local_world_size = _names.refusal("run.determine_local_world_size")
get_rdzv_endpoint = _names.refusal("run.get_rdzv_endpoint")
get_use_env = _names.refusal("run.get_use_env")
parse_min_max_nnodes = _names.refusal("run.parse_min_max_nnodes")
run_script_path = _names.refusal("run.run_script_path")
if __name__ == "__main__":
    main()
