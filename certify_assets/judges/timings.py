"""What the training and the scoring of a judge took."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from certify_assets.judges.judged import JudgedCorpus

# the document whose hash says what a stage made
_PRODUCTS = {"train": ("adapter.json", "adapter_sha256"), "score": ("scores.json", "scores_sha256")}
_MEBIBYTE = 1024.0 if sys.platform != "darwin" else 1024.0 * 1024.0


class StageFigures(TypedDict):
    """What training or scoring took."""

    wall_seconds: float
    # of all threads of the process
    cpu_seconds: float
    # the process's largest so far: the stage's own only where it has a process of its own
    peak_mib: float
    rows: int
    continued: bool
    product_sha256: str


@dataclass(slots=True)
class RunningStage:
    """What a running stage notes of itself."""

    rows: int = 0
    # whether it took up what an earlier run left, so that its seconds are not all of it
    continued: bool = False


@contextmanager
def timed(judge: JudgedCorpus, stage: str) -> Iterator[RunningStage]:
    """Measure a stage and keep its figures in timings.json; a stage that fails keeps none."""
    running = RunningStage()
    wall, cpu = time.perf_counter(), time.process_time()
    yield running
    name, product = _PRODUCTS[stage]
    measured: StageFigures = {
        "wall_seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEBIBYTE, 1),
        "rows": running.rows,
        "continued": running.continued,
        "product_sha256": judge.store.read_json(judge.key(name))[product],
    }
    known = judge.read("timings.json")
    judge.store.write_json(judge.key("timings.json"), {**known, stage: measured})


def timings(judge: JudgedCorpus) -> dict[str, StageFigures]:
    """Return the figures of the stages whose product is the stored one, by stage."""
    known: dict[str, StageFigures] = judge.read("timings.json")
    return {
        stage: known[stage]
        for stage, (name, product) in _PRODUCTS.items()
        if stage in known and judge.read(name).get(product) == known[stage]["product_sha256"]
    }
