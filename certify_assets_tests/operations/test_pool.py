"""The platform's pool: every task that certifies nothing, by the rule, stored, and no outcome of it."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from certify_assets.certificates import Certificate, certify
from certify_assets.cli.main import main
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import ForgedCertificateError, IntegrityError, StaleCertificateError
from certify_assets.judges.families.lexical import LexicalFamily, LexicalJudge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import StoredPool, load_pool, stored_pool
from certify_assets.judges.record import columns, texts
from certify_assets.judges.task_folds import stored_task_folds, write_pool
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.certifier import (
    certify_judge,
    deciding_certificates,
    load_certificates,
    verify_stored,
    why_nothing,
)
from certify_assets.operations.ledger import ledger_entries, ledger_status
from certify_assets.operations.spending import read_spending
from certify_assets.reports import judge_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.conftest import copy_world, prepared_world

PROCEDURES = ("pseudo_task", "naive")
CERTIFICATES = "judges/lexical/c/certificates.json"


def _scored(root: Path) -> Store:
    """A corpus with runs in every split, of which RL certifies too, scored and not yet certified."""
    store = Store(str(root))
    root.mkdir(parents=True)
    register_runs(store, "c", write_runs(root.parent / "runs.jsonl", tasks=80, attempts=3))
    Corpus(store, "c").prepare()
    judged(store).train()
    judged(store).score()
    return store


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_world(tmp_path_factory, "pool", _scored)


@pytest.fixture(autouse=True)
def _few_procedures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certify_assets.operations.certifier.PROCEDURES", PROCEDURES)


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    return copy_world(template, tmp_path)


def certified(store: Store) -> list[Certificate]:
    return certify_judge(judged(store))


def stored(store: Store) -> StoredPool:
    return StoredPool.from_dict(store.read_json(CERTIFICATES)["pool"])


def test_the_rule_takes_every_task_that_certifies_nothing(store: Store) -> None:
    judge = judged(store)
    found, tasks = stored_pool(judge), judge.corpus.manifest.tasks
    taken = {part.name: set(part.scores) for part in found.parts}
    assert judge.calibration_splits == ("rl", "cal")
    assert taken == {
        "sft": set(tasks["sft"]),
        "rl": set(),
        "cal": set(),
        "test": set(tasks["test"]),
    }
    pool = found.pool
    assert pool is not None and pool.unscored == 0
    assert set(pool.labels).isdisjoint(judge.calibration[0]["task_id"])
    assert pool.fingerprint["origin"] == "every_task"
    # TEST as the judge scored it, SFT by judges that never saw the task
    table = store.read_table(judge.key("scores.parquet"))
    of_test = table[table["split"] == "test"]
    assert found.parts[3].scores == {
        task: tuple(sorted(rows["score"])) for task, rows in of_test.groupby("task_id")
    }
    fold = stored_task_folds(judge).folds[0]
    runs = judge.corpus.split("sft")
    others = runs[~runs["task_id"].isin(fold.tasks)]
    model = LexicalFamily().fitted(others, judge.reading, seed=judge.spec.seed)
    mine = runs[runs["task_id"] == fold.tasks[0]]
    again = model.score(texts(mine, judge.renderer)).score
    assert found.parts[0].scores[fold.tasks[0]] == tuple(sorted(again.tolist()))
    assert "out of fold" in found.sentence and f"{len(pool.labels)} tasks" in found.sentence
    assert found == StoredPool.from_dict(json.loads(found.to_json()))


def test_no_outcome_of_the_pool_changes_a_byte(template: Path, tmp_path: Path) -> None:
    found = []
    for poisoned in (False, True):
        store = copy_world(template, tmp_path / str(poisoned))
        if poisoned:
            lines = (template.parent / "runs.jsonl").read_text("utf-8").splitlines()
            test = set(judged(store).corpus.manifest.tasks["test"])
            records = [json.loads(line) for line in lines]
            for record in records:
                if record["task_id"] in test:
                    record["outcome"] = 1 - record["outcome"]
            source = tmp_path / "poisoned.jsonl"
            source.write_text("\n".join(map(json.dumps, records)) + "\n", "utf-8")
            register_runs(store, "c", source)
            Corpus(store, "c").prepare()
            judged(store).train()
            judged(store).score()
        certified(store)
        found.append(stored(store).to_json())
    assert found[0] == found[1]


def test_tasks_that_cannot_be_scored_in_seconds_are_left_out_and_counted(store: Store) -> None:
    judge = judged(store)

    class Slow(type(judge.spec)):  # type: ignore[misc]
        retrainable = False

    slow = JudgedCorpus.of(judge.corpus, Slow(**judge.spec.model_dump()))
    store.remove_tree(judge.key("folds"))
    found = write_pool(slow)
    sft = found.parts[0]
    assert not sft.scores and sft.left_out == len(judge.corpus.manifest.tasks["sft"])
    assert "takes long" in sft.reason and f"{sft.left_out} of SFT left out" in found.sentence
    assert not store.names(judge.key("folds"))


def test_an_unlabelled_task_of_a_certifying_split_is_in_the_pool(store: Store) -> None:
    judge = judged(store)
    task = judge.corpus.manifest.tasks["cal"][0]
    runs = Path(store.root).parent / "unlabelled.jsonl"
    source = Path(judge.corpus.config.paths[0]).read_text("utf-8").splitlines()
    records = [json.loads(line) for line in source]
    for record in records:
        if record["task_id"] == task:
            record["outcome"] = None
    runs.write_text("\n".join(map(json.dumps, records)) + "\n", "utf-8")
    register_runs(store, "c", runs, options={"keep_unlabelled": True})
    Corpus(store, "c").prepare()
    judged(store).train()
    judged(store).score()
    assert set(stored_pool(judged(store)).parts[2].scores) == {task}


def test_certificates_name_the_stored_pool_and_recompute_with_it(store: Store) -> None:
    made = certified(store)
    judge = judged(store)
    assert load_certificates(judge) == made
    of_pseudo = [item for item in made if item.procedure == "pseudo_task"]
    pool = stored(store).pool
    assert pool is not None
    assert {item.inputs["pool"]["sha256"] for item in of_pseudo} == {pool.sha256}
    assert all("pool" not in item.inputs for item in made if item.procedure == "naive")
    assert verify_stored(judge) == []
    lacking = [item for item in deciding_certificates(judge) if not item.certified]
    assert len(why_nothing(judge)) == len(lacking)
    found = load_pool(judge, made)
    assert found is not None and load_pool(judge, made[1:2]) is None
    # a second run makes the same bytes, spends nothing and adds no line
    before = stored(store), ledger_entries(judge.corpus)
    assert certified(store) == made
    assert before == (stored(store), ledger_entries(judge.corpus))
    assert len(read_spending(judge.corpus).tests) == 1


def test_the_ledger_notes_the_pool_and_the_audit_stays_the_first_read(store: Store) -> None:
    certified(store)
    entries = ledger_entries(Corpus(store, "c"))
    assert [entry.kind for entry in entries] == ["registration", "pool"]
    result = audit_judge(judged(store))
    assert result.entry.kind == "first"
    assert result.entry.number == 1
    assert {audit.reading for audit in result.audits} == {1}, "at its whole δ"
    status = ledger_status(Corpus(store, "c"))
    assert [read["kind"] for read in status["reads"]] == ["first"] and not status["violations"]
    (reader,) = status["readers"]
    assert (reader["pool"], reader["first"]) == (1, 1)


def test_an_altered_or_missing_pool_is_refused(store: Store) -> None:
    certified(store)
    document, pool = store.read_json(CERTIFICATES), stored(store)
    test = pool.parts[3]
    other = replace(test, scores={**test.scores, next(iter(test.scores)): (9.0,)})
    altered = pool.replace(parts=(*pool.parts[:3], other))
    store.write_json(CERTIFICATES, {**document, "pool": altered.to_dict()})
    with pytest.raises(IntegrityError, match="a pool that they do not name"):
        load_certificates(judged(store))
    store.write_json(CERTIFICATES, {"certificates": document["certificates"]})
    with pytest.raises(IntegrityError, match="not the JSON object of a stored pool"):
        load_certificates(judged(store))
    certified(store)
    assert stored(store) == pool


def _with_pool(store: Store, pool: StoredPool | None, origin: str = "every_task") -> None:
    """Certificates that were issued by hand with another pool, or none, and stored."""
    judge = judged(store)
    documents = store.read_json(judge.key("certificates.json"))["certificates"]
    taken = None if pool is None else pool.pool
    if taken is not None:
        taken = replace(taken, origin=origin)
    forged = [
        certify(
            *columns(judge.calibration[0]),
            alpha=item["alpha"],
            side=item["side"],
            procedure=item["procedure"],
            grid=item["settings"]["grid"],
            pool=taken if item["procedure"] == "pseudo_task" else None,
            provenance={**item["provenance"], **({} if pool is None else pool.provenance)},
            named=True,
        )
        for item in documents
    ]
    documents = [
        item.replace(ledger=document["ledger"]).to_dict()
        for item, document in zip(forged, documents, strict=True)
    ]
    of_pool = {} if pool is None else {"pool": pool.to_dict()}
    store.write_json(judge.key("certificates.json"), {"certificates": documents, **of_pool})


def test_a_pool_that_is_not_the_rules_is_refused_whatever_it_claims(store: Store) -> None:
    certified(store)
    pool = stored(store)
    few = replace(pool.parts[3], scores=dict(list(pool.parts[3].scores.items())[:2]))
    picked = pool.replace(parts=(*pool.parts[:3], few))
    _with_pool(store, picked)
    with pytest.raises(StaleCertificateError, match="the ledger grants them nothing"):
        load_certificates(judged(store))
    assert "not the one that was stored with its scores" in verify_stored(judged(store))[0]
    _with_pool(store, pool, "given")
    with pytest.raises(ForgedCertificateError, match="do not recompute"):
        load_certificates(judged(store))
    _with_pool(store, None)
    with pytest.raises(StaleCertificateError, match="the ledger grants them nothing"):
        load_certificates(judged(store))


def test_the_same_rows_with_another_pool_are_another_test(store: Store) -> None:
    certified(store)
    table = store.read_table("judges/lexical/c/scores.parquet")
    of_test = table["split"] == "test"
    table.loc[of_test, "score"] = np.round(table.loc[of_test, "score"], 2)
    about = store.read_json("judges/lexical/c/scores.json")
    about["scores_sha256"] = store.write_table("judges/lexical/c/scores.parquet", table)
    store.write_json("judges/lexical/c/scores.json", about)
    write_pool(judged(store))
    again = certified(store)
    spent = read_spending(Corpus(store, "c")).tests
    assert [one.number for one in spent] == [1, 2]
    assert {item.delta for item in again} == {spent[1].delta} and spent[1].delta < 0.05
    assert len(load_certificates(judged(store))) == len(again)


@pytest.mark.slow
def test_the_page_and_the_file_say_from_what_the_size_ratio_came(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    made = certified(store)
    audit_judge(judged(store))
    judge = judged(store)
    found = load_pool(judge, made)
    assert found is not None
    html = Path(judge_page.write_page(judge)).read_text("utf-8")
    assert found.sentence in html
    # the pool is in the document, or is given
    files = [store.locate(judge.key(name)) for name in ("certificates.json", "scores.parquet")]
    asked, pool_file = ["verify", *files], Path(store.root) / "pool.json"
    pool_file.write_bytes(found.to_json())
    for pool in ([], ["--pool", str(pool_file)]):
        with pytest.raises(SystemExit) as stopped:
            main([*asked, *pool])
        assert stopped.value.code == 0, capsys.readouterr().err


def test_certifying_trains_nothing_and_asks_no_server(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object, **named: object) -> None:
        raise AssertionError("a certificate only reads what was stored before")

    for owner, name in (
        *((JudgedCorpus, name) for name in ("train", "score", "load")),
        *((LexicalFamily, name) for name in ("train", "fitted", "held_out", "reload")),
        *((LexicalJudge, name) for name in ("crossfit", "score", "decided")),
        (socket, "socket"),
    ):
        monkeypatch.setattr(owner, name, refused)
    made = certified(store)
    assert load_certificates(judged(store)) == made
    with pytest.raises(AssertionError, match="was stored before"):
        verify_stored(judged(store))
