"""Running a section by itself, and saying what it found."""

from __future__ import annotations

import gc
import platform
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np

from certify_assets.judges.lm.language_model import Hardware
from gpu_bench.bench import QWEN3_4B, Bench

__all__ = ["about", "finite", "measured", "release", "show"]


def release() -> None:
    """Give back the memory of a section."""
    gc.collect()
    Hardware.present().free_memory()


def measured(
    bench: Bench, section: Callable[[Bench], dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Run a section within its time; an error becomes its result."""
    import torch

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds:.0f} s")

    release()
    if bench.hardware.accelerated:
        torch.cuda.reset_peak_memory_stats()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds))
    start = time.perf_counter()
    try:
        found = section(bench)
    # whatever breaks here, the other figures are wanted
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        found = {
            **bench.found.get(section.__name__, {}),
            "error": f"{type(error).__name__}: {text}",
        }
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    found["section_seconds"] = time.perf_counter() - start
    if bench.hardware.accelerated:
        found["peak_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def about(bench: Bench) -> dict[str, Any]:
    """Say where and when this runs."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    versions = {}
    for name in ("torch", "transformers", "peft", "trl", "accelerate"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    on_cuda = bench.hardware.accelerated
    return {
        "device": torch.cuda.get_device_name()
        if on_cuda
        else f"CPU {platform.machine()}, {torch.get_num_threads()} threads",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cuda": str(torch.version.cuda),
        "versions": versions,
        "shape": bench.shape.name,
        "dtype": bench.hardware.dtype,
        "gpu_measured": on_cuda and bench.shape is QWEN3_4B,
        "tflop_linear": bench.shape.flops(bench.shape.tokens, attention=0) / 1e12,
        "tflop_attention": bench.shape.flops(bench.shape.tokens, linear=0) / 1e12,
    }


def show(name: str, values: dict[str, Any], indent: int = 0) -> None:
    """Print a section."""
    print(f"{' ' * indent}{name}", flush=True)
    for key, value in values.items():
        if isinstance(value, dict):
            show(key, value, indent + 2)
        else:
            print(
                f"{' ' * indent}  {key:<24} "
                f"{f'{value:.4g}' if isinstance(value, float) else value}",
                flush=True,
            )


def finite(value: Any) -> Any:
    """Replace numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
