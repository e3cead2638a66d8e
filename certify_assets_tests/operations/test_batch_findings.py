"""Batches that are unlike CAL: what they wait for, and agents whose scores have moved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import deliver

_BAD = "could not find the button, no element matches the selector"


@pytest.fixture
def deployed(operated: Store) -> Store:
    plan = SamplingPlan(0.2, 5)
    deploy(judged(operated), sampling=plan, track=False)
    return operated


def _with_words(words: str) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        record["steps"][-1]["observation"] += f" {words}"

    return change


def _runs_of(path: Path, agent: str) -> list[str]:
    records = map(json.loads, path.read_text("utf-8").splitlines())
    return [record["trajectory_id"] for record in records if record["agent"] == agent]


def test_runs_like_those_of_cal_are_not_found(deployed: Store, tmp_path: Path) -> None:
    receive(Corpus(deployed, "c"), [str(deliver(tmp_path / "new.jsonl", tasks=60))])
    (document,) = decide_ready(Corpus(deployed, "c"))
    assert not {"shifted", "changed_agents"} & {item["code"] for item in document.findings}


def test_a_batch_that_is_not_like_cal_waits_for_its_own_certificate(
    deployed: Store, tmp_path: Path
) -> None:
    def one_agent_a_task(record: dict[str, Any]) -> bool:
        # too few tasks of an agent to compare its scores with those in CAL
        task, attempt = int(record["task_id"][-3:]), int(record["trajectory_id"].split("/")[-1])
        _with_words(_BAD)(record)
        return task % 3 == attempt % 3

    path = deliver(tmp_path / "new.jsonl", tasks=27, attempts=12, change=one_agent_a_task)
    receive(Corpus(deployed, "c"), [str(path)])
    (document,) = decide_ready(Corpus(deployed, "c"))
    frame = decisions_of(Corpus(deployed, "c"), document.batch)
    assert document.decided and document.reasons == {"shifted": 108}
    # no decision of the corpus certificate, and no promise that it makes
    assert set(frame["decision"]) == {"provisional"}
    assert set(frame["certificate_sha256"]) == {""} and frame["reject_threshold"].isna().all()
    assert not any(text.startswith("corpus certificate") for text in document.promises)
    (said,) = [item["message"] for item in document.findings if item["code"] == "shifted"]
    assert "labels of a random draw" in said


def test_a_new_agent_does_not_hold_back_the_runs_that_are_like_cal(
    deployed: Store, tmp_path: Path
) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["trajectory_id"].endswith(("/0", "/1")):
            record["agent"] = "stranger"
            _with_words(_BAD)(record)

    path = deliver(tmp_path / "new.jsonl", tasks=60, change=change)
    receive(Corpus(deployed, "c"), [str(path)])
    (document,) = decide_ready(Corpus(deployed, "c"))
    assert "shifted" not in document.reasons and document.decisions["reject"] > 0
    (said,) = [text for text in document.promises if text.startswith("corpus certificate")]
    assert "% wrong (auto-fail)" in said
    assert document.reasons["new_agent"] == 120


def test_an_agent_of_cal_that_scores_otherwise_now_is_treated_as_a_new_one(
    deployed: Store, tmp_path: Path
) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["agent"] == "agent-1":
            _with_words(_BAD)(record)

    path = deliver(tmp_path / "new.jsonl", tasks=60, change=change)
    receive(Corpus(deployed, "c"), [str(path)])
    (document,) = decide_ready(Corpus(deployed, "c"))
    found = {item["code"]: item["message"] for item in document.findings}
    assert found["changed_agents"].startswith(
        "60 runs are of agents of CAL whose scores have changed (agent-1)"
    )
    frame = decisions_of(Corpus(deployed, "c"), document.batch)
    changed = frame["trajectory_id"].isin(_runs_of(path, "agent-1"))
    assert changed.sum() == 60 and set(frame.loc[changed, "decision"]) == {"provisional"}
    # those of the other agents are decided as ever
    assert "reject" in set(frame.loc[~changed, "decision"])
    assert "provisional" not in set(frame.loc[~changed, "decision"])
