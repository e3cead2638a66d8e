"""Folds over agents: the held-out are not trained on; a judge of agents' own words is found out."""

import json
from pathlib import Path

import numpy as np
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.agent_folds import (
    agent_groups,
    evaluate_agent_folds,
    evaluate_scored,
    fold_judges,
    stored_agent_folds,
)
from certify_assets.operations.comparison import compare, labelled_rows
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs


def split_and_score(store: Store, path: Path) -> Store:
    register_runs(store, "c", path)
    Corpus(store, "c").prepare_splits()
    judged(store).train()
    judged(store).score()
    return store


@pytest.fixture(scope="module")
def dialects(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Four agents with words of their own for success and failure: one says nothing of another."""
    folder = tmp_path_factory.mktemp("dialects")
    rng = np.random.default_rng(0)
    lines = []
    for task in range(60):
        for agent in range(4):
            outcome = int(rng.random() < 0.5)
            steps = [
                {"action": "go", "observation": f"word{agent}{'yes' if outcome else 'no'} it is"}
            ]
            run = {
                "task_id": f"t{task}",
                "trajectory_id": f"t{task}/{agent}",
                "agent": f"agent{agent}",
            }
            lines.append(
                json.dumps({**run, "instruction": "Do it", "steps": steps, "outcome": outcome})
            )
    (folder / "runs.jsonl").write_text("\n".join(lines), "utf-8")
    return split_and_score(Store(str(folder / "root")), folder / "runs.jsonl")


def test_agents_are_dealt_into_groups_by_the_seed() -> None:
    agents = [f"a{number}" for number in range(10)] * 2
    groups = agent_groups(agents, 4, 42)
    assert sorted(name for group in groups for name in group) == sorted(set(agents))
    assert sorted(map(len, groups)) == [2, 2, 3, 3]
    assert groups == agent_groups(list(reversed(agents)), 4, 42)
    assert groups != agent_groups(agents, 4, 43) and len(agent_groups(["a", "b"], 4, 0)) == 2
    with pytest.raises(InputError, match="one agent alone"):
        agent_groups(["a", "a"], 2, 0)
    with pytest.raises(InputError, match="give 2, 3 or 4"):
        agent_groups(agents, 5, 0)


def test_a_judge_that_reads_the_agents_own_words_fails_on_unseen_agents(dialects: Store) -> None:
    found = evaluate_agent_folds(judged(dialects), folds=4)
    sft, cal = (labelled_rows(Corpus(dialects, "c"), split) for split in ("sft", "cal"))
    assert [fold["sft_runs"] for fold in found["folds"]] == [
        int((~sft["agent"].isin(fold["agents"])).sum()) for fold in found["folds"]
    ]
    assert sum(fold["cal_runs"] for fold in found["folds"]) == found["rows"] == len(cal)
    assert found["trained_on_all"]["auroc"]["value"] > 0.95
    assert abs(found["disjoint"]["auroc"]["value"] - 0.5) < 0.2
    assert found["difference"]["auroc"]["high"] < 0
    assert found["disjoint"]["within_agent"] == found["disjoint"]["auroc"], "one agent a fold"
    assert "ranks runs of unseen agents worse" in found["sentence"]


def test_the_comparison_shows_what_stands_on_the_present_adapter_alone(dialects: Store) -> None:
    evaluate_agent_folds(judged(dialects), folds=2)
    assert [item["judge"] for item in compare(Corpus(dialects, "c"))["agent_disjoint"]] == [
        "lexical"
    ]
    key = "comparison/c/agent_disjoint_lexical.json"
    before = dialects.sha256(key)
    evaluate_agent_folds(judged(dialects), folds=2)
    assert dialects.sha256(key) == before
    dialects.write_json(key, {**dialects.read_json(key), "adapter_sha256": "0" * 64})
    assert stored_agent_folds(Corpus(dialects, "c")) == []


def test_what_cannot_be_held_out_is_a_sentence(dialects: Store, tmp_path: Path) -> None:
    assert {"lexical", "lexical_weighted", "sft"} <= set(fold_judges())
    assert not {"base", "grpo", "transfer", "lexical_transfer"} & set(fold_judges())
    with pytest.raises(InputError, match="not trained on SFT alone"):
        evaluate_agent_folds(judged(dialects, "c", "base"))
    found, left_out = evaluate_scored(Corpus(dialects, "c"), ["lexical", "sft"], folds=2)
    assert [item["judge"] for item in found] == ["lexical"]
    assert "certify run c --judge sft" in left_out[0]["reason"]
    alone = write_runs(tmp_path / "runs.jsonl", tasks=40, attempts=1, seed=0)
    store = split_and_score(Store(str(tmp_path / "root")), alone)
    assert "one agent alone" in evaluate_scored(Corpus(store, "c"), ["lexical"])[1][0]["reason"]
