from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.schema import Step, from_frame
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import reader, write_json
from certify_assets_tests.corpora.formats.agentclinic import case
from certify_assets_tests.paths import shared_data

read = reader("agentclinic", min_cases=1)


def put(root: Path, run: str, *records: Any) -> None:
    for number, record in enumerate(records):
        write_json(root / run / "cases" / f"{number}.json", record)


def test_a_case_becomes_a_run(tmp_path: Path) -> None:
    put(tmp_path, "20260808T194241Z-sweep_x", case(3, False))
    (run,) = from_frame(read(tmp_path).frame)
    assert (run.task_id, run.agent, run.attempt, run.outcome) == ("MedQA-3", "sweep_x", 0, 0)
    assert (
        run.instruction
        == "Find the diagnosis of the patient of case MedQA-3 by questions and tests."
    )
    assert run.steps == (
        Step("How do you feel, patient 3? ", "patient: I sneeze."),
        Step("REQUEST TEST: Temperature", "measurement: RESULTS: 37.2"),
        Step("DIAGNOSIS READY: Cold", ""),
    )


def test_runs_of_one_name_are_attempts_of_one_agent(tmp_path: Path) -> None:
    put(tmp_path, "20260101T000000Z-x", case(0, said="first"), case(1))
    put(tmp_path, "20260102T000000Z-x", case(0, said="second"), case(1))
    imported = read(tmp_path)
    assert imported.frame[["task_id", "agent", "attempt"]].to_numpy().tolist() == [
        ["MedQA-0", "x", 0],
        ["MedQA-0", "x", 1],
        ["MedQA-1", "x", 0],
    ]
    assert imported.dropped == {"duplicate": 1}


def test_small_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    put(tmp_path, "large", *(case(number) for number in range(3)))
    put(tmp_path, "small", case(0, said="small"), case(1, said="small"))
    assert len(read(tmp_path).frame) == 5
    imported = read(tmp_path, min_cases="3")
    assert set(imported.frame["agent"]) == {"large"} and imported.dropped == {"small_run": 2}
    assert "a run with 2 cases" in imported.examples["small_run"]
    with pytest.raises(InputError, match="option min_cases is 'few'"):
        read(tmp_path, min_cases="few")


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [
        ({"score": None}, "no_label"),
        ({"score": {"correctness": "yes"}}, "no_label"),
        ({"infra_fail": True}, "infrastructure_error"),
        ({"error": "timed out"}, "infrastructure_error"),
        ({"dialogue": []}, "no_trajectory"),
        ({"dialogue": [1]}, "unreadable_record"),
        ({"scenario_id": None}, "unreadable_record"),
        ({"scenario_id": True}, "unreadable_record"),
    ],
)
def test_what_cannot_be_used_is_counted(
    tmp_path: Path, changes: dict[str, Any], dropped: str
) -> None:
    put(tmp_path, "run", case(0), case(1, **changes))
    imported = read(tmp_path)
    assert imported.dropped == {dropped: 1} and len(imported.frame) == 1
    assert "run/cases/1.json" in imported.examples[dropped]


def test_ids_and_roles(tmp_path: Path) -> None:
    dialogue = [
        {"role": "patient", "text": "Hello."},
        {"role": "judge", "text": "right"},
        {"role": "doctor", "text": None},
    ]
    put(tmp_path, "run", case(0, scenario_id=7, dialogue=dialogue))
    imported = read(tmp_path)
    assert imported.frame["task_id"].tolist() == ["MedQA-7"]
    assert imported.notes == {"turns of another role left out": 1}
    assert from_frame(imported.frame)[0].steps == (Step("", "patient: Hello."), Step("", ""))


@pytest.mark.slow
def test_the_published_runs() -> None:
    archives = sorted(shared_data("agentclinic_whissle").glob("*.tar.gz"))
    imported = import_corpus(archives, name="ac")
    profile = profile_corpus(imported.frame)
    assert profile.trajectories == 275
    assert profile.tasks == 100
    assert imported.format == "agentclinic"
    assert imported.dropped["small_run"] == 28
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.815, 0.22)
    # the collection's README counts the seven small runs too
    whole = read(archives)
    profile = profile_corpus(whole.frame)
    assert (profile.trajectories, profile.tasks, "small_run" in whole.dropped) == (303, 103, False)
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.805, 0.19)
