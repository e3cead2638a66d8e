"""Altered objects of operation: everything that a decision, a recertification or the monitor rests on, and who refuses it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.batch_record import batch_names, decided, received
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.checks import decided_by_deployed, delta_left, drawn_as_planned
from certify_assets.operations.deployment import Deployment, deployed_certificates
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.layout import RunLookup, decisions_of
from certify_assets.operations.lineage import find, walk
from certify_assets.operations.monitoring import load_monitor, monitor_judge, operation_stream
from certify_assets.operations.recertification import plan_recertification, recertify
from certify_assets.operations.recertification_record import recertification_certificates
from certify_assets.operations.review_queue import load_asked
from certify_assets.operations.rollout import deploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, write_runs
from certify_assets_tests.operations_builders import deliver

PLAN = SamplingPlan(0.3, 0.2, 5)
#: objects that operation does not read; `certify ledger verify` finds them
UNNOTICED = {
    "corpora/c/controls.json",
    *(f"corpora/c/splits/{split}.parquet" for split in ("sft", "rl", "test")),
}


@pytest.fixture(scope="module")
def root(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that was deployed, labelled, recertified and deployed again."""
    folder = tmp_path_factory.mktemp("forged") / "root"
    shutil.copytree(_operated, folder)
    store = Store(str(folder))
    deploy(judged(store), sampling=PLAN, track=False)
    for seed in (1, 2):
        _bring(store, seed)
    document, _ = recertify(judged(store), least_new_tasks=0)
    assert document is not None
    deploy(judged(store), certificates_key=document.certificates_key, track=False)
    monitor_judge(judged(store))
    return folder


def _bring(store: Store, seed: int) -> None:
    """Deliver new tasks, decide them, and label all of what was drawn with the truth."""
    path = deliver(Path(store.root).parent / f"{seed}.jsonl", tasks=30, seed=seed)
    batch = str(receive(Corpus(store, "c"), [str(path)]).batch)
    decide_ready(Corpus(store, "c"))
    told = (
        write_runs(Path(store.root).parent / f"told-{seed}.jsonl", tasks=30, attempts=4, seed=seed)
        .read_text("utf-8")
        .splitlines()
    )
    truth = {
        f"new-{seed}-{item['trajectory_id']}": item["outcome"] for item in map(json.loads, told)
    }
    rows = decisions_of(Corpus(store, "c"), batch)
    asked = rows.loc[rows["asked"].isin(["audit_sample", "spot_check"]), "trajectory_id"]
    append_labels(
        Corpus(store, "c"),
        [Label(name, truth[name], "ann", "file", f"ann {name}") for name in asked],
    )


def _decide(store: Store) -> None:
    if (refusal := Deployment.of(Corpus(store, "c")).refusal) is not None:
        raise CertifyError(refusal.sentence)


def _recertify(store: Store) -> None:
    plan_recertification(judged(store))
    recertification_certificates(Corpus(store, "c"), 1)


def _monitor(store: Store) -> None:
    load_monitor(judged(store))
    for certificate in deployed_certificates(Corpus(store, "c")):
        operation_stream(Corpus(store, "c"), certificate)


def _lineage(store: Store) -> None:
    names = batch_names(Corpus(store, "c"))
    run = str(decisions_of(Corpus(store, "c"), names[0])["trajectory_id"].iloc[0])
    trees = [walk(store, item) for name in (run, names[0]) for item in find(store, name, "c")]
    if broken := [link for tree in trees for link in tree.walk() if link.broken]:
        raise CertifyError(f"{broken[0].kind} {broken[0].name} {broken[0].status}")


def _review(store: Store) -> None:
    asked = load_asked(Corpus(store, "c")).frame
    row = asked[asked["batch"] == batch_names(Corpus(store, "c"))[0]].iloc[0]
    RunLookup(store, "c").find(row["batch"], row["trajectory_id"])


def _check(store: Store) -> None:
    for verdict in (
        decided_by_deployed(Corpus(store, "c")),
        drawn_as_planned(Corpus(store, "c")),
        delta_left(Corpus(store, "c")),
    ):
        if verdict.status == "ERROR":
            raise CertifyError(verdict.sentence)


#: what a user calls → what it reads before it does anything
COMMANDS: dict[str, Callable[[Store], None]] = {
    "decide": _decide,
    "recertify": _recertify,
    "monitor": _monitor,
    "lineage": _lineage,
    "review": _review,
    "check": _check,
}


def _refusals(store: Store) -> dict[str, str]:
    """Return which commands refuse, with their sentence."""
    found = {}
    for name, command in COMMANDS.items():
        try:
            command(store)
        except CertifyError as error:
            found[name] = str(error)
    return found


def _named(store: Store) -> dict[str, str]:
    """Return the objects that deployments, a recertification and a batch rest on, by name."""
    corpus = Corpus(store, "c")
    found = dict(read_deployments(corpus)[0].objects)
    batch = batch_names(corpus)[0]
    for content in (received(corpus, batch), decided(corpus, batch).content):
        found |= {f"batch {name}": sha256 for name, sha256 in content.objects.items()}
    return found | corpus.store.hashes(["operations/c/recertifications/1"])


def _altered(store: Store, sha256: str) -> Iterator[dict[str, str]]:
    """Give the refusals where an object is altered, and where it is gone."""
    path = store.objects.path(sha256)
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-2] + b"??")
        yield _refusals(store)
        path.unlink()
        yield _refusals(store)
    finally:
        path.write_bytes(data)


@pytest.mark.slow
def test_what_is_as_it_was_written_is_refused_by_nobody(root: Path) -> None:
    assert _refusals(Store(str(root))) == {}


def test_an_altered_table_of_decisions_is_refused(root: Path) -> None:
    store = Store(str(root))
    assert all(_altered(store, _named(store)["batch decisions"]))


@pytest.mark.slow
def test_every_altered_object_is_refused(root: Path) -> None:
    store = Store(str(root))
    unnoticed = set()
    for name, sha256 in _named(store).items():
        for refusals in _altered(store, sha256):
            print(f"{name}: {', '.join(refusals)}")
            if not refusals:
                unnoticed.add(name)
    assert unnoticed == UNNOTICED
