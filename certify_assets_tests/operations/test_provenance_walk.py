from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations import certifier
from certify_assets.operations.batches import ready_batches
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import read_deployments
from certify_assets.operations.ledger import registrations
from certify_assets.operations.lineage import Link, follow, model_link
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.batch_builders import decide_again, stored_object
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.operations_builders import deliver, pin_present_files

JUDGE = "judges/lexical/c"


@pytest.fixture(scope="module")
def _decided(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("decided") / "root"
    shutil.copytree(_operated, root)
    store = Store(str(root))
    deploy(judged(store), track=False)
    receive(Corpus(store, "c"), [str(deliver(source_of(root), tasks=10).parent)])
    decide_ready(Corpus(store, "c"))
    return root


def source_of(root: Path) -> Path:
    return root.parent / "c" / "a.jsonl"


@pytest.fixture
def source(_decided: Path) -> Iterator[Path]:
    """The file that the batch was read from."""
    path = source_of(_decided)
    data = path.read_bytes()
    yield path
    path.write_bytes(data)


@pytest.fixture
def decided(_decided: Path, tmp_path: Path) -> Store:
    shutil.copytree(_decided, tmp_path / "root")
    return Store(str(tmp_path / "root"))


def batch_of(store: Store) -> str:
    (batch,) = ready_batches(Corpus(store, "c"))
    return batch


def certificate_of(store: Store) -> str:
    return read_deployments(Corpus(store, "c"))[0].certificates[0]


def followed(store: Store, name: str = "new-1-task-000/0") -> Link:
    _, (link,) = follow(store, name)
    return link


def broken(link: Link) -> set[tuple[str, str]]:
    return {(part.kind, part.status) for part in link.walk() if part.broken}


def test_a_decision_is_followed_to_its_source_files(decided: Store) -> None:
    link = followed(decided)
    assert {part.status for part in link.walk() if part.sha256} == {"holds"}
    kinds = {"certificate", "scores", "model", "manifest", "trajectories", "import", "batch"}
    assert {part.kind for part in link.walk()} >= kinds
    assert {part.name for part in link.walk() if part.kind == "source"} == {
        "c/a.jsonl",
        "runs.jsonl",
    }


def test_certificates_and_batches_are_followed_as_well(decided: Store) -> None:
    sha256 = certificate_of(decided)
    link = followed(decided, sha256[:8])
    assert link.sha256 == sha256 and not broken(link)
    assert not broken(followed(decided, batch_of(decided)))
    issued = certifier.load_certificates(judged(decided))
    deployed = read_deployments(Corpus(decided, "c"))[0].certificates
    other = next(item.sha256 for item in issued if item.sha256 not in deployed)
    assert followed(decided, other).status == "holds", "one that no deployment named"


def spoil(key: str) -> Callable[[Store], None]:
    """Let the deployment name other content under a key."""

    def change(store: Store) -> None:
        store.write_bytes(key, store.read_bytes(key) + b" ")
        pin_present_files(store)

    return change


def lose(store: Store) -> None:
    """Lose the scores that were certified."""
    store.objects.path(store.current(f"{JUDGE}/scores.parquet")).unlink()


def alter_object(name: str) -> Callable[[Store], None]:
    """Alter an object of the batch, or the certificate that decides."""

    def change(store: Store) -> None:
        deciding = name == "certificate"
        found = (
            certificate_of(store) if deciding else stored_object(store, "c", batch_of(store), name)
        )
        with store.objects.path(found).open("ab") as stream:
            stream.write(b" ")

    return change


def other_splits(store: Store) -> None:
    key = "corpora/c/splits/manifest.json"
    document = store.read_json(key)
    document["assignment"]["task-000"] = "rl"
    store.write_json(key, document)
    pin_present_files(store)


def other_plan(store: Store) -> None:
    (plan,) = registrations(Corpus(store, "c"))
    store.objects.path(plan.registration).write_text('{"seed": 1}', "utf-8")


def other_decision(store: Store) -> None:
    batch = batch_of(store)
    frame = first_decisions_of(Corpus(store, "c"), batch)
    others = store.objects.put_table(frame.assign(decision="release"))
    decide_again(store, "c", batch, decisions=others)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lose, {("scores", "missing")}),
        (spoil(f"{JUDGE}/adapter/weights.safetensors"), {("model", "differs")}),
        (other_splits, {("manifest", "differs")}),
        (other_plan, {("registration", "differs")}),
        (alter_object("draw"), {("draw", "differs")}),
        (alter_object("certificate"), {("certificate", "differs"), ("decision", "differs")}),
        (other_decision, {("decision", "differs")}),
    ],
)
def test_a_link_that_does_not_hold_is_found(
    decided: Store, fault: Callable[[Store], None], expected: set[tuple[str, str]]
) -> None:
    fault(decided)
    link = followed(decided)
    assert broken(link) == expected


def test_what_is_trained_or_delivered_later_breaks_no_link(decided: Store) -> None:
    for key in (f"{JUDGE}/scores.parquet", "corpora/c/trajectories.parquet"):
        decided.write_bytes(key, decided.read_bytes(key) + b" ")
    decided.delete(f"{JUDGE}/adapter.json")
    assert not broken(followed(decided))


def test_a_source_that_was_changed_breaks_a_link(decided: Store, source: Path) -> None:
    source.write_bytes(source.read_bytes() + b" ")
    assert broken(followed(decided)) == {("source", "differs")}


def test_a_source_that_was_moved_is_told_and_breaks_nothing(decided: Store, source: Path) -> None:
    source.unlink()
    link = followed(decided)
    assert (
        not broken(link)
        and next(part for part in link.walk() if part.name == "c/a.jsonl").status == "missing"
    )


def test_an_id_that_names_nothing_or_too_much_is_refused(decided: Store, tmp_path: Path) -> None:
    for name in ("nothing", "abc", "f" * 64):
        with pytest.raises(InputError, match=f"Nothing is called '{name}'"):
            follow(decided, name)
    register_runs(decided, "d", write_runs(tmp_path / "d.jsonl", tasks=2))
    receive(Corpus(decided, "d"), [str(deliver(tmp_path / "e.jsonl", tasks=2))])
    decide_ready(Corpus(decided, "d"))
    with pytest.raises(InputError, match=r"is in c, d\. Choose one with --corpus"):
        follow(decided, "new-1-task-000/0")
    corpus, (link,) = follow(decided, "new-1-task-000/0", "d")
    assert corpus == "d" and not broken(link)
    assert link.status == "told", "nothing decided it but the refusal"


def test_a_run_that_changed_is_followed_twice(decided: Store, source: Path) -> None:
    deliver(source, tasks=1, change=lambda record: record.update(agent="other"))
    receive(Corpus(decided, "c"), [str(source.parent)])
    decide_ready(Corpus(decided, "c"))
    _, (first, second) = follow(decided, "new-1-task-000/0")
    assert broken(first) == {("source", "differs")} and not broken(second)


@pytest.fixture(scope="module")
def harvested(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("harvested")
    store = Store(str(folder / "root"))
    register_runs(store, "c", write_runs(folder / "runs.jsonl", tasks=160, attempts=4))
    Corpus(store, "c").prepare_splits()
    for judge in ("lexical", "lexical_harvest_1"):
        judged(store, judge=judge).train()
        judged(store, judge=judge).score()
    return store


def test_an_adapter_is_followed_through_its_harvest_to_the_one_before(harvested: Store) -> None:
    folder = "judges/lexical_harvest_1/c"
    sha256 = harvested.read_json(f"{folder}/adapter.json")["adapter_sha256"]
    link = model_link(judged(harvested, judge="lexical_harvest_1"), sha256)
    (harvest,) = link.links
    assert harvest.kind == "harvest" and [part.kind for part in harvest.links] == ["model"]
    assert {part.status for part in link.walk()} == {"holds"}
