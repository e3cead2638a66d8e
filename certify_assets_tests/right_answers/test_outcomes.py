"""An outcome that is not understood refuses the import; no run is left out by its outcome."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets_tests.corpora.builders import tau_record, write_json, write_lines
from certify_assets_tests.corpora.formats import (
    agent_reward_bench,
    browsergym,
    harbor,
    langsmith,
    terminal_bench,
)
from certify_assets_tests.corpora.swe_builders import openhands, rebench_row, save_parquet
from certify_assets_tests.paths import shared_data
from certify_assets_tests.right_answers.importing import (
    Import,
    categories,
    imported,
    inspect_log,
    langfuse_traces,
)

__all__ = ["imported"]


def write_table(path: Path, *outcomes: Any) -> Path:
    rows = [f"t{number},{outcome},did {number}" for number, outcome in enumerate(outcomes)]
    path.write_text("\n".join(["task_id,outcome,text", *rows]), "utf-8")
    return path


def langsmith_runs(path: Path, *said: tuple[float, str]) -> Path:
    """Write one trace for a score and the word next to it."""
    records: list[dict[str, Any]] = []
    for number, (score, word) in enumerate(said):
        found = langsmith.runs(f"r{number}", f"b{number}")
        feedback = {"key": "correct", "run_id": found[0]["id"], "score": score, "value": word}
        records += [*found, feedback | {"feedback_source": {"type": "app"}}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def write_harbor(path: Path, reward: Any) -> Path:
    asked = harbor.trajectory("Sort.", harbor.agent_step("First", "sort", "a"))
    record = harbor.result("a", "sort", {"reward": reward})
    harbor.put(path / "a", record, {"agent/trajectory.json": asked})
    return path


def write_terminal(path: Path, resolved: Any) -> Path:
    record = terminal_bench.trial("a", "sort", resolved)
    terminal_bench.put(
        path / "a", record, {"panes/post-agent.txt": terminal_bench.pane(("ls", "a"))}
    )
    return path


def write_browsergym(path: Path, reward: Any) -> Path:
    folder = "a_on_shop.1_0"
    browsergym.write_run(path, folder, browsergym.summary(reward), browsergym.infos())
    return path


def write_annotated(path: Path, verdict: str) -> Path:
    agent = agent_reward_bench.AGENTS[0]
    agent_reward_bench.write_run(path, "shop.1", agent_reward_bench.record())
    row = agent_reward_bench.annotation("A", "shop.1", agent, verdict)
    agent_reward_bench.write_annotations(path, [row])
    return path


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "inspect": (
        lambda path: inspect_log(path / "a.json", 1, 2, 3, 4, 5),
        "a.json sample 2 epoch 1, judge: 2 is not an outcome: the values go from 1 to 5. Say where "
        "success begins with --option threshold=NUMBER. 4 of 5 runs have such values.",
    ),
    "inspect list": (
        lambda path: inspect_log(path / "a.json", [1]),
        "judge: [1] is not an outcome",
    ),
    "langfuse": (
        lambda path: langfuse_traces(path / "a.json", *categories("pass", "bad", "so-so", "so-so")),
        "a.json row 2, verdict: 'bad' is not an outcome. Name the successes among 'bad', 'pass', "
        "'so-so' with --option success=VALUE, or the failures with --option failure=VALUE. 3 of 4 "
        "runs have such values.",
    ),
    "langfuse number": (
        lambda path: langfuse_traces(
            path / "a.json", *({"dataType": "NUMERIC", "value": n / 4} for n in range(5))
        ),
        "go from 0 to 1. Say where success begins with --option threshold",
    ),
    "langfuse category": (
        lambda path: langfuse_traces(path / "a.json", {"dataType": "CATEGORICAL", "value": 0}),
        "its category is not in the export",
    ),
    "langsmith": (
        lambda path: langsmith_runs(path / "a.jsonl", (0.9, "Great"), (0.2, "Bad")),
        "go from 0.2 to 0.9. Say where success begins with --option threshold",
    ),
    "harbor": (lambda path: write_harbor(path, 2), "reward: 2 is not an outcome"),
    "tau": (
        lambda path: write_json(path / "x-retail.json", [tau_record(0, 2.0)]),
        "reward: 2.0 is not an outcome",
    ),
    "browsergym": (lambda path: write_browsergym(path, -1.0), "cum_reward: -1.0 is not an outcome"),
    "terminal": (
        lambda path: write_terminal(path, "perhaps"),
        "is_resolved: 'perhaps' is not an outcome",
    ),
    "openhands": (
        lambda path: write_lines(path / "output.jsonl", [openhands("org__name-1", "perhaps")]),
        "outcome: 'perhaps' is not an outcome",
    ),
    "swe_rebench": (
        lambda path: save_parquet(path / "a.parquet", [rebench_row("org__name-1", 3)]),
        "a.parquet row 1, resolved: 3 is not an outcome",
    ),
    "annotators": (
        lambda path: write_annotated(path, "Perhaps"),
        "annotations.csv row 2: trajectory_success is 'Perhaps'. Write Successful, Unsuccessful, "
        "Unsure instead.",
    ),
    "table": (
        lambda path: write_table(path / "a.csv", *[0, 1] * 40, "maybe"),
        "a.csv row 82, outcome: 'maybe' is not an outcome. If it means no label, give "
        "--option no_label=maybe.",
    ),
    "table rounded": (
        lambda path: write_table(path / "a.csv", 1, 0, "0.99999999999999999999"),
        "outcome: '0.99999999999999999999' is not an outcome",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_outcome_that_is_not_understood_refuses_all(
    imported: Import, tmp_path: Path, name: str
) -> None:
    write, words = REFUSED[name]
    (tmp_path / "runs").mkdir()
    answer = imported(write(tmp_path / "runs"))
    assert answer.code == 2 and words in answer.err


@pytest.mark.parametrize(
    ("option", "rate"),
    [
        ("success=pass", 0.25),
        ("failure=bad,so-so", 0.25),
        ("success=pass,so-so", 0.75),
    ],
)
def test_what_the_values_mean_is_an_option(
    imported: Import, tmp_path: Path, option: str, rate: float
) -> None:
    words = categories("pass", "bad", "so-so", "so-so")
    answer = imported(langfuse_traces(tmp_path / "a.json", *words), "--option", option)
    assert (answer.json["trajectories"], answer.json["success_rate"]) == (4, rate)
    assert answer.json["dropped"] == {}


def test_a_value_that_is_no_label_is_counted(imported: Import, tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.csv", 1, 0, "unsure")
    answer = imported(path, "--option", "no_label=unsure")
    assert answer.json["trajectories"] == 2 and answer.json["dropped"] == {"no_label": 1}


def test_a_threshold_says_where_success_begins(imported: Import, tmp_path: Path) -> None:
    path = inspect_log(tmp_path / "a.json", 1, 2, 3, 4, 5)
    answer = imported(path, "--option", "threshold=4")
    assert (answer.json["trajectories"], answer.json["success_rate"]) == (5, 0.4)


def test_the_word_next_to_a_score_can_be_named(imported: Import, tmp_path: Path) -> None:
    path = langsmith_runs(tmp_path / "a.jsonl", (0.9, "Great"), (0.2, "Bad"))
    for option in ("success=Great", "failure=Bad", "threshold=0.5"):
        assert imported(path, "--option", option).json["success_rate"] == 0.5


def test_words_count_where_a_score_has_two_options(imported: Import, tmp_path: Path) -> None:
    path = langsmith_runs(tmp_path / "a.jsonl", (1, "Great"), (1, "Bad"), (1, "So-so"))
    answer = imported(path, "--option", "success=Great", "--option", "failure=Bad")
    assert answer.code == 2 and "'So-so' is neither in success nor in failure" in answer.err


def test_the_reported_files(imported: Import) -> None:
    for name, words in (
        ("f3_inspect_1to5.json", "go from 1 to 5"),
        ("f3_langfuse_words.json", "'needs work' is not an outcome"),
        ("f6_langfuse_nolabel.json", "not in the export"),
        ("lf_name_attack_success.json", "under a name that means a failure"),
        ("lf_name_needs_human.json", "under a name that means a failure"),
    ):
        answer = imported(shared_data("reported", name))
        assert answer.code == 2 and words in answer.err
    answer = imported(shared_data("reported", "f3_langfuse_words.json"), "--option", "success=pass")
    assert (answer.json["trajectories"], round(answer.json["success_rate"], 3)) == (3, 0.333)
