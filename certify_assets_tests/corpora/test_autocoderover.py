from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import ImportedCorpus, import_corpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import Step, from_frame
from certify_assets_tests.corpora.swe_builders import ISSUE, conversation, save, traj
from certify_assets_tests.paths import shared_data

STAMP = "2024-04-06_13-51-50"


def read(path: Path, format: str = "autocoderover", **options: Any) -> ImportedCorpus:
    return import_corpus(path, format=format, name="c", options=options)


def run(
    root: Path,
    number: int = 1,
    bucket: str = "applicable_patch",
    rounds: int = 1,
    stamp: str = STAMP,
) -> Path:
    folder = root / bucket / f"org__name-{number}_{stamp}"
    save(folder / f"conversation_round_{rounds}.json", conversation(f"look at {number}", rounds))
    return folder


def test_the_last_round_and_the_patches_become_steps(tmp_path: Path) -> None:
    folder = run(tmp_path / "acr-run-2", rounds=10)
    save(folder / "conversation_round_9.json", conversation(rounds=9))
    for number in (10, 9, 1):
        save(folder / f"agent_patch_raw_{number}", f"patch {number}")
    save(tmp_path / "acr-run-2" / "new_eval_results" / "report.json", {"resolved": ["org__name-1"]})
    (found,) = from_frame(read(tmp_path).frame)
    assert found.task_id == "org__name-1"
    assert found.agent == "acr"
    assert found.outcome == 1
    assert found.instruction == ISSUE
    assert len(found.steps) == 13
    assert found.steps[-3:] == tuple(Step(f"patch {number}", "") for number in (1, 9, 10))
    assert found.steps[0] == Step(
        "I look at 1 in round 0: search_method('total')",
        "user: Result of search_method: def total(rows):",
    )


@pytest.mark.parametrize(
    "bucket",
    ["raw_patch_but_unmatched", "raw_patch_but_unparsed", "matched_but_empty_origin", "no_patch"],
)
def test_buckets_are_not_shown(tmp_path: Path, bucket: str) -> None:
    run(tmp_path / "acr-val", 1, bucket)
    save(tmp_path / "acr-val" / "new_eval_results" / "report.json", {"resolved": []})
    frame = read(tmp_path).frame
    assert frame["agent"].tolist() == ["acr-val"] and frame["outcome"].tolist() == [0]
    assert bucket not in render_frame(frame)[0].text
    assert bucket not in frame.drop(columns=["source_file"]).to_json()


def test_the_new_evaluation_is_believed(tmp_path: Path) -> None:
    run(tmp_path / "acr")
    save(tmp_path / "acr" / "old_eval_results" / "final_report.json", {"resolved": ["org__name-1"]})
    assert read(tmp_path).frame["outcome"].tolist() == [1]
    save(tmp_path / "acr" / "new_eval_results" / "report.json", {"resolved": []})
    assert read(tmp_path).frame["outcome"].tolist() == [0]


def test_two_runs_of_one_instance_share_no_outcome(tmp_path: Path) -> None:
    run(tmp_path / "acr")
    run(tmp_path / "acr", bucket="no_patch", stamp="2024-04-07_13-51-50")
    run(tmp_path / "acr", 2)
    save(tmp_path / "acr" / "new_eval_results" / "report.json", {"resolved": ["org__name-1"]})
    imported = read(tmp_path)
    assert imported.frame["task_id"].tolist() == ["org__name-2"]
    assert imported.dropped == {"ambiguous_label": 2}


def test_a_silent_agent_has_no_trajectory(tmp_path: Path) -> None:
    run(tmp_path / "acr")
    folder = run(tmp_path / "acr", 2)
    save(folder / "conversation_round_1.json", conversation(rounds=0))
    save(tmp_path / "acr" / "new_eval_results" / "report.json", {"resolved": []})
    assert read(tmp_path).dropped == {"no_trajectory": 1}


def test_tasks_are_spelt_as_those_of_swe_agent(tmp_path: Path) -> None:
    run(tmp_path / "acr")
    save(tmp_path / "acr" / "new_eval_results" / "report.json", {"resolved": ["org__name-1"]})
    save(tmp_path / "swe" / "org__name-1.traj", traj())
    save(tmp_path / "swe" / "final_report.json", {"resolved": []})
    imported = read(tmp_path, "autocoderover+swe_agent")
    assert [(item.task_id, item.agent, item.outcome) for item in from_frame(imported.frame)] == [
        ("org__name-1", "acr", 1),
        ("org__name-1", "swe", 0),
    ]
    assert imported.dropped == {} and imported.frame["instruction"].nunique() == 1


@pytest.mark.slow
def test_the_published_runs_on_swe_bench_lite() -> None:
    imported = read(
        next(shared_data("swebench_lite_acr").glob("*.tar.gz")), "autocoderover+swe_agent"
    )
    frame = imported.frame
    assert (len(frame), frame["task_id"].nunique(), int(frame["outcome"].sum())) == (2326, 300, 378)
    assert set(imported.dropped) == {"file_other_format"}
    assert imported.notes == {"reports passed over for another of the same run": 5}
    assert frame["agent"].value_counts().tolist() == [900, 826, 300, 300]
    assert frame["attempt"].max() == 2
    profile = profile_corpus(frame, rendered=[])
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.163, 0.56)
