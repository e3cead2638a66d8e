"""Labels of which an older copy is put back: who decides from them refuses, and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError, IntegrityError
from certify_assets.evaluation.anchors import anchor_heads, heads_key, require_anchored
from certify_assets.operations import labels
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.label_files import import_labels
from certify_assets.operations.labels import Label, anchor_labels, append_labels, read_labels
from certify_assets.operations.layout import batch_names, decisions_of, labels_key
from certify_assets.operations.monitoring import monitor_judge
from certify_assets.operations.recertification import recertify
from certify_assets.operations.review_session import ReviewSession
from certify_assets.operations.rollout import deploy, redeploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.journal import heads_journal
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import (
    ProvisionalBatch,
    audit_of,
    deliver,
    label_draw,
    provisional_batch,
)

PLAN = SamplingPlan(0.3, 0.2, 5)
REFUSED = r"labels\.jsonl has not line \d+ that .*c\.heads\.jsonl names: .* restore the newest copy"


@pytest.fixture(scope="module")
def template(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployed corpus whose audit sample of a batch waits for labels."""
    folder = tmp_path_factory.mktemp("put_back") / "root"
    shutil.copytree(_operated, folder)
    store = Store(str(folder))
    deploy(judged(store), sampling=PLAN, track=False)
    receive(Corpus(store, "c"), [str(deliver(folder.parent / "runs.jsonl", tasks=60))])
    decide_ready(Corpus(store, "c"))
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    # every label as a kill before its head leaves it: only who decides from labels names them
    monkeypatch.setattr(labels, "_need_head", lambda unnamed: False)
    shutil.copytree(template, tmp_path / "root")
    return Store(str(tmp_path / "root"))


def asked(store: Store) -> list[str]:
    """Return the drawn runs, rejected ones first."""
    rows = decisions_of(Corpus(store, "c"), batch_names(Corpus(store, "c"))[0])
    rows = rows[rows["asked"].isin(["audit_sample", "spot_check"])]
    return [str(name) for name in rows.sort_values("score")["trajectory_id"]]


def say(store: Store, outcome: int, *, left_out: int = 0) -> None:
    names = asked(store)
    names = names[: len(names) - left_out]
    append_labels(Corpus(store, "c"), [Label(name, outcome, "ann", "page", name) for name in names])


def named(store: Store) -> int:
    """Return the last line of the labels that a head names."""
    heads = heads_journal(store, heads_key("c")).read()
    return max((head.lines for head in heads if head.journal == labels_key("c")), default=0)


def put_back(store: Store, lines: int) -> None:
    path = store.local_path(labels_key("c"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def _monitor(store: Store) -> None:
    monitor_judge(judged(store))


def _recertify(store: Store) -> None:
    recertify(judged(store), least_new_tasks=0)


def _deploy(store: Store) -> None:
    redeploy(Corpus(store, "c"), 1, track=False)


def _batch_only(store: Store) -> None:
    deploy(judged(store), batch_only=True, track=False)


def _decide(store: Store) -> None:
    number = 100 + len(batch_names(Corpus(store, "c")))
    path = deliver(Path(store.root).parent / f"{number}.jsonl", tasks=4, seed=number)
    receive(Corpus(store, "c"), [str(path)])
    for record in decide_ready(Corpus(store, "c")):
        if record.refusal is not None:
            raise IntegrityError(record.refusal.sentence)


#: what decides from labels
DECIDING: dict[str, Callable[[Store], None]] = {
    "monitor": _monitor,
    "recertify": _recertify,
    "deploy": _deploy,
    "batch_only": _batch_only,
    "decide": _decide,
}


@pytest.mark.parametrize(
    "first",
    [
        "monitor",
        *(pytest.param(name, marks=pytest.mark.slow) for name in DECIDING if name != "monitor"),
    ],
)
def test_what_was_decided_from_is_missed_by_whoever_decides_next(store: Store, first: str) -> None:
    say(store, 0)
    assert named(store) == 0
    DECIDING[first](store)
    whole = len(read_labels(Corpus(store, "c")))
    assert named(store) == whole
    # an honest journal has grown since
    append_labels(Corpus(store, "c"), [Label(asked(store)[0], 0, "bob", "page", "later")])
    _monitor(store)
    data = store.read_bytes(labels_key("c"))
    put_back(store, whole)
    for name in ("monitor", "recertify", "deploy", "batch_only", "decide"):
        with pytest.raises(IntegrityError, match=REFUSED):
            DECIDING[name](store)
    with pytest.raises(IntegrityError, match=REFUSED):
        ReviewSession(store, "c").queue()
    store.write_bytes(labels_key("c"), data)
    for name in ("monitor", "deploy"):
        DECIDING[name](store)


@pytest.mark.slow
def test_labels_that_refuse_a_deployment_are_not_put_back_for_another_try(store: Store) -> None:
    say(store, 1)
    with pytest.raises(GateClosedError, match="labels that are there raise an alarm"):
        _deploy(store)
    put_back(store, 0)
    with pytest.raises(IntegrityError, match=REFUSED):
        _deploy(store)
    assert len(read_deployments(Corpus(store, "c"))) == 1


@pytest.mark.slow
def test_labels_that_closed_a_batch_are_missed(
    operated: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "_need_head", lambda unnamed: False)
    batch: ProvisionalBatch = provisional_batch(operated, tmp_path)
    label_draw(operated, batch.name)
    assert audit_of(batch).closing is not None
    assert named(operated) == len(read_labels(Corpus(operated, "c")))


def test_an_import_of_labels_names_its_last_line(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    names = asked(store)[:3]
    rows = [f"{name},1" for name in names]
    path.write_text("\n".join(["trajectory_id,outcome", *rows, ""]), encoding="utf-8")
    import_labels(Corpus(store, "c"), path, reviewer="ann")
    assert named(store) == 3


def test_a_data_root_of_an_earlier_version_decides_and_has_heads_from_then_on(store: Store) -> None:
    say(store, 0)
    store.delete(heads_key("c"))
    _decide(store)
    assert named(store) == len(read_labels(Corpus(store, "c")))


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["put_back", "removed", "begun_again"])
def test_heads_that_are_lost_with_labels_are_missed_where_mlflow_knows_them(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/elsewhere.db")
    say(store, 0, left_out=2)
    _monitor(store)
    heads, lines = store.read_bytes(heads_key("c")), len(read_labels(Corpus(store, "c")))
    say(store, 0)
    _monitor(store)
    require_anchored(Corpus(store, "c"))
    put_back(store, lines)
    store.delete(heads_key("c"))
    if lost == "put_back":
        store.write_bytes(heads_key("c"), heads)
    elif lost == "begun_again":
        anchor_labels(Corpus(store, "c"))
        anchor_heads(Corpus(store, "c"))
    assert len(read_labels(Corpus(store, "c"))) == lines
    for name in ("monitor", "recertify", "deploy", "decide"):
        with pytest.raises(IntegrityError, match=r"heads\.jsonl has not line .* that MLflow names"):
            DECIDING[name](store)
