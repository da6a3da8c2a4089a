"""torch.utils.throughput_benchmark: how many calls of a module several threads finish in a second."""
from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any, NamedTuple


def format_time(time_us: float | None = None, time_ms: float | None = None, time_s: float | None = None) -> str:
    """One of the three as text, in a unit that suits it."""
    if sum(x is not None for x in (time_us, time_ms, time_s)) != 1:
        raise AssertionError("expected exactly one of time_us, time_ms and time_s")
    us: float = time_us if time_us is not None else time_ms * 1e3 if time_ms is not None else time_s * 1e6      # type: ignore[operator]
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if us >= length:
            return f"{us / length:.3f}{unit}"
    return f"{us:.3f}us"


class _Measured(NamedTuple):
    """What a run measured."""

    latency_avg_ms: float
    num_iters: int


class _Setting(NamedTuple):
    """How it ran."""

    num_calling_threads: int
    num_warmup_iters: int
    num_iters: int


class ExecutionStats:
    """How long calls took."""

    def __init__(self, c_stats: Any, benchmark_config: Any) -> None:
        self._c_stats, self.benchmark_config = c_stats, benchmark_config

    @property
    def latency_avg_ms(self) -> float:
        """Milliseconds of one call."""
        value: float = self._c_stats.latency_avg_ms
        return value

    @property
    def num_iters(self) -> int:
        """How many calls there were."""
        count: int = self._c_stats.num_iters
        return count

    @property
    def iters_per_second(self) -> float:
        """Calls in a second, of all threads together."""
        return self.num_iters / self.total_time_seconds

    @property
    def total_time_seconds(self) -> float:
        """Seconds from the first call to the last, as the latencies say."""
        value: float = self.num_iters * (self.latency_avg_ms / 1000.0) / self.benchmark_config.num_calling_threads
        return value

    def __str__(self) -> str:
        return "\n".join([f"Average latency per example: {format_time(time_ms=self.latency_avg_ms)}",
                          f"Total number of iterations: {self.num_iters}",
                          f"Total number of iterations per second (across all threads): {self.iters_per_second:.2f}",
                          f"Total time: {format_time(time_s=self.total_time_seconds)}"])


class ThroughputBenchmark:
    """Calls a module with inputs that were added, from several threads."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._inputs: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add_input(self, *args: Any, **kwargs: Any) -> None:
        """One more input, which calls are made with."""
        self._inputs.append((args, kwargs))

    def run_once(self, *args: Any, **kwargs: Any) -> Any:
        """The result of one call."""
        return self._module(*args, **kwargs)

    def benchmark(self, num_calling_threads: int = 1, num_warmup_iters: int = 10, num_iters: int = 100,
                  profiler_output_path: str = "") -> ExecutionStats:
        """Runs until num_iters calls were made after a warm-up in each thread."""
        if not self._inputs:
            raise RuntimeError("Please provide benchmark inputs.Did you forget to call add_input()?")
        if profiler_output_path:
            raise NotImplementedError("[torch.utils.ThroughputBenchmark] profiler_output_path is not offered; use torch.profiler")
        left, finished, spent, errors = itertools.count(), [0] * num_calling_threads, [0.0] * num_calling_threads, []
        ready = threading.Barrier(num_calling_threads)

        def work(number: int) -> None:
            try:
                for _ in range(num_warmup_iters):
                    self._call()
                ready.wait()
                start = time.perf_counter()
                while next(left) < num_iters:
                    self._call()
                    finished[number] += 1
                spent[number] = time.perf_counter() - start
            except BaseException as error:        # raised in the thread that asked
                errors.append(error)
                ready.abort()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(num_calling_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return ExecutionStats(_Measured(sum(spent) * 1e3 / sum(finished), sum(finished)),
                              _Setting(num_calling_threads, num_warmup_iters, num_iters))

    def _call(self) -> Any:
        args, kwargs = random.choice(self._inputs)
        return self._module(*args, **kwargs)
