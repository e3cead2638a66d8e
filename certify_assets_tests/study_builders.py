"""A data root with two corpora, and the study of it in this process."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from certify_assets.cli.launching import platform
from certify_assets.defs import study
from certify_assets.defs.project import this_project
from certify_assets.defs.resources import MlflowTracker
from certify_assets.research.tables import Outcome
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs

#: what takes seconds
SHORT = ("corpora/", "judges/lexical/", "research/real_scores", "research/cert", "research/report")


def registered(folder: Path) -> Store:
    store = Store(str(folder / "root"))
    for seed, name in enumerate(("c", "d")):
        runs = write_runs(folder / f"{name}.jsonl", tasks=60, attempts=3, seed=seed)
        register_runs(store, name, runs, rl=True, domain=("web", "shell")[seed])
    return store


def shorten(patch: pytest.MonkeyPatch, names: Sequence[str] = SHORT) -> None:
    """Leave out assets whose names begin otherwise, and MLflow: its databases cost more."""
    every = study.job_keys
    patch.setattr(MlflowTracker, "record", lambda *_, **__: {})
    patch.setattr(
        study,
        "job_keys",
        lambda job: {
            item for item in every(job) if this_project().name_of(item).startswith(tuple(names))
        },
    )


def studied(
    store: Store, corpora: Sequence[str], names: Sequence[str] = SHORT, profile: str = "quick"
) -> list[Outcome]:
    """Run the study of some assets."""
    with pytest.MonkeyPatch.context() as patch, platform(store):
        shorten(patch, names)
        return study.run_study(corpora, profile=profile)


def states(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], str]:
    return {(item.corpus, item.asset): item.status for item in outcomes}
