"""A data root with two corpora, and the study of it in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from certify_assets.cli.launching import platform
from certify_assets.defs.research.study import STAGES, Stage, run_study
from certify_assets.defs.resources import MlflowTracker
from certify_assets.research.study import Outcome
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs


def registered(folder: Path) -> Store:
    store = Store(str(folder / "root"))
    for seed, name in enumerate(("c", "d")):
        runs = write_runs(folder / f"{name}.jsonl", tasks=60, attempts=3, seed=seed)
        register_runs(store, name, runs, rl=True, domain=("web", "shell")[seed])
    return store


def named(*names: str) -> list[Stage]:
    return [stage for stage in STAGES if stage.name in names]


def studied(
    store: Store, corpora: Sequence[str], stages: Sequence[Stage], **options: Any
) -> list[Outcome]:
    """Run the study without MLflow, whose databases cost more than it."""
    with pytest.MonkeyPatch.context() as patch, platform(store):
        patch.setattr(MlflowTracker, "record", lambda *_, **__: {})
        return run_study(corpora, **{"workers": 1, "stages": stages, **options})


def states(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], str]:
    return {(item.corpus, item.stage): item.status for item in outcomes}
