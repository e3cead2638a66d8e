"""An endpoint judge on a corpus, against a real HTTP server."""

import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.endpoint.judge import connected
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.comparison import compare_corpora
from certify_assets.operations.ledger import ledger_entries
from certify_assets.reports.comparison_page import comparison_tables
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.conftest import copy_world
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    Faulty,
    chat_body,
    faulty_server,
    judge_of,
)

NAME = "small"
ENTRY: dict[str, Any] = {
    "name": "served",
    "url": "",
    "model": "m",
    "revision": "shipped",
    "prices": {"prompt": 2.0, "completion": 10.0},
    "attempts": 2,
}


def local(payload: dict[str, Any], times: int) -> Action:
    """What a server says of a run: something that depends on its text alone."""
    question = payload["messages"][1]["content"]
    if "logprobs" not in payload:
        return Action(chat_body("I cannot tell." if len(question) % 2 else "P_SUCCESS=70"))
    chance = (1 + zlib.crc32(question.encode()) % 98) / 100
    return Action(chat_body(logs={"SUCCESS": math.log(chance), "FAIL": math.log1p(-chance)}))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("endpoint")
    store = Store(str(folder / "root"))
    register_runs(
        store, NAME, write_runs(folder / "runs.jsonl", tasks=30, attempts=2, seed=0), rl=True
    )
    Corpus(store, NAME).prepare()
    return store


@pytest.fixture
def store(prepared: Store, tmp_path: Path) -> Store:
    return copy_world(prepared.root, tmp_path)


def configure(store: Store, server: Faulty, **changed: Any) -> None:
    entry = {**ENTRY, "url": server.url, **changed}
    kept = {name: value for name, value in entry.items() if value is not None}
    (Path(store.root) / "judges.yaml").write_text(yaml.safe_dump({"judges": [kept]}), "utf-8")


@contextmanager
def scored(
    store: Store, answer: Callable[[dict[str, Any], int], Action], **changed: Any
) -> Iterator[Faulty]:
    """Register and score with a server that keeps serving."""
    with faulty_server(answer) as server:
        configure(store, server, **changed)
        judged(store, NAME, "served").train()
        judged(store, NAME, "served").score()
        yield server


def test_a_served_judge_is_certified_and_verified_without_its_server(store: Store) -> None:
    with scored(store, local) as server:
        asked = sum(server.answered.values())
    # the server is gone: what follows needs it no more
    served = judged(store, NAME, "served")
    table, bill = store.read_table(served.key("scores.parquet")), served.bill
    assert bill is not None and asked <= len(table) + 1
    assert bill["scored"] == len(table) and bill["parse_rate"] == 1.0
    tokens = 2 * bill["prompt_tokens"] + 10 * bill["completion_tokens"]
    assert bill["cost"] == pytest.approx(tokens / 1e6)
    certifier.certify_judge(served)
    assert certifier.verify_stored(judged(store, NAME, "served")) == []
    kinds = [entry.kind for entry in ledger_entries(Corpus(store, NAME))]
    assert [kind for kind in kinds if kind != "pool"] == ["registration"]


def test_a_second_scoring_asks_nothing_and_gives_the_same_bytes(store: Store) -> None:
    with scored(store, local) as server:
        first, calls = (
            store.read_bytes(f"judges/served/{NAME}/scores.parquet"),
            sum(server.arrived.values()),
        )
        judged(store, NAME, "served").score()
        assert sum(server.arrived.values()) == calls
        assert store.read_bytes(f"judges/served/{NAME}/scores.parquet") == first
    for name in store.names(f"judges/served/{NAME}/answers"):
        store.delete(f"judges/served/{NAME}/answers/{name}")
    certifier.certify_judge(judged(store, NAME, "served"))
    with pytest.raises(InputError, match="the answer was not kept"):
        certifier.verify_stored(judged(store, NAME, "served"))


@pytest.mark.slow
def test_a_changed_setting_makes_scores_and_certificates_stale(store: Store) -> None:
    load, certify = certifier.load_certificates, certifier.certify_judge
    with scored(store, local) as server:
        certify(judged(store, NAME, "served"))
        configure(store, server, prices={"prompt": 7.0}, concurrency=1)
        load(judged(store, NAME, "served"))
        for change in ({"revision": "other"}, {"budget_tokens": 700}, {"temperature": 0.3}):
            configure(store, server, **change)
            for step in (JudgedCorpus.score, load, certify):
                with pytest.raises(
                    StaleCertificateError, match="served on small was registered with another"
                ):
                    step(judged(store, NAME, "served"))


def test_a_server_that_was_exchanged_is_refused(store: Store) -> None:
    with scored(store, local) as server:
        server.about["/version"] = Action({"version": "9.9"})
        with pytest.raises(StaleCertificateError, match=r"its version is '9\.9' and was ''"):
            judged(store, NAME, "served").score()


def test_a_judge_of_the_users_document_is_compared_with_its_bill(store: Store) -> None:
    with scored(store, local, asking="cot"):
        pass
    judge = judged(store, NAME, "served")
    scores, bill = store.read_table(judge.key("scores.parquet"))["score"], judge.bill
    assert bill is not None
    assert 0 < bill["unscored"]["unparsed"] == int(scores.isna().sum()) < len(scores)
    first, *_ = certifier.certify_judge(judge)
    assert "unscored_rows" in {finding["code"] for finding in first.findings}
    audit_judge(judged(store, NAME, "served"))
    (document,) = (table := compare_corpora(store, [NAME]))["corpora"]
    row = next(row for row in document["rows"] if row["judge"] == "served")
    assert row["family"] == "endpoint" and row["auroc"]["test"] is not None
    assert row["cost"]["parse_rate"] == pytest.approx(bill["parse_rate"])
    assert row["cost"]["money_per_decision"] == pytest.approx(bill["cost"] / bill["decisions"])
    (costs,) = (item for item in comparison_tables(table["corpora"]) if item.name == "cost")
    (shown,) = (line for line in costs.rows if line[1] == "served")
    assert shown[-2].endswith(" USD") and shown[-1].endswith("%")


def test_new_runs_are_scored_by_the_same_model_alone(store: Store) -> None:
    frame = store.read_table(f"corpora/{NAME}/splits/sft.parquet").head(3)
    with scored(store, local):
        table, bill = judged(store, NAME, "served").score_runs(frame)
        assert np.isfinite(table["score"]).all() and bill is not None and bill["decisions"] == 3
        document = store.read_json(f"judges/served/{NAME}/scores.json")
        document["bill"]["models"] = ["m-of-last-year"]
        store.write_json(f"judges/served/{NAME}/scores.json", document)
        with pytest.raises(
            StaleCertificateError,
            match="now answers as m, but answered as m-of-last-year",
        ):
            judged(store, NAME, "served").score_runs(frame)[0]


@pytest.mark.slow
def test_a_server_that_shows_no_verdict_is_left_before_it_costs() -> None:
    def silent(payload: dict[str, Any], times: int) -> Action:
        return Action(chat_body(logs={"Well": -0.1}))

    with faulty_server(silent) as server:
        judge = connected(judge_of(server.url, concurrency=1))
        with pytest.raises(InputError, match="none of the first 50 answers"):
            # each question is of three runs
            judge.run([f"run {number % 80}" for number in range(240)])
        assert sum(server.arrived.values()) == 50
