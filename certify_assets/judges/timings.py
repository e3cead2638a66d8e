"""What each stage of a judge cost on this machine: seconds and memory, beside the documents that hashes stand on and never among them."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from certify_assets.judges.judged import JudgedCorpus

__all__ = ["STAGES", "Stage", "read_timings", "timed"]

STAGES = ("train", "score")
#: the document whose hash says what a stage made
_PRODUCTS = {"train": ("adapter.json", "adapter_sha256"), "score": ("scores.json", "scores_sha256")}
_MEBIBYTE = 1024.0 if sys.platform != "darwin" else 1024.0 * 1024.0


@dataclass(slots=True)
class Stage:
    """What a running stage says of itself.

    Attributes
    ----------
    rows : int
        Trajectories that it went through.
    continued : bool
        Whether it took up what an earlier run left, so that its seconds are not all of it.
    """

    rows: int = 0
    continued: bool = False


@contextmanager
def timed(judge: JudgedCorpus, stage: str) -> Iterator[Stage]:
    """Measure a stage and keep its figures in ``judges/<judge>/<corpus>/timings.json``; a stage that fails keeps none.

    Notes
    -----
    CPU seconds are those of all threads of this process. The memory is the process's largest so far, so it is the stage's own only where the stage
    has a process of its own. A run that goes on from an earlier one does not replace the figures of a whole run with the same product.
    """
    running = Stage()
    wall, cpu = time.perf_counter(), time.process_time()
    yield running
    name, field = _PRODUCTS[stage]
    measured = {
        "wall_seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEBIBYTE, 1),
        "rows": running.rows,
        "continued": running.continued,
        "product_sha256": judge.store.read_json(judge.key(f"{name}"))[field],
    }
    key = judge.key("timings.json")
    known = judge.store.read_json(key) if judge.store.exists(key) else {}
    before = known.get(stage, {})
    whole = before.get("product_sha256") == measured["product_sha256"] and not before.get(
        "continued", True
    )
    if not (running.continued and whole):
        judge.store.write_json(key, {**known, stage: measured})


def read_timings(judge: JudgedCorpus) -> dict[str, dict[str, Any]]:
    """Return the figures of the stages whose product is the stored one, by stage; empty where nothing was measured."""
    folder = judge.key()
    if not judge.store.exists(f"{folder}/timings.json"):
        return {}
    known = judge.store.read_json(f"{folder}/timings.json")
    found = {}
    for stage, (name, field) in _PRODUCTS.items():
        measured = known.get(stage)
        if (
            measured
            and judge.store.exists(f"{folder}/{name}")
            and judge.store.read_json(f"{folder}/{name}").get(field) == measured["product_sha256"]
        ):
            found[stage] = measured
    return found
