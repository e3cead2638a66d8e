"""What runs the steps of every job: this process, processes of this machine, or Ray jobs."""

from __future__ import annotations

import os

import dagster as dg

from certify_assets.errors import InputError, MissingToolError

__all__ = ["EXECUTOR_VARIABLE", "job_executor"]

EXECUTOR_VARIABLE = "CERTIFY_EXECUTOR"
_NAMES = ("in_process", "multiprocess", "ray")
# what a Ray job gets from the process that submits it; passwords are not among it, as Ray's dashboard shows a job's variables
_HANDED_ON = [
    "DAGSTER_HOME",
    "CERTIFY_ROOT",
    "CERTIFY_JUDGES",
    "CERTIFY_EXECUTOR",
    "CERTIFY_SHARDS",
    "MLFLOW_UI_URL",
    "RAY_DASHBOARD",
]


def job_executor() -> dg.ExecutorDefinition:
    """Return the executor that ``CERTIFY_EXECUTOR`` names: in_process (the default), multiprocess or ray.

    Raises
    ------
    InputError
        If there is no such executor.
    MissingToolError
        If Ray is asked for and not installed.
    """
    named = os.environ.get(EXECUTOR_VARIABLE) or _NAMES[0]
    if named not in _NAMES:
        raise InputError(
            f"{EXECUTOR_VARIABLE} is {named!r}; give one of {', '.join(_NAMES)}, or leave it out."
        )
    if named == "ray":
        return _ray()
    # most steps are small: a process of its own for each costs more than the step
    return (
        dg.in_process_executor
        if named == "in_process"
        else dg.multiprocess_executor.configured({"max_concurrent": 2}, "two_processes")
    )


def _ray() -> dg.ExecutorDefinition:
    try:
        # costs a CPU second, and only who asks for Ray pays it
        from dagster_ray import ray_executor
    except ImportError:
        raise MissingToolError(
            f"{EXECUTOR_VARIABLE} is 'ray', and the package dagster-ray is not installed; install certify_assets[ray]."
        ) from None
    # a job without a number of cores is taken for one that needs none, and all of them would start at once; a GPU is asked for by a step's own tags
    configured: dg.ExecutorDefinition = ray_executor.configured(
        {"ray": {"env_vars": _HANDED_ON, "num_cpus": 1}}, "ray_jobs"
    )
    return configured
