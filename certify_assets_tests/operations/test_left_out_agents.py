"""Agents left out of certificate and training: refitted, stored once, found when they differ."""

import json
from pathlib import Path

import numpy as np
import pytest

from certify_assets.certificates import certify
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.families.lexical import LexicalFamily
from certify_assets.judges.record import columns, texts
from certify_assets.operations.audit import audit_judge, judge_overview
from certify_assets.operations.certifier import certify_judge, deciding_certificates
from certify_assets.operations.left_out_agents import left_out_agents
from certify_assets.reports import judge_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs


@pytest.fixture(scope="module")
def dialects(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Three agents share words; the words of the fourth are swapped, so only its own runs teach
    them.
    """
    folder = tmp_path_factory.mktemp("left_out")
    rng = np.random.default_rng(3)
    lines = []
    for task in range(160):
        for agent in ("alike-1", "alike-2", "alike-3", "odd"):
            outcome = int(rng.random() < 0.4)
            said = outcome if agent != "odd" else 1 - outcome
            words = ["confirmed", "done", "thanks"] if said else ["error", "failed", "missing"]
            if agent == "odd":
                words = [*words, *(["oddly"] if outcome else ["strange"])]
            else:
                words = words[: int(rng.integers(1, 4))]
            step = {"action": "go", "observation": " ".join(words)}
            run = {
                "task_id": f"t{task}",
                "trajectory_id": f"t{task}/{agent}",
                "agent": agent,
                "instruction": f"Do task {task}",
                "steps": [step],
                "outcome": outcome,
            }
            lines.append(json.dumps(run))
    path = folder / "runs.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    store = Store(str(folder / "root"))
    # a few words are all that a run holds, so most repeat a run of another task
    register_runs(store, "c", path, rl=False, accept_shared_tasks="few words")
    Corpus(store, "c").prepare()
    judged(store).train()
    judged(store).score()
    certify_judge(judged(store))
    audit_judge(judged(store))
    return store


def test_a_judge_that_never_saw_the_agent_is_fooled_by_it(dialects: Store) -> None:
    judge = judged(dialects)
    found = left_out_agents(judge)
    assert found.seen == "" and found.findings
    item = next(item for item in deciding_certificates(judge) if item.side == "reject")
    rows = {row.agent: row for row in found.errors[item.sha256]}
    assert list(rows) == ["alike-1", "alike-2", "alike-3", "odd"]
    assert all(row.unseen for row in rows.values())
    odd = rows["odd"]
    assert odd.error is not None and odd.error > 0.5 and odd.own_error == 0.0
    assert any("odd (" in finding["message"] for finding in found.findings)
    assert {finding["code"] for finding in found.findings} == {"agent_shift"}
    assert not any("alike-1 (" in finding["message"] for finding in found.findings)
    # the same by hand
    cal, _, _ = judge.calibration
    sft = judge.corpus.split("sft")
    others = sft[sft["agent"] != "odd"]
    model = LexicalFamily().fitted(others, judge.reading, seed=judge.spec.seed)
    runs = judge.corpus.split("cal").set_index("trajectory_id").loc[cal["trajectory_id"]]
    scores = model.score(texts(runs.reset_index(), judge.renderer)).score
    rest = (cal["agent"] != "odd").to_numpy()
    _, outcomes, tasks = columns(cal)
    others = certify(scores[rest], outcomes[rest], tasks[rest], alpha=item.alpha)
    assert odd.threshold == others.threshold
    inside = ~rest & (scores <= (others.threshold or 0.0))
    assert odd.covered == inside.sum()
    assert odd.error == pytest.approx(outcomes[inside].mean())


def test_the_document_is_made_once_and_again_for_other_certificates(dialects: Store) -> None:
    key = "judges/lexical/c/agents.json"
    left_out_agents(judged(dialects))
    before, digest = dialects.now().ledger("dialects"), dialects.sha256(key)
    left_out_agents(judged(dialects))
    assert dialects.now().ledger("dialects") == before
    for spoiled in ({"schema": 1}, {**dialects.read_json(key), "hashes": {}}, []):
        dialects.write_json(key, spoiled)
        left_out_agents(judged(dialects))
        assert dialects.sha256(key) == digest, "the same again"


def test_page_and_overview_have_the_finding(dialects: Store) -> None:
    judge = judged(dialects)
    assert judge_overview(judge)["findings"][0]["code"] == "agent_shift"
    html = Path(judge_page.write_page(judge)).read_text("utf-8")
    assert "agent_shift" in html and "beyond chance" in html
    assert "The judge is trained again without the agent as well." in html
