"""``certify judge`` with a judge behind a server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    Faulty,
    chat_body,
    faulty_server,
)


def _answer(payload: dict[str, Any], times: int) -> Action:
    told = payload["messages"][1]["content"].count("is") % 7
    return Action(chat_body(logs={"SUCCESS": -0.3 - 0.1 * told, "FAIL": -1.0}))


@pytest.fixture(scope="module")
def server() -> Iterator[Faulty]:
    with faulty_server(_answer) as serving:
        yield serving


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, server: Faulty) -> Path:
    folder = tmp_path_factory.mktemp("endpoint_commands")
    store = Store(str(folder / "root"))
    register_runs(
        store, "c", write_runs(folder / "runs.jsonl", tasks=20, attempts=2, seed=0), rl=True
    )
    Corpus(store, "c").prepare_splits()
    entry = {
        "name": "mine",
        "url": server.url,
        "model": "m",
        "prices": {"prompt": 2.0, "completion": 10.0},
    }
    (folder / "root" / "judges.yaml").write_text(yaml.safe_dump({"judges": [entry]}), "utf-8")
    return folder / "root"


@pytest.fixture(autouse=True)
def _named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTIFY_ROOT", str(root))


def test_an_endpoint_judge_is_listed_registered_and_scores(call: Call, root: Path) -> None:
    listed = call("judge list --json")
    assert listed.code == 0
    assert listed.json["judges"][-1]["family"] == "endpoint"
    assert listed.json["problems"] == []
    assert call("judge score c --judge mine").code == 2, "not registered yet"
    trained = call("judge train c --judge mine --json")
    assert trained.code == 0
    assert trained.json["registered"]["model"] == "m"
    scored = call("judge score c --judge mine")
    assert scored.code == 0
    for words in ("Cost", "parse rate", "cost per decision"):
        assert words in scored.out
    assert "scoring cal: 16 of 16" in scored.err, "progress is said"
    again = call("judge score c --judge mine --json").json
    assert again["bill"]["requests"] == 0
    assert again["bill"]["cost"] > 0
    assert again["bill"]["scored"] == again["rows"]


def test_new_runs_are_scored_with_their_bill(call: Call, root: Path, tmp_path: Path) -> None:
    call("judge train c --judge mine")
    runs = write_runs(tmp_path / "new.jsonl", tasks=3, attempts=2, seed=9)
    found = call(f"judge score c {runs} --judge mine --out {tmp_path}/scores.csv --json")
    assert found.code == 0 and found.json["rows"] == 6 and found.json["bill"]["decisions"] == 6
    assert (tmp_path / "scores.csv").read_text("utf-8").count("\n") == 7
