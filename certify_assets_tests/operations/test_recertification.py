"""Recertification: once for each set of labels, recomputable, and safe from alterations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from certify_assets.cli.check import verify
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, ForgedCertificateError, GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import certifier, recertification
from certify_assets.operations.audit_sample import RunDraw, SamplingPlan, count_audit_tasks
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.deploying import promote
from certify_assets.operations.deployment import read_certificates
from certify_assets.operations.labels import Label, append_label, labels_head
from certify_assets.operations.recertification import plan_recertification, recertify
from certify_assets.operations.recertification_record import (
    recertification_certificates,
    recertification_key,
    recertifications,
)
from certify_assets.operations.spending import Schedule, read_spending
from certify_assets.storage.store import Store
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    drawn_run,
    drawn_tasks,
    label_rows,
    write_batch,
    write_decisions,
)

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 60)
NAMES = ("recertification.json", "certificates.json", "scores.parquet")


def judge_of(store: Store) -> JudgedCorpus:
    return JudgedCorpus(Corpus(store, "one"), JUDGE)


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    label_rows(corpora, "one", write_batch(corpora, "one", "0001-a", PLAN, tasks=AUDIT[:30]))
    return corpora


def more(
    store: Store, batch: str = "0002-b", *, first: int = 30, last: int = 60, error: float = 0.02
) -> None:
    label_rows(
        store,
        "one",
        write_batch(store, "one", batch, PLAN, tasks=AUDIT[first:last], error=error, seed=first),
    )


def key(number: int, name: str = NAMES[0]) -> str:
    return recertification_key("one", number, name)


def test_it_certifies_on_cal_and_the_audit_sample_and_says_what_it_is_made_of(store: Store) -> None:
    document, said = recertify(judge_of(store))
    assert document is not None and "2 of 4" in said
    first = certifier.load_certificates(judge_of(store))[0]
    assert document.tasks == {
        "cal": first.tasks,
        "audit_sample": 30,
    } and document.delta == Schedule().share(1)
    certificates = recertification_certificates(Corpus(store, "one"), 1)
    assert [(item.side, item.alpha) for item in certificates] == [
        ("reject", 0.1),
        ("release", 0.1),
        ("reject", 0.2),
        ("release", 0.2),
    ]
    for item in certificates:
        assert (
            item.tasks == first.tasks + 30
            and item.delta == document.delta
            and item.provenance["recertification"] == "1"
        )
        assert (
            item.provenance["labels_sha256"] == labels_head(Corpus(store, "one")).sha256
            and item.sha256 in document.certificates
        )
        assert item.provenance["adapter_sha256"] == first.provenance["adapter_sha256"]
    assert "94 %" in document.joint and "90 %" in document.joint


def test_a_label_that_comes_while_delta_is_claimed_is_not_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = labels_head(Corpus(store, "one")), recertification.claim

    def late(*about: Any) -> Any:
        label = Label("elsewhere", 1, "ann", "page", "late")
        append_label(Corpus(Store(store.root), "one"), label)
        return real(*about)

    monkeypatch.setattr(recertification, "claim", late)
    document, _ = recertify(judge_of(store))
    assert document is not None and labels_head(Corpus(store, "one")) != read
    assert document.labels == read


def configure(store: Store, **about: Any) -> None:
    """Change the configuration of the corpus."""
    path = "corpora/one/corpus.json"
    store.write_json(path, {**store.read_json(path), **about})


def written(store: Store, folder: Path) -> list[str]:
    """Write what somebody else gets of a recertification."""
    for name in NAMES[1:]:
        (folder / name).write_bytes(store.read_bytes(key(1, name)))
    return [str(folder / name) for name in NAMES[1:]]


def test_a_stranger_recomputes_it_from_what_lies_beside_it(store: Store, tmp_path: Path) -> None:
    recertify(judge_of(store))
    done = CliRunner().invoke(verify, [*written(store, tmp_path), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["certificates"] == 4


def test_the_same_labels_twice_are_one_recertification_and_spend_once(store: Store) -> None:
    document, _ = recertify(judge_of(store))
    before = {name: store.sha256(key(1, name)) for name in NAMES}
    # a label of a run that does not count changes the journal and nothing else
    append_label(Corpus(store, "one"), Label("elsewhere", 1, "ann", "page", "t"))
    again, said = recertify(judge_of(store))
    assert again == document and "nothing was spent" in said
    assert (
        before == {name: store.sha256(key(1, name)) for name in NAMES}
        and len(read_spending(Corpus(store, "one")).claims) == 1
    )


@pytest.mark.slow
def test_the_next_one_counts_more_and_spends_less(store: Store) -> None:
    first, _ = recertify(judge_of(store), schedule=Schedule("inverse_square"))
    more(store, last=45)
    nothing, said = recertify(judge_of(store))
    assert (
        nothing is None
        and "15 tasks are new" in said
        and len(read_spending(Corpus(store, "one")).claims) == 1
    )
    more(store, "0003-c", first=45)
    second, _ = recertify(judge_of(store))
    assert first is not None and second is not None
    assert second.number == 2 and second.delta < first.delta and second.tasks["audit_sample"] == 60
    assert list(second.new_tasks) == AUDIT[30:] and second.spent == pytest.approx(
        first.delta + second.delta
    )
    assert [item.number for item in recertifications(Corpus(store, "one"))] == [1, 2]
    assert (
        recertification_certificates(Corpus(store, "one"), 1)[0].tasks + 30
        == recertification_certificates(Corpus(store, "one"), 2)[0].tasks
    )


@pytest.mark.parametrize("labelled", [False, True])
def test_what_was_begun_and_never_stored_stays_spent(
    store: Store, monkeypatch: pytest.MonkeyPatch, labelled: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(recertification, "finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            recertify(judge_of(store))
    (claimed,) = read_spending(Corpus(store, "one")).claims
    assert recertifications(Corpus(store, "one")) == []
    if labelled:
        more(store)
    document, _ = recertify(judge_of(store))
    # its certificates may have been seen: other labels have a number of their own, and both are paid
    assert document is not None and document.number == (2 if labelled else 1)
    spent = claimed.delta + labelled * document.delta
    assert document.spent == pytest.approx(spent) and document.spent >= document.delta


def test_what_is_stored_under_its_keys_later_changes_nothing_of_it(store: Store) -> None:
    recertify(judge_of(store))
    before = recertification_certificates(Corpus(store, "one"), 1)
    table = store.read_table(key(1, "scores.parquet"))
    store.write_table(key(1, "scores.parquet"), table.assign(outcome=0))
    store.write_json(key(1), {**store.read_json(key(1)), "delta": 0.2})
    assert recertification_certificates(Corpus(store, "one"), 1) == before
    forged = store.read_json(key(1, "certificates.json"))
    forged["certificates"] = forged["certificates"][:1]
    store.write_json(key(1, "certificates.json"), forged)
    with pytest.raises(ForgedCertificateError):
        recertification_certificates(Corpus(store, "one"), 1)


def test_a_proof_takes_one_run_of_every_task_and_a_stranger_draws_them_again(
    store: Store, tmp_path: Path
) -> None:
    configure(store, promise="proved", alphas=(0.2,))
    more(store)
    # selected runs have labels too: those that the judge could not decide
    document, _ = recertify(judge_of(store))
    assert document is not None
    table = store.read_table(key(1, "scores.parquet"))
    drawn = [
        item
        for batch in ("0001-a", "0002-b")
        for item in RunDraw.load(Corpus(store, "one"), batch).drawn
    ]
    audit = table[table["provenance"] == "audit_sample"]
    assert len(audit) == 4 * 60 and set(audit.dropna()["trajectory_id"]) == set(drawn)
    assert document.labelled == sum(document.tasks.values()) == table["task_id"].nunique()
    reject, _ = recertification_certificates(Corpus(store, "one"), 1)
    assert reject.procedure == "one_run" and reject.certified and reject.promise == "proved"
    assert reject.inputs["sample"]["estimand"] == "tasks" and "one random run" in reject.statement
    done = CliRunner().invoke(verify, [*written(store, tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    table.loc[table["trajectory_id"] == drawn[0], "task_id"] = "another"
    table.to_parquet(tmp_path / "scores.parquet")
    files = [str(tmp_path / name) for name in NAMES[1:]]
    assert CliRunner().invoke(verify, files).exit_code == 3


def test_what_holds_on_average_is_tried_second_and_not_deployed_unless_the_corpus_says_so(
    store: Store,
) -> None:
    more(store)
    configure(store, promise="proved", alphas=(0.045,))
    document, _ = recertify(judge_of(store))
    assert document is not None
    side = document.sides[0]
    assert (side.promise, side.certified) == ("average", True)
    assert {"second_promise", "next_promise"} <= {item["code"] for item in document.findings}
    with pytest.raises(GateClosedError, match="deploy_average"):
        promote(Corpus(store, "one"), document)
    configure(store, promise="proved", alphas=(0.045,), deploy_average=True)
    (deployable,) = [
        item for item in read_certificates(judge_of(store), document.number) if item.certified
    ]
    assert deployable.promise == "average"


def test_a_proof_waits_for_the_label_of_every_drawn_run(store: Store) -> None:
    configure(store, promise="proved", alphas=(0.2,))
    rows = write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[30:])
    last = rows["task_id"] == AUDIT[30]
    label_rows(store, "one", rows[~last])
    # open at first, tied then
    for reviewers in ((), ("ann", "bob")):
        for who in reviewers:
            label_rows(store, "one", rows[last], reviewer=who, flip=lambda _, odd=who == "bob": odd)
        document, said = recertify(judge_of(store))
        assert document is None and "Drawn runs that are open or tied: 1." in said
    assert read_spending(Corpus(store, "one")).claims == ()
    label_rows(store, "one", rows[last], reviewer="cyd")
    document, _ = recertify(judge_of(store))
    assert document is not None and document.sides[0].promise == "proved"


def test_it_tries_the_thresholds_that_the_corpus_asks_for(store: Store) -> None:
    configure(store, grid=7)
    recertify(judge_of(store))
    found = recertification_certificates(Corpus(store, "one"), 1)
    assert {item.settings["grid"] for item in found} == {7}


def test_too_few_tasks_for_a_proof_spend_nothing(store: Store) -> None:
    configure(store, promise="proved", alphas=(0.01,))
    document, said = recertify(judge_of(store))
    assert document is None and "are needed to certify anything. Nothing was spent." in said
    assert read_spending(Corpus(store, "one")).claims == ()


def test_another_adapter_makes_it_stale_and_the_old_rows_do_not_count(store: Store) -> None:
    recertify(judge_of(store))
    path = f"judges/{JUDGE}/one/adapter.json"
    store.write_json(path, store.read_json(path) | {"adapter_sha256": "e" * 64})
    with pytest.raises(CertifyError):
        recertification_certificates(Corpus(store, "one"), 1)
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256="e" * 64, plan=PLAN)
    assert found.tasks == [] and found.left_out == {"other_adapter": 30}


@pytest.mark.slow
def test_labels_corrected_afterwards_make_another_recertification_when_it_is_asked_for(
    store: Store,
) -> None:
    document, _ = recertify(judge_of(store))
    rows = first_decisions_of(Corpus(store, "one"), "0001-a")
    # one that the judge rejects, which failed
    rejected = rows[(rows["asked"] == "audit_sample") & (rows["decision"] == "reject")]
    run = str(rejected["trajectory_id"].iloc[0])
    for reviewer in ("bob", "cleo"):
        append_label(Corpus(store, "one"), Label(run, 1, reviewer, "page", f"{reviewer} {run}"))
    assert recertify(judge_of(store))[0] is None
    corrected, _ = recertify(judge_of(store), least_new_tasks=0)
    assert (
        document is not None
        and corrected is not None
        and corrected.number == 2
        and corrected.new_tasks == ()
    )
    outcomes = [
        store.read_table(key(number, "scores.parquet"))
        .set_index("trajectory_id")
        .loc[run, "outcome"]
        for number in (1, 2)
    ]
    assert outcomes == [0, 1]


@pytest.mark.slow
def test_open_tasks_are_met_with_a_warning_and_the_worst_case(store: Store) -> None:
    rows = write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[30:], seed=3)
    label_rows(store, "one", rows[rows["trajectory_id"] != drawn_run(rows, AUDIT[30])])
    document, _ = recertify(judge_of(store))
    assert (
        document is not None
        and document.left_out == {"open": 1}
        and [item["code"] for item in document.findings][:1] == ["open"]
    )
    write_batch(
        store,
        "one",
        "0003-c",
        PLAN,
        tasks=drawn_tasks(PLAN, "one", 10, prefix="late"),
        seed=4,
    )
    label_rows(
        store,
        "one",
        write_batch(
            store,
            "one",
            "0004-d",
            PLAN,
            tasks=drawn_tasks(PLAN, "one", 20, prefix="last"),
            seed=5,
        ),
    )
    document, _ = recertify(judge_of(store))
    assert document is not None and document.open_share == pytest.approx(11 / 90)
    assert [item["code"] for item in document.findings][:2] == ["open_tasks", "open"]
    side = document.sides[0]
    assert side.worst_error > side.selective_error


def test_a_run_that_is_in_cal_too_is_refused(store: Store) -> None:
    known = str(judge_of(store).calibration[0]["trajectory_id"].iloc[0])
    table = first_decisions_of(Corpus(store, "one"), "0001-a")
    again = table[table["asked"] == "audit_sample"].iloc[:1]
    again = again.assign(batch="0002-b", task_id=AUDIT[30], trajectory_id=known)
    write_decisions(store, "one", "0002-b", again, plan=PLAN)
    append_label(Corpus(store, "one"), Label(known, 0, "ann", "page", "x"))
    with pytest.raises(CertifyError, match="in CAL and in the audit sample"):
        plan_recertification(judge_of(store))
