"""The pool of what trains or scores with a language model, and what its steps ask of Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypedDict

import dagster as dg
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from certify_assets.defs.resources import EXECUTOR_VARIABLE
from certify_assets.defs.setup import judges
from certify_assets.judges.lm.device import taking_turns
from certify_assets.judges.lm.models import known_model

#: one op of it at a time, as dagster.yaml sets: two trainings on one device are slower than one
#: after the other
POOL = "gpu"

_POLL_S = 1.0


class OnDevice(TypedDict, total=False):
    """Arguments of an op that is in the pool from its start."""

    pool: str
    op_tags: dict[str, dict[str, int]]


def machine_tags(model: str) -> dict[str, dict[str, int]]:
    """Return op tags for Ray: a GPU, except for models that two cores train."""
    small = known_model(model).small
    return {"dagster-ray/config": {"num_cpus": 2} if small else {"num_cpus": 4, "num_gpus": 1}}


def on_device(model: str) -> OnDevice:
    """Return what puts an op that uses this model into the pool."""
    return {"pool": POOL, "op_tags": machine_tags(model)}


def on_device_of_any_judge() -> OnDevice:
    """Return the same for an op whose judge is known only when it runs; empty where it can wait.

    Such an op takes its place in the pool once it loads a language model. A Ray job has the GPU
    that it asked for before it starts: where a judge needs one the op asks for it, and is in the
    pool from its start, since a job that waits for the pool would keep the GPU from the one that
    it waits for.
    """
    if os.environ.get(EXECUTOR_VARIABLE) != "ray":
        return {}
    models = [spec.model for spec in judges().values() if spec.uses_language_model]
    large = next((model for model in models if not known_model(model).small), None)
    return on_device(large) if large else {}


@contextmanager
def pooled_on_demand(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Iterator[None]:
    """Take a place in the pool when the step loads a language model, and keep it to the end.

    Scores of a judge of words need no device, and would wait for trainings with a static pool.
    """
    if context.op_def.pool:
        yield
        return
    with ExitStack() as opened:
        claimed: list[InstanceConcurrencyContext] = []

        def wait() -> None:
            if claimed:
                return
            step = context.get_step_execution_context().step.key
            # as Dagster's executors claim for the ops of a pool, with their limits and order;
            # on leaving it withdraws a claim that still waits
            claims = opened.enter_context(InstanceConcurrencyContext(context.instance, context.run))
            said = False
            while not claims.claim(POOL, step):
                if not said:
                    context.log.info(
                        f"a language model is used here and the pool {POOL} is full; this step "
                        "waits for a place."
                    )
                said = True
                time.sleep(_POLL_S)
            opened.callback(claims.free_step, step)
            claimed.append(claims)

        with taking_turns(wait):
            yield
