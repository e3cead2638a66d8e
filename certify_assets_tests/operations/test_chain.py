"""The chain of a judge on a small corpus, and everything that must make it refuse."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import parquet_bytes
from certify_assets.defs.corpora import disjoint_tasks
from certify_assets.errors import (
    ForgedCertificateError,
    IntegrityError,
    LeakError,
    LedgerError,
    ManifestError,
    StaleCertificateError,
)
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge, overview
from certify_assets.operations.ledger import ledger_entries
from certify_assets.reports.judge_page import write_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, stored, write_runs
from certify_assets_tests.conftest import copy_world

JUDGE = "lexical"


def _prepare(store: Store, source: Path, **config: object) -> None:
    register_runs(store, "c", source, **config)
    Corpus(store, "c").prepare()


def _run(store: Store, judge: str = JUDGE) -> None:
    judged(store, "c", judge).train()
    judged(store, "c", judge).score()
    certifier.certify_judge(judged(store, "c", judge))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root up to the splits, and one with a finished chain, copied for every test."""
    folder = tmp_path_factory.mktemp("chain")
    store = Store(str(folder / "split"))
    _prepare(store, write_runs(folder / "runs.jsonl", tasks=60))
    shutil.copytree(folder / "split", folder / "finished")
    done = Store(str(folder / "finished"))
    _run(done)
    audit_judge(judged(done))
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    return copy_world(template / "split", tmp_path)


@pytest.fixture
def finished(template: Path, tmp_path: Path) -> Store:
    return copy_world(template / "finished", tmp_path)


def _files(store: Store) -> dict[str, bytes]:
    """Everything in a data root but what a stage cost."""
    return {key: data for key, data in stored(store).items() if not key.endswith("timings.json")}


def test_the_chain_runs_and_running_it_again_gives_the_same_bytes(finished: Store) -> None:
    first = _files(finished)
    document = overview(Corpus(finished, "c"))
    assert [judge["judge"] for judge in document["judges"]] == [JUDGE]
    _run(finished)
    audit_judge(judged(finished))
    second = _files(finished)
    audits = "judges/lexical/c/audits.json"
    assert json.loads(first.pop(audits))["audits"] == json.loads(second.pop(audits))["audits"]
    assert first == second
    kinds = [entry.kind for entry in ledger_entries(Corpus(finished, "c"))]
    assert kinds.count("pool") <= 1, "the same pool again adds no line"
    assert [kind for kind in kinds if kind != "pool"] == [
        "registration",
        "first",
        "result",
        "replay",
        "result",
    ]
    assert certifier.verify_stored(judged(finished)) == []


def test_a_good_judge_certifies_and_the_audit_sees_test_only_through_the_ledger(
    finished: Store,
) -> None:
    certificate = certifier.certificate_of(
        certifier.load_certificates(judged(finished)), side="reject", alpha=0.2
    )
    assert certificate.certified and certificate.coverage > 0.2
    table = finished.read_table("judges/lexical/c/scores.parquet")
    assert table.loc[table["split"] == "test", "outcome"].isna().all()
    assert table.loc[table["split"] == "cal", "outcome"].notna().all()
    audits = finished.read_json("judges/lexical/c/audits.json")["audits"]
    assert {audit["verdict"] for audit in audits} <= {"PASS", "WARN", "ERROR"}


@pytest.mark.slow
def test_the_weighted_judge_pays_for_its_candidates(store: Store) -> None:
    _run(store, "lexical_weighted")
    adapter = store.read_json("judges/lexical_weighted/c/adapter.json")
    assert adapter["candidates"] == 4
    assert [row["success_weight"] for row in adapter["selection"]] == [1.0, 3.0, 10.0, 30.0]
    for certificate in certifier.load_certificates(judged(store, "c", "lexical_weighted")):
        assert certificate.candidates == 4
        shares = 3 if certificate.procedure == "pseudo_task" else 40
        assert certificate.level == pytest.approx(0.05 / (4 * shares))
        assert "divided by the number of candidates" in str(certificate.selection)


def _alter_manifest(store: Store) -> None:
    key = "corpora/c/splits/manifest.json"
    document = store.read_json(key)
    task = next(name for name, split in document["assignment"].items() if split == "test")
    document["assignment"][task] = "sft"
    store.write_json(key, document)


def test_an_altered_manifest_stops_every_step_in_any_run(finished: Store) -> None:
    _alter_manifest(finished)
    steps = (
        lambda: Corpus(finished, "c").write_split("sft"),
        lambda: Corpus(finished, "c").measure_profile(),
        lambda: judged(finished).train(),
        lambda: judged(finished).score(),
        lambda: certifier.certify_judge(judged(finished)),
        lambda: certifier.load_certificates(judged(finished)),
        lambda: audit_judge(judged(finished)),
    )
    for step in steps:
        with pytest.raises(ManifestError, match="altered"):
            step()


def _write_split(store: Store, split: str, frame: pd.DataFrame) -> None:
    store.write_bytes(f"corpora/c/splits/{split}.parquet", parquet_bytes(frame))


def test_a_split_that_holds_another_splits_task_stops_training(
    store: Store,
) -> None:
    sft, test = (Corpus(store, "c").split(split) for split in ("sft", "test"))
    _write_split(store, "sft", pd.concat([sft, test.iloc[:1]], ignore_index=True))
    with pytest.raises(ManifestError, match="does not hold the sft split"):
        judged(store).train()
    assert disjoint_tasks(Corpus(store, "c"), "sft").status == "ERROR"


@pytest.mark.parametrize("split", ["cal", "test"])
def test_a_flipped_outcome_in_a_split_stops_every_reader(finished: Store, split: str) -> None:
    frame = Corpus(finished, "c").split(split)
    frame.loc[0, "outcome"] = 1 - frame.loc[0, "outcome"]
    _write_split(finished, split, frame)
    for read in (judged(finished).score, lambda: audit_judge(judged(finished))):
        with pytest.raises(ManifestError, match=f"does not hold the {split} split"):
            read()


def test_scores_altered_together_with_their_hash_do_not_recompute(finished: Store) -> None:
    key = "judges/lexical/c/scores.parquet"
    table = finished.read_table(key)
    place = table.index[table["split"] == "cal"][0]
    meta = finished.read_json("judges/lexical/c/scores.json")
    table.loc[place, "score"] += 1.0
    finished.write_json(
        "judges/lexical/c/scores.json", {**meta, "scores_sha256": finished.write_table(key, table)}
    )
    certifier.certify_judge(judged(finished))
    assert "other scores" in certifier.verify_stored(judged(finished))[0]
    table.loc[place, "outcome"] = 1 - table.loc[place, "outcome"]
    finished.write_json(
        "judges/lexical/c/scores.json", {**meta, "scores_sha256": finished.write_table(key, table)}
    )
    with pytest.raises(StaleCertificateError, match=r"labels of (RL|CAL)"):
        certifier.certify_judge(judged(finished))


def _forge(document: dict[str, object]) -> dict[str, object]:
    """Alter the promise and recompute the digest, as somebody would who knows how it is made."""
    from certify_assets.certificates import Certificate

    forged = Certificate.from_dict(document).replace(statement="Nobody needs to read anything.")
    return forged.to_dict()


def test_a_forged_certificate_with_its_digest_is_neither_audited_nor_drawn(finished: Store) -> None:
    from certify_assets.reports.index_page import write_index
    from certify_assets.reports.judge_page import write_page

    key = "judges/lexical/c/certificates.json"
    document = finished.read_json(key)
    document["certificates"][0] = _forge(document["certificates"][0])
    finished.write_json(key, document)
    for step in (audit_judge, write_page):
        with pytest.raises(ForgedCertificateError, match="do not recompute"):
            step(judged(finished))
    finished.write_bytes("judges/lexical/c/page.html", b"an old page")
    write_index(finished)
    assert b"Not valid now" in finished.read_bytes("index.html")


def test_a_certificate_of_an_event_that_the_ledger_lost_is_refused(finished: Store) -> None:
    from certify_assets.certificates import Certificate

    key = "judges/lexical/c/certificates.json"
    items = map(Certificate.from_dict, finished.read_json(key)["certificates"])
    later = [item.replace(ledger={**item.ledger, "sequence": 999}).to_dict() for item in items]
    finished.write_json(key, {**finished.read_json(key), "certificates": later})
    with pytest.raises(LedgerError, match=r"of c lost event 999 that .* restore the newer one"):
        audit_judge(judged(finished))


def test_new_runs_make_the_old_certificate_stale(finished: Store, tmp_path: Path) -> None:
    register_runs(finished, "c", write_runs(tmp_path / "runs.jsonl", tasks=60, seed=1))
    Corpus(finished, "c").import_trajectories()
    with pytest.raises(StaleCertificateError, match="another trajectories"):
        certifier.load_certificates(judged(finished))


def _leaking(path: Path) -> Path:
    """Runs whose length alone tells the outcome."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for record in records:
        if record["outcome"]:
            record["steps"] += [{"action": "look()", "observation": "more of the same page"}] * 20
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n", "utf-8")
    return path


@pytest.mark.slow
def test_a_structural_leak_stops_the_certificate_until_it_is_accepted_with_a_reason(
    tmp_path: Path,
) -> None:
    source = _leaking(write_runs(tmp_path / "runs.jsonl", tasks=60))
    store = Store(str(tmp_path / "root"))
    _prepare(store, source)
    judged(store).train()
    judged(store).score()
    with pytest.raises(LeakError, match="length"):
        certifier.certify_judge(judged(store))
    _prepare(store, source, accept_structural_leak="episodes stop at success; known")
    _run(store)
    carried = {
        item.provenance["accepted_structural_leak"]
        for item in certifier.load_certificates(judged(store))
    }
    measured = "length (AUROC 1.000, threshold 0.85), steps (AUROC 1.000, threshold 0.85)"
    assert carried == {f"{measured}; accepted: episodes stop at success; known"}
    audit_judge(judged(store))
    assert measured in Path(write_page(judged(store))).read_text("utf-8")


@pytest.mark.parametrize(
    "changed", [{"leak_thresholds": {"length": 0.99}}, {"accept_structural_leak": "later"}]
)
def test_controls_measured_under_another_configuration_stop_the_certificate(
    store: Store, changed: dict[str, object]
) -> None:
    judged(store).train()
    judged(store).score()
    save_config(store, replace(load_config(store, "c"), **changed))  # type: ignore[arg-type]
    with pytest.raises(LeakError, match="materialize corpora/leak_controls"):
        certifier.certify_judge(judged(store))


@pytest.mark.slow
def test_a_document_that_counts_fewer_candidates_than_there_were_certifies_nothing(
    finished: Store,
) -> None:
    _run(finished, "lexical_weighted")
    key = "judges/lexical_weighted/c/adapter.json"
    document = finished.read_json(key)
    assert document["candidates"] == 4
    finished.write_json(key, {**document, "candidates": 1})
    with pytest.raises(IntegrityError, match="counts 1 candidates, but the judge has 4"):
        certifier.certify_judge(judged(finished, "c", "lexical_weighted"))
