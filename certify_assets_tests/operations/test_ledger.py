from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import LedgerError
from certify_assets.judges.families.lexical import LexicalSpec
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import certifier
from certify_assets.operations.ledger import (
    ledger_entries,
    ledger_violations,
    record_read,
    register,
)
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged

PLAN = {"manifest_sha256": "m", "seed": 42, "grid": 40, "alphas": [0.1], "delta": 0.05}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def _read(store: Store, registration: str, **configuration: str) -> str:
    return record_read(
        Corpus(store, "c"),
        judge="j",
        registration=registration,
        configuration=configuration,
        run_id="r",
    ).kind


def test_an_unregistered_read_is_refused_and_recorded(store: Store) -> None:
    with pytest.raises(LedgerError, match="Register first"):
        _read(store, "0" * 64, scores="s")
    assert [entry.kind for entry in ledger_violations(Corpus(store, "c"))] == ["unregistered"]


def test_registering_again_adds_nothing_and_another_plan_is_another(store: Store) -> None:
    first = register(Corpus(store, "c"), PLAN, run_id="r")
    assert register(Corpus(store, "c"), dict(reversed(PLAN.items())), run_id="r") == first
    assert register(Corpus(store, "c"), {**PLAN, "seed": 43}, run_id="r") != first
    assert len(ledger_entries(Corpus(store, "c"))) == 2


@pytest.mark.slow
def test_another_judge_of_the_platform_leaves_a_registration_as_it_is(
    corpora: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = certifier.certify_judge(judged(corpora, "three"))[0].provenance["registration"]
    monkeypatch.setitem(
        JUDGES,
        "another",
        LexicalSpec(name="another", success_weights=(1.0, 5.0)),
    )
    assert certifier.certify_judge(judged(corpora, "three"))[0].provenance["registration"] == before
    monkeypatch.setitem(
        JUDGES,
        "lexical",
        LexicalSpec(name="lexical", success_weights=(1.0, 5.0)),
    )
    judged(corpora, "three").train()
    judged(corpora, "three").score()
    assert certifier.certify_judge(judged(corpora, "three"))[0].provenance["registration"] != before
