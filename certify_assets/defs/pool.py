"""The pool of what trains or scores with a language model, and what its steps ask of Ray."""

from __future__ import annotations

from typing import TypedDict

from certify_assets.defs.setup import judges
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.specs import JudgeSpec

#: one op of it at a time, as dagster.yaml sets: two trainings on one device are slower than one
#: after the other
POOL = "gpu"


class OnDevice(TypedDict, total=False):
    """Arguments of an op that is in the pool from its start."""

    pool: str
    op_tags: dict[str, dict[str, int]]


def on_device(model: str) -> OnDevice:
    """Return what puts an op that uses this model into the pool.

    Of Ray it asks for a GPU, except for models that two cores train.
    """
    small = known_model(model).small
    machine = {"num_cpus": 2} if small else {"num_cpus": 4, "num_gpus": 1}
    return {"pool": POOL, "op_tags": {"dagster-ray/config": machine}}


def pool_of(spec: JudgeSpec) -> OnDevice:
    """Return what puts an op of a judge into the pool, if it uses a language model."""
    return on_device(spec.model) if spec.uses_language_model else {}


def on_device_of_any_judge() -> OnDevice:
    """Return the same for an op whose judge is known only when it runs.

    It is in the pool where a judge needs a GPU, and waits for no training where none does.
    """
    models = [spec.model for spec in judges().values() if spec.uses_language_model]
    large = next((model for model in models if not known_model(model).small), None)
    return on_device(large) if large else {}
