from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import ImportedCorpus, detect_format, import_corpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import from_frame, write_json, write_lines
from certify_assets_tests.corpora.swe_builders import ISSUE, SWE_PROMPT, report, traj
from certify_assets_tests.paths import shared_data


def read(path: Path, format: str = "swe_agent", **options: Any) -> ImportedCorpus:
    return import_corpus(path, format=format, name="c", options=options)


def outcomes(imported: ImportedCorpus) -> dict[str, int]:
    return dict(zip(imported.frame["task_id"], imported.frame["outcome"].tolist(), strict=True))


def runs(folder: Path, *numbers: int) -> Path:
    for number in numbers:
        write_json(folder / f"org__name-{number}.traj", traj(f"look at {number}"))
    return folder


def test_a_run_becomes_steps(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    write_json(tmp_path / "gpt/final_report.json", {"resolved": ["org__name-1"]})
    (run,) = from_frame(read(tmp_path).frame)
    assert (run.task_id, run.agent, run.attempt, run.outcome) == ("org__name-1", "gpt", 0, 1)
    assert run.instruction == ISSUE
    assert run.steps == (
        Step("I look at 1.\nopen sums.py", "1: def total(rows):"),
        Step("submit", "diff --git a/sums.py b/sums.py"),
    )


def test_a_chat_of_mini_swe_agent_becomes_steps(tmp_path: Path) -> None:
    said = ("system", "You fix."), ("user", SWE_PROMPT), ("assistant", "ls"), ("user", "sums.py")
    chat = {"messages": [{"role": role, "content": text} for role, text in said], "info": {}}
    write_json(tmp_path / "mini" / "org__name-1" / "org__name-1.traj.json", chat)
    write_json(tmp_path / "mini" / "report.json", report(["org__name-1"]))
    assert detect_format([tmp_path]) == "swe_agent"
    (run,) = from_frame(read(tmp_path).frame)
    assert (run.task_id, run.agent, run.instruction) == ("org__name-1", "mini", ISSUE)
    assert run.steps == (Step("ls", "user: sums.py"),)


def test_the_demonstration_is_not_the_instruction(tmp_path: Path) -> None:
    shown = {"role": "user", "content": f"--- DEMONSTRATION ---\n{SWE_PROMPT}"}
    words = "<pr_description>\nCount right.\n</pr_description> Work."
    task = {"role": "user", "content": [{"type": "text", "text": words}]}
    write_json(tmp_path / "gpt" / "org__name-1.traj", traj(history=[shown, task]))
    silent = traj(history="none", trajectory=[{"response": "hm"}])
    write_json(tmp_path / "gpt" / "org__name-2.traj", silent)
    write_json(tmp_path / "gpt/report.json", report(["org__name-1", "org__name-2"]))
    first, second = from_frame(read(tmp_path).frame)
    assert first.instruction == "Count right."
    assert (second.instruction, second.steps) == ("", (Step("hm", ""),))


@pytest.mark.parametrize("key", ["resolved", "resolved_ids"])
@pytest.mark.parametrize(
    "where", ["final_report.json", "results/results.json", "results.json", "gpt.run1.json"]
)
def test_reports_under_every_name(tmp_path: Path, key: str, where: str) -> None:
    runs(tmp_path / "gpt" / "trajs", 1, 2)
    write_json(tmp_path / "gpt" / where, {key: ["org/name:pr-2"]})
    assert outcomes(read(tmp_path)) == {"org__name-1": 0, "org__name-2": 1}


def test_an_instance_that_was_not_submitted_was_not_resolved(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1, 2, 3, 4, 5)
    found = report(["org__name-1", "org__name-9"], others=["org__name-2"])
    found |= {"incomplete_ids": ["org__name-3"], "error_ids": ["org__name-4"]}
    write_json(tmp_path / "gpt" / "results" / "results.json", found)
    imported = read(tmp_path)
    assert outcomes(imported) == {f"org__name-{n}": int(n == 1) for n in (1, 2, 3, 4)}
    assert imported.dropped == {"not_evaluated": 1}
    assert "org__name-5.traj is not among" in imported.examples["not_evaluated"]
    assert imported.notes == {"resolved instances whose runs are not here": 1}


def test_a_run_of_which_little_was_submitted_is_rejected(tmp_path: Path) -> None:
    runs(tmp_path / "mini", 1, 2, 3)
    runs(tmp_path / "full", 1, 2)
    for folder, others in (("mini", []), ("full", ["org__name-2"])):
        found = report(["org__name-1"], others=others, total_instances=91)
        write_json(tmp_path / folder / "results" / "results.json", found)
    imported = read(tmp_path)
    assert imported.frame["agent"].unique().tolist() == ["full"]
    assert imported.dropped == {"not_evaluated": 3, "run_rejected": 1}
    assert "mini/results/results.json reports on 1 of 3 runs; " in imported.examples["run_rejected"]


def test_folders_of_one_agent_are_its_attempts(tmp_path: Path) -> None:
    for attempt in (1, 2):
        folder = tmp_path / f"cost_{attempt}"
        write_json(folder / "org__name-1.traj", traj(f"look, {attempt}"))
        prediction = {"model_name_or_path": "gpt", "instance_id": "org__name-1"}
        write_lines(folder / "all_preds.jsonl", [prediction])
        write_json(folder / "final_report.json", {"resolved": ["org__name-1"] * (attempt - 1)})
    imported = read(tmp_path)
    assert [(run.trajectory_id, run.outcome) for run in from_frame(imported.frame)] == [
        ("org__name-1/gpt/0", 0),
        ("org__name-1/gpt/1", 1),
    ]
    assert "file_other_format" not in imported.dropped


def test_a_broken_report_is_named(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    (tmp_path / "gpt/report.json").write_text('{"resolved": ["org__name-1"', "utf-8")
    imported = read(tmp_path, keep_unlabelled=True)
    assert imported.dropped == {"file_unreadable": 1}
    assert "gpt/report.json cannot be used: it is not JSON" in imported.examples["file_unreadable"]


def test_a_newer_report_speaks_before_an_older_one(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    write_json(tmp_path / "gpt" / "old_eval_results" / "report.json", {"resolved": ["org__name-1"]})
    write_json(tmp_path / "gpt" / "new_eval_results" / "report.json", {"resolved": []})
    write_json(tmp_path / "idle" / "report.json", {"resolved": ["org__name-1"]})
    imported = read(tmp_path)
    assert outcomes(imported) == {"org__name-1": 0}


@pytest.mark.slow
def test_the_published_java_runs() -> None:
    paths = sorted(shared_data("multi_swe_bench_java").glob("*.tar.gz"))
    imported = import_corpus(paths, name="java")
    frame = imported.frame
    assert (imported.format, len(frame), frame["task_id"].nunique()) == ("swe_agent", 362, 91)
    assert imported.dropped == {"file_other_format": 10, "run_rejected": 1} and not imported.notes
    assert (
        "gpt-4o-mini-2024-07-18/results/results.json reports on 1 of 91 instances"
        in imported.examples["run_rejected"]
    )
    profile = profile_corpus(frame, outlines=[])
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.064, 0.21)
