from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import ImportedCorpus, detect_format, import_corpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame
from certify_assets_tests.corpora.swe_builders import ISSUE, SWE_PROMPT, report, save, traj
from certify_assets_tests.paths import shared_data


def read(path: Path, format: str = "swe_agent", **options: Any) -> ImportedCorpus:
    return import_corpus(path, format=format, name="c", options=options)


def outcomes(imported: ImportedCorpus) -> dict[str, int]:
    return dict(zip(imported.frame["task_id"], imported.frame["outcome"].tolist(), strict=True))


def runs(folder: Path, *numbers: int) -> Path:
    for number in numbers:
        save(folder / f"org__name-{number}.traj", traj(f"look at {number}"))
    return folder


def test_a_run_becomes_steps(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    save(tmp_path / "gpt" / "final_report.json", {"resolved": ["org__name-1"]})
    (run,) = from_frame(read(tmp_path).frame)
    assert run.task_id == "org__name-1"
    assert run.agent == "gpt"
    assert run.attempt == 0
    assert run.outcome == 1
    assert run.instruction == ISSUE
    assert run.steps == (
        Step("I look at 1.\nopen sums.py", "1: def total(rows):"),
        Step("submit", "diff --git a/sums.py b/sums.py"),
    )


def test_the_demonstration_is_not_the_instruction(tmp_path: Path) -> None:
    shown = {"role": "user", "content": f"--- DEMONSTRATION ---\n{SWE_PROMPT}"}
    task = {
        "role": "user",
        "content": [
            {"type": "text", "text": "<pr_description>\nCount right.\n</pr_description> Work."}
        ],
    }
    save(tmp_path / "gpt" / "org__name-1.traj", traj(history=[shown, task]))
    save(
        tmp_path / "gpt" / "org__name-2.traj", traj(history="none", trajectory=[{"response": "hm"}])
    )
    save(tmp_path / "gpt" / "report.json", report(["org__name-1", "org__name-2"]))
    first, second = from_frame(read(tmp_path).frame)
    assert first.instruction == "Count right."
    assert second.instruction == ""
    assert second.steps == (Step("hm", ""),)


@pytest.mark.parametrize("key", ["resolved", "resolved_ids"])
@pytest.mark.parametrize(
    "where", ["final_report.json", "results/results.json", "results.json", "gpt.run1.json"]
)
def test_reports_under_every_name(tmp_path: Path, key: str, where: str) -> None:
    runs(tmp_path / "gpt" / "trajs", 1, 2)
    save(tmp_path / "gpt" / where, {key: ["org/name:pr-2"]})
    assert outcomes(read(tmp_path)) == {"org__name-1": 0, "org__name-2": 1}


def test_an_instance_that_was_not_submitted_was_not_resolved(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1, 2, 3, 4, 5)
    lists = {"incomplete_ids": ["org__name-3"], "error_ids": ["org__name-4"]}
    save(
        tmp_path / "gpt" / "results" / "results.json",
        report(["org__name-1", "org__name-9"], others=["org__name-2"]) | lists,
    )
    imported = read(tmp_path)
    assert outcomes(imported) == {
        "org__name-1": 1,
        "org__name-2": 0,
        "org__name-3": 0,
        "org__name-4": 0,
    }
    assert imported.dropped == {"not_evaluated": 1}
    assert "org__name-5.traj is not among" in imported.examples["not_evaluated"]
    assert imported.notes == {"resolved instances whose runs are not here": 1}


def test_a_run_of_which_little_was_submitted_is_rejected(tmp_path: Path) -> None:
    runs(tmp_path / "mini", 1, 2, 3)
    runs(tmp_path / "full", 1, 2)
    save(
        tmp_path / "mini" / "results" / "results.json", report(["org__name-1"], total_instances=91)
    )
    save(
        tmp_path / "full" / "results" / "results.json",
        report(["org__name-1"], others=["org__name-2"], total_instances=91),
    )
    imported = read(tmp_path)
    assert imported.frame["agent"].unique().tolist() == ["full"]
    assert imported.dropped == {"not_evaluated": 3, "run_rejected": 1}
    assert "mini/results/results.json reports on 1 of 3 runs; " in imported.examples["run_rejected"]
    with pytest.raises(InputError, match=r"nothing in .* reports on 1 of 3 runs"):
        read(tmp_path / "mini")


def test_runs_without_a_report_have_no_label(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    with pytest.raises(InputError, match="no outcome"):
        read(tmp_path)
    assert read(tmp_path, keep_unlabelled=True).frame["outcome"].isna().all()


def test_a_report_cannot_judge_two_runs_of_one_instance(tmp_path: Path) -> None:
    runs(tmp_path / "a", 1, 2)
    runs(tmp_path / "b", 1)
    save(tmp_path / "all.json", report(["org__name-1"], others=["org__name-2"]))
    imported = read(tmp_path)
    assert outcomes(imported) == {"org__name-2": 0} and imported.dropped == {"ambiguous_label": 2}


def test_folders_of_one_agent_are_its_attempts(tmp_path: Path) -> None:
    for attempt in (1, 2):
        save(tmp_path / f"cost_{attempt}" / "org__name-1.traj", traj(f"look, {attempt}"))
        save(
            tmp_path / f"cost_{attempt}" / "all_preds.jsonl",
            '{"model_name_or_path": "gpt", "instance_id": "org__name-1"}',
        )
        save(
            tmp_path / f"cost_{attempt}" / "final_report.json",
            {"resolved": ["org__name-1"] * (attempt - 1)},
        )
    imported = read(tmp_path)
    assert [(run.trajectory_id, run.outcome) for run in from_frame(imported.frame)] == [
        ("org__name-1/gpt/0", 0),
        ("org__name-1/gpt/1", 1),
    ]
    assert "file_other_format" not in imported.dropped


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"trajectory": [1]}',
        '{"trajectory": [',
        "\xff",
        "[" * 100_000,
        '{"trajectory": "x"}',
    ],
)
def test_a_broken_run_costs_that_run(tmp_path: Path, content: str) -> None:
    runs(tmp_path / "gpt", 1)
    (tmp_path / "gpt" / "org__name-2.traj").write_bytes(content.encode("latin-1"))
    save(tmp_path / "gpt" / "report.json", report(["org__name-1"], others=["org__name-2"]))
    imported = read(tmp_path)
    assert outcomes(imported) == {"org__name-1": 1} and imported.dropped == {"unreadable_record": 1}
    assert "org__name-2.traj cannot be used: " in imported.examples["unreadable_record"]


def test_a_broken_report_is_named(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    save(tmp_path / "gpt" / "report.json", '{"resolved": ["org__name-1"')
    imported = read(tmp_path, keep_unlabelled=True)
    assert imported.dropped == {"file_unreadable": 1}
    assert "gpt/report.json seems to hold outcomes" in imported.examples["file_unreadable"]


def test_a_newer_report_speaks_before_an_older_one(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1)
    save(tmp_path / "gpt" / "old_eval_results" / "report.json", {"resolved": ["org__name-1"]})
    save(tmp_path / "gpt" / "new_eval_results" / "report.json", {"resolved": []})
    save(tmp_path / "idle" / "report.json", {"resolved": ["org__name-1"]})
    imported = read(tmp_path)
    assert outcomes(imported) == {"org__name-1": 0}
    assert imported.notes == {"reports passed over for another of the same run": 1}


def test_what_could_not_be_set_up_has_no_outcome(tmp_path: Path) -> None:
    runs(tmp_path / "gpt", 1, 2)
    save(tmp_path / "gpt" / "report.json", {"resolved": [], "install_fail": ["org__name-2"]})
    imported = read(tmp_path)
    assert outcomes(imported) == {"org__name-1": 0}
    assert imported.dropped == {"infrastructure_error": 1}


def test_ids_of_multi_swe_bench_are_those_of_swe_bench(tmp_path: Path) -> None:
    save(tmp_path / "gpt" / "org__name_pr-1.traj", traj())
    save(tmp_path / "gpt" / "report.json", report(["org/name:pr-1"]))
    assert detect_format([tmp_path]) == "swe_agent"
    assert outcomes(read(tmp_path)) == {"org__name-1": 1}


def test_a_file_without_a_trajectory_is_explained(tmp_path: Path) -> None:
    save(tmp_path / "a.traj", {"steps": []})
    with pytest.raises(InputError, match=r"a\.traj has no trajectory in it"):
        detect_format([tmp_path])


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
    profile = profile_corpus(frame, rendered=[])
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.064, 0.21)
