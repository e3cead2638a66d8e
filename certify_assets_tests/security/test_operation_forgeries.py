"""Altered documents of operation: every value that a decision, a recertification or the monitor rests on, and who refuses it."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.checks import decided_by_deployed, delta_left, drawn_as_planned
from certify_assets.operations.delivery import Identities
from certify_assets.operations.deployment import Deployment, deployed_certificates
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.layout import (
    RunLookup,
    batch_names,
    batch_runs,
    certificate_key,
    decisions_of,
    is_decided,
    ready_batches,
)
from certify_assets.operations.lineage import find, walk
from certify_assets.operations.monitoring import load_monitor, monitor_judge, operation_stream
from certify_assets.operations.recertification import plan_recertification, recertify
from certify_assets.operations.recertification_record import recertification_certificates
from certify_assets.operations.review_queue import load_asked
from certify_assets.operations.review_session import ReviewSession
from certify_assets.operations.rollout import deploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.snapshot import Snapshot
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, write_runs
from certify_assets_tests.operations_builders import deliver
from certify_assets_tests.security.altering import (
    altered,
    altered_journal,
    altered_tables,
    leaves,
    rearranged_journal,
)

PLAN = SamplingPlan(0.3, 0.2, 5)
#: document → what nobody notices, and needs not: it describes, or nothing was made of it yet
UNNOTICED: dict[str, set[str]] = {
    # what MLflow answered comes after the line of the journal
    "deployment.json": {"mlflow", "previous"},
    "spending.jsonl": set(),
    "deployments.jsonl": set(),
    "labels.jsonl": set(),
    "certificates": set(),
    "recertifications/recertification.json": set(),
    "recertifications/certificates.json": set(),
    "recertifications/scores.parquet": set(),
    "batches/import.json": set(),
    "batches/draw.json": set(),
    # what it counts and says; the hashes of the tables that it counts are compared
    "batches/batch.json": {
        *(
            "schema",
            "time",
            "decided",
            "deployment",
            "judge",
            "rows",
            "tasks",
            "runs",
            "new",
            "changed",
            "known",
            "outcomes_left_out",
            "new_agents",
            "promises.0",
        ),
        *(f"decisions.{name}" for name in ("human", "reject")),
        *(f"reasons.{name}" for name in ("below_threshold", "middle")),
        *(f"asked.{name}" for name in ("", "audit_sample", "spot_check", "undecided")),
        *(f"drawn_tasks.{name}" for name in ("spot", "audit")),
    },
    "batches/runs.parquet": set(),
    "batches/identities.parquet": set(),
    "batches/scores.parquet": set(),
    "batches/decisions.parquet": set(),
    "batches/comparison.json": set(),
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


def _receive(store: Store) -> None:
    # who was there before, which a delivery is compared with
    corpus = Corpus(store, "c")
    Identities.stored(corpus, ready_batches(corpus), ())


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
    "receive": _receive,
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


def _alterations(store: Store, key: str) -> Iterator[tuple[str, bytes]]:
    """Give every document, journal or table with one thing changed."""
    data = store.read_bytes(key)
    if key.endswith(".jsonl"):
        few = data.splitlines(keepends=True)
        # of a long journal the first lines and the last
        yield from (
            altered_journal(data) if len(few) < 9 else ((name, part) for name, part in _ends(data))
        )
        if len(few) > 1:
            yield from rearranged_journal(data)
    elif key.endswith(".json"):
        document = json.loads(data)
        for path in leaves(document):
            yield ".".join(map(str, path)), json.dumps(altered(document, path)).encode()
        yield "unreadable", data[: len(data) // 2]
        yield "nested", b"[" * 100_000
    else:
        yield from altered_tables(data)
        yield "unreadable", data[: len(data) // 2]


def _ends(data: bytes) -> Iterator[tuple[str, bytes]]:
    lines = data.splitlines(keepends=True)
    for name, part in altered_journal(b"".join([*lines[:1], lines[-1]])):
        first, last = part.splitlines(keepends=True)
        yield name, b"".join([first, *lines[1:-1], last])


def _key(store: Store, name: str) -> str:
    """Return where a kind of document lies: of the first batch, the first recertification, a certificate that decided."""
    kind, _, file = name.partition("/")
    if kind == "batches":
        return f"operations/c/batches/{batch_names(Corpus(store, 'c'))[0]}/{file}"
    if kind == "recertifications":
        return f"operations/c/recertifications/1/{file}"
    if kind == "certificates":
        return certificate_key("c", read_deployments(Corpus(store, "c"))[0].certificates[0])
    return f"operations/c/{name}"


def _assert_noticed(store: Store, name: str, *, every: int) -> tuple[int, int, Counter[str]]:
    """Alter, delete and restore a document; return how many alterations there were, how many were refused, and by whom."""
    key = _key(store, name)
    data, by = store.read_bytes(key), Counter[str]()
    let_through: list[str] = []
    todo: list[tuple[str, bytes | None]] = [*_alterations(store, key), ("deleted", None)]
    todo = [(what, part) for what, part in todo if part != data][::every]
    try:
        for what, part in todo:
            store.delete(key) if part is None else store.write_bytes(key, part)
            refusals = _refusals(store)
            by.update(refusals.keys())
            assert all(
                len(sentence) > 20 and "\n" not in sentence for sentence in refusals.values()
            ), (what, refusals)
            let_through += [] if refusals else [what]
    finally:
        store.write_bytes(key, data)
    passed = {"mlflow" if what.startswith("mlflow.") else what for what in let_through}
    assert passed <= UNNOTICED[name], passed - UNNOTICED[name]
    assert every > 1 or passed == UNNOTICED[name], (
        "noticed by now: take it out of the list and of docs/security.md"
    )
    return len(todo), len(todo) - len(let_through), by


@pytest.mark.slow
def test_what_is_as_it_was_written_is_refused_by_nobody(root: Path) -> None:
    assert _refusals(Store(str(root))) == {}


@pytest.mark.parametrize("name", ["deployments.jsonl", "batches/decisions.parquet"])
def test_some_alterations_are_refused(root: Path, name: str) -> None:
    assert _assert_noticed(Store(str(root)), name, every=20)[0] > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", UNNOTICED)
def test_every_alteration_is_refused_but_those_that_describe(root: Path, name: str) -> None:
    # what does not come from the altered document is read and verified once
    there, refused, by = _assert_noticed(Snapshot(Store(str(root))), name, every=1)
    print(
        f"{name}: {refused} of {there} alterations refused; {', '.join(f'{who} {number}' for who, number in by.most_common())}"
    )


@pytest.fixture
def store(root: Path, tmp_path: Path) -> Store:
    shutil.copytree(root, tmp_path / "root")
    return Store(str(tmp_path / "root"))


@pytest.mark.parametrize("file", ["runs.parquet", "identities.parquet", "draw.json"])
def test_what_waits_is_not_decided_once_it_is_altered(
    store: Store, tmp_path: Path, file: str
) -> None:
    batch = str(
        receive(Corpus(store, "c"), [str(deliver(tmp_path / "more.jsonl", tasks=5, seed=9))]).batch
    )
    key = f"operations/c/batches/{batch}/{file}"
    data = store.read_bytes(key)
    store.write_bytes(key, next(part for _, part in _alterations(store, key) if part != data))
    with pytest.raises(IntegrityError, match="is not what was imported"):
        decide_ready(Corpus(store, "c"))
    assert not is_decided(Corpus(store, "c"), batch)


def test_runs_that_were_altered_are_not_shown_to_people(store: Store) -> None:
    key = _key(store, "batches/runs.parquet")
    frame = batch_runs(Corpus(store, "c"), batch_names(Corpus(store, "c"))[0])
    store.write_table(key, frame.assign(instruction="Say that it was done."))
    session = ReviewSession(store, "c")
    shown = session.shown("bob")
    assert shown is None or shown.run.instruction != "Say that it was done."
    assert session.unreadable()
    assert "is not what it was when the batch was decided" in session.unreadable()[0]
