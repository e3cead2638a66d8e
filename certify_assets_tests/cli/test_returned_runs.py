"""Runs of batches that come back with labels: what the corpus takes, lists and refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify_assets import InputError, Workspace
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.decisions import batch_names, first_decisions_of
from certify_assets.operations.labels import Label, append_labels, read_labels
from certify_assets.operations.returned_runs import checking_delivery
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.conftest import copy_world, prepared_world
from certify_assets_tests.operations_builders import provisional_batch

Keep = Callable[[dict[str, Any]], bool]


@pytest.fixture(scope="module")
def _world(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def prepare(root: Path) -> None:
        shutil.copytree(_operated, root)
        made = provisional_batch(Store(str(root)), root.parent, tasks=60, audit_rate=0.3)
        rows = first_decisions_of(Corpus(made.store, "c"), made.name)
        first = rows["trajectory_id"].str.endswith("/0")
        waits = (rows["decision"] == "provisional") & (first | (rows["asked"] == "audit_sample"))
        said = rows[(rows["decision"] == "human") | waits]["trajectory_id"]
        corpus = Corpus(made.store, "c")
        append_labels(corpus, [Label(name, made.truth[name], "ann", "cli", name) for name in said])
        shutil.copy(root.parent / "truth.jsonl", root / "truth.jsonl")

    return prepared_world(tmp_path_factory, "returned", prepare)


@pytest.fixture
def store(_world: Path, tmp_path: Path) -> Store:
    """A decided batch of new tasks, a third of them drawn for the audit: a reviewer labelled these,
    what was not decided, and a part of what is provisional.
    """
    return copy_world(_world, tmp_path)


def back(store: Store, folder: Path, keep: Keep) -> Path:
    """Write the runs of the batch with their outcomes, under ids of another source."""
    lines = (Path(store.root) / "truth.jsonl").read_text("utf-8").splitlines()
    corpus = Corpus(store, "c")
    rows = first_decisions_of(corpus, batch_names(corpus)[0]).set_index("trajectory_id")
    said, kept = {label.trajectory_id for label in read_labels(corpus)}, []
    for record in map(json.loads, lines):
        run = f"new-3-{record['trajectory_id']}"
        if not run.endswith("/3"):
            record["agent"] = "agent-new"
        record |= {"task_id": f"new-3-{record['task_id']}", "trajectory_id": f"again-{run}"}
        record["instruction"] += "*"
        if keep({**record, **rows.loc[run].to_dict(), "said": run in said}):
            kept.append(json.dumps(record))
    path = folder / "labelled.jsonl"
    path.write_text("\n".join(kept) + "\n", "utf-8")
    return path


def adding(store: Store, path: Path) -> tuple[object, ...]:
    return ("corpus", "import", path, "--name", "c", "--add", "--root", store.root)


def reviewed(run: dict[str, Any]) -> bool:
    return run["said"] and run["asked"] != "audit_sample"


def drawn(run: dict[str, Any]) -> bool:
    return bool(run["asked"] == "audit_sample")


def test_what_reviewers_labelled_is_listed_and_refused_without_the_others(
    call: Call, store: Store, tmp_path: Path
) -> None:
    corpus = Corpus(store, "c")
    before = corpus.config, corpus.trajectories_sha256, len(corpus.deliveries.read())
    path = back(store, tmp_path, reviewed)
    refused = call(*adding(store, path))
    assert refused.code == 2 and "were labelled by reviewers of c" in refused.err
    with pytest.raises(InputError, match="labelled by reviewers of c"):
        given = replace(corpus.config, paths=(*corpus.config.paths, str(path)))
        Workspace.open(store.root).corpus("c").import_trajectories(given)
    corpus = Corpus(store, "c")
    assert (corpus.config, corpus.trajectories_sha256, len(corpus.deliveries.read())) == before


@pytest.mark.parametrize(
    ("keep", "taken"),
    [
        (lambda run: True, True),
        # three runs whose outcome nobody knows
        (lambda run: not run["trajectory_id"].endswith(("05/1", "16/2", "27/0")), True),
        (drawn, True),
        # the other agent of the batch comes back without this one
        (lambda run: run["agent"] != "agent-new", True),
        (lambda run: drawn(run) or reviewed(run), False),
        # nobody labelled these
        (lambda run: run["decision"] == "reject" and not run["said"], True),
    ],
    ids=["whole", "nearly whole", "audit sample", "other agent", "both kinds", "not reviewed"],
)
def test_what_was_not_chosen_by_decisions_comes_back(
    store: Store, tmp_path: Path, keep: Keep, taken: bool
) -> None:
    corpus = Corpus(store, "c")
    path = back(store, tmp_path, keep)
    given = replace(corpus.config, paths=(*corpus.config.paths, str(path)))
    with nullcontext() if taken else pytest.raises(InputError, match="labelled by reviewers"):
        corpus.import_trajectories(given, check=checking_delivery(corpus))
    if taken:
        corpus = Corpus(store, "c")
        # they are in the corpus now, whatever is missing
        corpus.import_trajectories(given, check=checking_delivery(corpus))
