"""A corpus and its judge that are replaced while an operation reads: its result is of one version."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import ChangedInputError
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.certification import certify_judge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.objects import Objects
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, stored, write_runs
from certify_assets_tests.conftest import copy_world, prepared_world

pytestmark = pytest.mark.slow
# of all reads evenly taken ones
_MOST = 16
_SEEDS = (0, 1)


def _two_versions(root: Path) -> None:
    """Store one version after the other, certified and audited."""
    store = Store(str(root))
    for seed in _SEEDS:
        path = write_runs(root.parent / "runs.jsonl", tasks=60, attempts=4, seed=seed)
        register_runs(store, "c", path, rl=False)
        Corpus(store, "c").prepare_splits()
        Corpus(store, "c").measure_leaks()
        judged(store).train()
        judged(store).score()
        certify_judge(judged(store))
        audit_judge(judged(store))
        for key, data in stored(store, "corpora/c", "judges/lexical/c").items():
            store.write_bytes(f"study/{seed}/{key}", data)


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Store:
    return copy_world(prepared_world(tmp_path_factory, "versions", _two_versions), tmp_path)


def _bring(store: Store, seed: int) -> None:
    """Let a version be what is stored, in one commit."""
    view, folder = Store(store.root).now(), f"study/{seed}"
    keys = {key: view.sha256(f"{folder}/{key}") for key in _keys(view, folder)}
    with view.step("c"):
        for key, sha256 in keys.items():
            view.point(key, sha256)


def _keys(store: Store, folder: str, below: str = "") -> list[str]:
    names = store.names(f"{folder}/{below}".rstrip("/"))
    places = [f"{below}/{name}".lstrip("/") for name in names]
    return [key for place in places for key in (_keys(store, folder, place) or [place])]


def _certified(judge: JudgedCorpus) -> list[Any]:
    return [item.to_dict() for item in certify_judge(judge)]


def _audited(judge: JudgedCorpus) -> list[Any]:
    return [audit.to_dict() for audit in audit_judge(judge).audits]


@pytest.mark.parametrize("operation", [_certified, _audited])
def test_no_result_mixes_two_versions(
    store: Store, monkeypatch: pytest.MonkeyPatch, operation: Callable[[JudgedCorpus], list[Any]]
) -> None:
    reads, swap_at = 0, -1
    get, as_file = Objects.get, Objects.as_file

    def read(*_: object) -> None:
        nonlocal reads
        reads += 1
        if reads == swap_at:
            _bring(store, 1)

    monkeypatch.setattr(Objects, "get", lambda *given: (read(), get(*given))[1])
    monkeypatch.setattr(Objects, "as_file", lambda *given: (read(), as_file(*given))[1])

    def run(seed: int) -> list[Any] | None:
        nonlocal reads
        _bring(store, seed)
        reads = 0
        try:
            return operation(judged(Store(store.root)))
        except ChangedInputError:
            return None

    whole = [run(seed) for seed in reversed(_SEEDS)]
    most = reads
    assert whole[0] != whole[1] and most >= 10
    told = 0
    for swap_at in range(1, most, 1 + most // _MOST):
        found = run(0)
        told += found is None
        assert found is None or found in whole, f"swapped at read {swap_at} of {most}"
    assert told
