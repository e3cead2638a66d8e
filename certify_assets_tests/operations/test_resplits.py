"""The same runs under other splits: other names, other seeds, a removed corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.config import remove_corpus, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import run_table, same_runs
from certify_assets.corpora.trajectory import Trajectory
from certify_assets.errors import GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.certified_before import certified_splits, manifests_as
from certify_assets.operations.certifier import certify_judge
from certify_assets.operations.deploying import deploy, redeploy
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs


def _certified(store: Store, name: str) -> JudgedCorpus:
    Corpus(store, name).prepare()
    judge = judged(store, name)
    judge.train()
    judge.score()
    certify_judge(judged(store, name))
    return judged(store, name)


def _splits(store: Store, name: str) -> tuple[int, tuple[str, ...]]:
    found = certified_splits(Corpus(store, name))
    return found.number, found.others


@pytest.mark.slow
def test_other_names_and_seeds_are_counted_and_outlast_their_corpus(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    path = write_runs(tmp_path / "runs.jsonl", tasks=60, attempts=3)
    register_runs(store, "first", path, seed=1)
    _certified(store, "first")
    assert _splits(store, "first") == (1, ())
    # the same split under another name is no other split
    register_runs(store, "same", path, seed=1)
    _certified(store, "same")
    assert _splits(store, "first") == (1, ("same",))
    register_runs(store, "second", path, seed=2)
    _certified(store, "second")
    # nor does a delivery of other runs under its name make it a split of those
    other = write_runs(tmp_path / "other.jsonl", tasks=60, attempts=3, seed=9)
    register_runs(store, "second", other, seed=2)
    Corpus(store, "second").prepare()
    remove_corpus(store, "second")
    assert _splits(store, "first") == (2, ("same", "second"))
    # other runs are no matter
    register_runs(store, "other", other, seed=3)
    _certified(store, "other")
    assert _splits(store, "other") == (1, ())


@pytest.mark.slow
def test_one_seed_under_other_names_with_other_shares_or_fewer_tasks(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    path = write_runs(tmp_path / "runs.jsonl", tasks=60, attempts=3)
    register_runs(store, "base", path, seed=1)
    _certified(store, "base")
    register_runs(store, "profile", path, seed=1, profile="paper")
    _certified(store, "profile")
    lines = path.read_text("utf-8").splitlines(keepends=True)
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_text("".join(line for line in lines if "task-007" not in line), "utf-8")
    register_runs(store, "task", fewer, seed=1)
    _certified(store, "task")
    found = {name: certified_splits(Corpus(store, name)) for name in ("base", "profile", "task")}
    assert [item.number for item in found.values()] == [3, 3, 3]
    first = {name: item.current_first for name, item in found.items()}
    assert first == {"base": True, "profile": False, "task": False}
    # the same split under another name is the same after new tasks
    twin = Corpus(store, "base").manifest.replace(corpus="twin").sha256
    write_runs(path, tasks=66, attempts=3)
    grown = Corpus(store, "base")
    grown.prepare()
    assert twin in manifests_as(grown, "twin") and len(manifests_as(grown, "twin")) == 2


@pytest.mark.slow
def test_another_profile_of_one_version_is_counted_and_new_tasks_are_not(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    path = write_runs(tmp_path / "runs.jsonl", tasks=60, attempts=3)
    config = register_runs(store, "c", path)
    _certified(store, "c")
    write_runs(path, tasks=80, attempts=3)
    _certified(store, "c")
    assert _splits(store, "c")[0] == 1
    save_config(store, replace(config, profile="paper"))
    _certified(store, "c")
    assert _splits(store, "c")[0] == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param('"task_id": "', '"task_id": "z', id="tasks"),
        pytest.param('"agent": "', '"agent": "v2-', id="agents"),
        pytest.param('"instruction": "', '"instruction": " ', id="spaces"),
    ],
)
def test_a_split_of_runs_under_other_names_is_refused(
    operated: Store, tmp_path: Path, before: str, after: str
) -> None:
    lines = Path(Corpus(operated, "c").config.paths[0]).read_text("utf-8")
    other = tmp_path / "renamed.jsonl"
    other.write_text(lines.replace(before, after), "utf-8")
    register_runs(operated, "renamed", other, seed=7)
    judge = _certified(operated, "renamed")
    with pytest.raises(GateClosedError, match=r"under 2 splits, first as c\. .*--accept-resplit"):
        deploy(judge, track=False)


def test_texts_that_tasks_share_and_runs_without_texts_are_no_same_runs(tmp_path: Path) -> None:
    def table(corpus: str, texts: list[tuple[str, str]]) -> pd.DataFrame:
        names = (f"{corpus}{number}" for number in range(len(texts)))
        return run_table(
            Trajectory(
                task_id=f"{corpus}-{task}",
                trajectory_id=name,
                agent=corpus,
                instruction=text,
                steps=(),
                outcome=1,
                corpus=corpus,
                attempt=0,
            )
            for name, (task, text) in zip(names, texts, strict=True)
        )

    own = table("a", [("1", "press ok"), ("2", "press ok"), ("3", ""), ("4", "sort the list")])
    other = table("b", [("1", "press ok"), ("2", ""), ("3", "sort  the list"), ("4", "more")])
    assert same_runs(own, other) == 1


def test_only_the_first_split_of_the_same_runs_is_deployed_unasked(operated: Store) -> None:
    register_runs(operated, "again", Path(Corpus(operated, "c").config.paths[0]), seed=7)
    judge = _certified(operated, "again")
    audit_judge(judge)
    before = sorted(operated.names("operations/again"))
    with pytest.raises(GateClosedError, match=r"under 2 splits, first as c\. .*--accept-resplit"):
        deploy(judged(operated, "again"), track=False)
    assert sorted(operated.names("operations/again")) == before
    made = deploy(judged(operated, "again"), accepted=["resplit_accepted"], track=False)
    assert "resplit" in {item["code"] for item in made.findings}
    # what was accepted once is accepted when it is deployed again
    assert redeploy(Corpus(operated, "again"), made.number, track=False) == made
    # the first split stays as good as it was
    assert deploy(judged(operated, "c"), track=False).certificates
