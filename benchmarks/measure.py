"""How the benchmarks measure: CPU time of this process, systems interleaved, the median of rounds.

The machine may be shared and noisy. Interleaving lets a noisy moment hit every system alike, so
ratios within one run hold where absolute figures do not.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable

ROUNDS = 7


def drive(coroutine):
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the coroutine waited")


def cpu(functions: dict[str, Callable[[], object]], *, seconds: float = 0.06) -> dict[str, float]:
    """Median CPU seconds per call of each function, interleaved."""
    counts = {name: _calibrated(function, seconds) for name, function in functions.items()}
    samples: dict[str, list[float]] = {name: [] for name in functions}
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, function in functions.items():
                begun = time.process_time()
                for _ in range(counts[name]):
                    function()
                samples[name].append((time.process_time() - begun) / counts[name])
    finally:
        gc.enable()
    return {name: statistics.median(values) for name, values in samples.items()}


def least_cpu(functions: dict[str, Callable[[], object]], *, calls: int = 400) -> dict[str, float]:
    """Least CPU seconds per call of each function in many short rounds, interleaved.

    For figures that are no ratio: what the work itself takes, in moments when others are quiet.
    """
    least = dict.fromkeys(functions, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(300):
            for name, function in functions.items():
                begun = time.process_time()
                for _ in range(calls):
                    function()
                least[name] = min(least[name], (time.process_time() - begun) / calls)
    finally:
        gc.enable()
    return least


async def cpu_async(
    functions: dict[str, Callable[[], Awaitable[object]]], *, calls: int = 300
) -> dict[str, float]:
    """The same for what needs an event loop."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        await function()
    for _ in range(ROUNDS):
        for name, function in functions.items():
            begun = time.process_time()
            for _ in range(calls):
                await function()
            samples[name].append((time.process_time() - begun) / calls)
    return {name: statistics.median(values) for name, values in samples.items()}


def _calibrated(function: Callable[[], object], seconds: float) -> int:
    function()
    count = 1
    while True:
        begun = time.process_time()
        for _ in range(count):
            function()
        taken = time.process_time() - begun
        if taken >= seconds / 4:
            return max(1, int(count * seconds / taken))
        count *= 2


def table(title: str, rows: list[tuple[str, float, float, str]]) -> None:
    """Print one table: what, time, ratio, the figure it is held to."""
    print(f"\n### {title}\n")
    print("| what | CPU | ratio | target |")
    print("| --- | ---: | ---: | --- |")
    for name, taken, ratio, bound in rows:
        print(f"| {name} | {_time(taken)} | {ratio:.2f} | {bound} |")


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
