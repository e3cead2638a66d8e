"""An endpoint judge against a real HTTP server with the compact model's log-probabilities."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.endpoint.judge import answers_of, connected
from certify_assets.judges.endpoint.scoring import AnswerJournal
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.comparison import compare, compare_corpora
from certify_assets.operations.ledger import ledger_entries
from certify_assets.reports.comparison_page import comparison_tables
from certify_assets.reports.judge_page import write_page
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
    "model": "compact",
    "revision": "shipped",
    "form": "tokens",
    "tokenizer": "compact",
    "budget_tokens": 768,
    "prices": {"prompt": 2.0, "completion": 10.0},
    "attempts": 2,
}


class Local:
    """What a server of the compact model says about token ids."""

    def __init__(self) -> None:
        from certify_assets.judges.lm.judge import load_base

        self.language, _ = load_base("compact")
        self.known: dict[tuple[int, ...], dict[str, float]] = {}

    def __call__(self, payload: dict[str, Any], times: int) -> Action:
        if "messages" in payload:
            odd = len(payload["messages"][1]["content"]) % 2
            return Action(chat_body("I cannot tell." if odd else "P_SUCCESS=70", model="compact"))
        ids = payload["prompt"]
        choice = {"text": "", "logprobs": {"top_logprobs": [self.read(tuple(ids))]}}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
        return Action({"model": "compact", "choices": [choice], "usage": usage})

    def read(self, ids: tuple[int, ...]) -> dict[str, float]:
        from certify_assets.judges.lm.language_model import Encoded
        from certify_assets.judges.lm.score import score_prompts

        if ids not in self.known:
            scores = score_prompts(self.language, [Encoded(ids)])
            found = (float(scores.log_p_success[0]), float(scores.log_p_fail[0]))
            self.known[ids] = dict(zip((" SUCCESS", " FAIL"), found, strict=True))
        return self.known[ids]


@pytest.fixture(scope="module")
def local() -> Local:
    return Local()


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


@pytest.mark.slow
def test_a_served_model_certifies_as_the_same_model_here(store: Store, local: Local) -> None:
    here = judged(store, NAME, "base")
    here.train()
    base = here.score()
    with scored(store, local) as server:
        asked = sum(server.answered.values())
    # the server is gone: what follows needs it no more
    served = judged(store, NAME, "served")
    table, bill = store.read_table(served.key("scores.parquet")), served.bill
    np.testing.assert_allclose(table["score"], base["score"], atol=1e-5)
    assert bill is not None and asked <= len(table) + 1
    assert bill["scored"] == bill["completion_tokens"] == len(table) and bill["parse_rate"] == 1.0
    assert bill["cost"] == pytest.approx((2 * bill["prompt_tokens"] + 10 * len(table)) / 1e6)
    found, expected = (
        [(item.certified, item.coverage) for item in certifier.certify_judge(judge)]
        for judge in (served, here)
    )
    assert found == expected
    assert certifier.verify_stored(judged(store, NAME, "served")) == []
    kinds = [entry.kind for entry in ledger_entries(Corpus(store, NAME))]
    assert [kind for kind in kinds if kind != "pool"] == ["registration", "registration"]


def test_a_second_scoring_asks_nothing_and_gives_the_same_bytes(store: Store, local: Local) -> None:
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


def test_answers_of_two_machines_are_all_kept(
    store: Store, local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scored(store, local):
        pass
    for machine in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        with (
            answers_of(judged(store, NAME, "served")) as (path, kept),
            AnswerJournal(path, kept) as journal,
        ):
            journal.put(machine, machine)
    with answers_of(judged(store, NAME, "served"), replay=True) as (path, kept):
        known = AnswerJournal(path, kept)
    assert path is None and len(known) > 2
    assert [known.get(machine) for machine in ("one", "two")] == ["one", "two"]


@pytest.mark.slow
def test_a_changed_setting_makes_scores_and_certificates_stale(store: Store, local: Local) -> None:
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


def test_a_server_that_was_exchanged_is_refused(store: Store, local: Local) -> None:
    with scored(store, local) as server:
        server.about["/version"] = Action({"version": "9.9"})
        with pytest.raises(StaleCertificateError, match=r"its version is '9\.9' and was ''"):
            judged(store, NAME, "served").score()


def test_a_judge_of_the_users_document_is_compared_with_its_bill(
    store: Store, local: Local
) -> None:
    with scored(store, local, form=None, tokenizer=None, asking="cot"):
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
    tokens = (bill["prompt_tokens"] + bill["completion_tokens"]) / bill["decisions"]
    cost = row["cost"]
    assert cost["tokens_per_decision"] == pytest.approx(tokens) and tokens > 0
    assert cost["parse_rate"] == pytest.approx(bill["parse_rate"])
    assert cost["money_per_decision"] == pytest.approx(bill["cost"] / bill["decisions"])
    (costs,) = (item for item in comparison_tables(table["corpora"]) if item.name == "cost")
    (shown,) = (line for line in costs.rows if line[1] == "served")
    assert shown[-3] == f"{tokens:.0f}" and shown[-2].endswith(" USD") and shown[-1].endswith("%")
    missing = {item["judge"] for item in document["missing"] if item["what"] == "scores"}
    assert missing == set(JUDGES)


@pytest.mark.slow
def test_a_judge_that_gave_no_verdict_is_audited_compared_and_shown(store: Store) -> None:
    mute = Action(chat_body("I cannot tell.", model="compact"))
    with scored(store, lambda payload, times: mute, form=None, tokenizer=None, asking="cot"):
        pass
    judge = judged(store, NAME, "served")
    assert not any(item.certified for item in certifier.certify_judge(judge))
    (reason,) = certifier.why_nothing(judge)
    assert reason.startswith("0 of ") and reason.endswith("the first: 'I cannot tell.'.")
    for audit in audit_judge(judged(store, NAME, "served")).audits:
        assert audit.verdict == "WARN" and "No TEST row has a score" in audit.reason
    page = Path(write_page(judged(store, NAME, "served"))).read_text("utf-8")
    assert "No TEST row has a score" in page
    row = next(row for row in compare(Corpus(store, NAME))["rows"] if row["judge"] == "served")
    assert row["auroc"]["cal"]["value"] is None and row["cost"]["parse_rate"] == 0


def test_new_runs_are_scored_by_the_same_model_alone(store: Store, local: Local) -> None:
    frame = store.read_table(f"corpora/{NAME}/splits/sft.parquet").head(3)
    with scored(store, local):
        table, bill = judged(store, NAME, "served").score_runs(frame)
        assert np.isfinite(table["score"]).all() and bill is not None and bill["decisions"] == 3
        document = store.read_json(f"judges/served/{NAME}/scores.json")
        document["bill"]["models"] = ["compact-of-last-year"]
        store.write_json(f"judges/served/{NAME}/scores.json", document)
        with pytest.raises(
            StaleCertificateError,
            match="answers as compact now and answered as compact-of-last-year",
        ):
            judged(store, NAME, "served").score_runs(frame)[0]


@pytest.mark.slow
def test_a_server_that_shows_no_verdict_is_left_before_it_costs() -> None:
    def silent(payload: dict[str, Any], times: int) -> Action:
        return Action(chat_body(logs={"Well": -0.1}))

    with faulty_server(silent) as server:
        judge = connected(judge_of(server.url, concurrency=1, read="top"))
        with pytest.raises(InputError, match="none of the first 50 answers"):
            # each question is of three runs
            judge.run([f"run {number % 80}" for number in range(240)])
        assert sum(server.arrived.values()) == 50
