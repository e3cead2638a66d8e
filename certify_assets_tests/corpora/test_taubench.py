from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader, tau_record, write_json

read = reader()


def test_messages_become_steps(tmp_path: Path) -> None:
    imported = read(write_json(tmp_path / "gpt-retail.json", [tau_record(3, text="Done.")]))
    (run,) = from_frame(imported.frame)
    assert (run.task_id, run.agent, run.attempt, run.outcome) == ("retail/3", "gpt", 0, 1)
    assert run.instruction == "Return order 3."
    assert run.steps == (
        Step("", "user: I want to return my order."),
        Step(
            'get_order_details({"order_id": "#A1"})',
            'tool get_order_details: {"status": "delivered"}',
        ),
        Step("Done.", "user: ###STOP###"),
    )


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("gpt-4o-retail.json", "gpt-4o"),
        (
            "tool-calling-gpt-4o-0.0_range_0--1_user-gpt-4o-llm_0716114053.json",
            "tool-calling-gpt-4o-0.0_user-gpt-4o-llm",
        ),
        ("act-x_range_0-100.json", "act-x"),
        ("act-x_range_0-100_6_18_2025.json", "act-x_6_18_2025"),
    ],
)
def test_the_agent_is_in_the_file_name(tmp_path: Path, name: str, agent: str) -> None:
    assert read(write_json(tmp_path / name, [tau_record()])).frame["agent"].tolist() == [agent]


def test_the_trial_is_not_trusted(tmp_path: Path) -> None:
    records = [tau_record(task, trial=task, text=f"run {task}") for task in (4, 5)]
    records.append(tau_record(4, 0.0, trial=4, text="again"))
    frame = read(write_json(tmp_path / "fork-retail.json", records)).frame
    ids = ["retail/4/fork/0", "retail/4/fork/1", "retail/5/fork/0"]
    assert frame["trajectory_id"].tolist() == ids and frame["attempt"].tolist() == [0, 1, 0]


def test_domains(tmp_path: Path) -> None:
    call = {"function": {"name": "search_direct_flight", "arguments": {"a": 1}}}
    flight = {"role": "assistant", "content": None, "tool_calls": [call]}
    one = write_json(tmp_path / "x.json", [tau_record()])
    two = write_json(tmp_path / "y.json", [tau_record(traj=[flight])])
    imported = read([one, two])
    assert imported.frame["task_id"].tolist() == ["airline/0", "retail/0"]
    assert from_frame(imported.frame)[0].steps == (Step('search_direct_flight({"a": 1})', ""),)
    assert read([one, two], domain="shop").frame["task_id"].tolist() == ["shop/0", "shop/0"]
    talk = tau_record(traj=[{"role": "assistant", "content": "hi"}])
    with pytest.raises(
        InputError, match=r"z\.json does not show its τ-bench domain.* option domain"
    ):
        read(write_json(tmp_path / "z.json", [talk]))


def test_copies_of_one_run_count_once(tmp_path: Path) -> None:
    first = write_json(tmp_path / "a-retail.json", [tau_record(0), tau_record(1)])
    noted = [tau_record(0), tau_record(1, text="other")]
    noted[0]["traj"][0]["index"] = 1
    imported = read([write_json(tmp_path / "b-retail.json", noted), first])
    assert imported.dropped == {"duplicate": 1}
    ids = ["retail/0/a/0", "retail/1/a/0", "retail/1/b/0"]
    assert sorted(imported.frame["trajectory_id"]) == ids


def test_equal_runs_of_one_file_are_runs_unless_their_trial_is_one(tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "a-retail.json",
        [tau_record(0, trial=0), tau_record(0, trial=1), tau_record(0, trial=1)],
    )
    imported = read(path)
    assert len(imported.frame) == 2 and imported.dropped == {"duplicate": 1}


def test_infrastructure_errors_are_counted(tmp_path: Path) -> None:
    failed = tau_record(1, 0.0, info={"error": "timeout", "traceback": "..."}, traj=[])
    records = [tau_record(), failed, tau_record(2, traj=[]), tau_record(3, info={"error": "x"})]
    imported = read(write_json(tmp_path / "a-retail.json", records))
    assert len(imported.frame) == 1 and imported.dropped == {"infrastructure_error": 3}
    with pytest.raises(InputError, match=r"nothing in .* error report"):
        read(write_json(tmp_path / "b-retail.json", [failed]))


@pytest.mark.parametrize(
    "record", [{"task_id": 5}, None, tau_record(True), tau_record(1.5), tau_record(traj=[1])]
)
def test_a_broken_record_costs_that_record(tmp_path: Path, record: Any) -> None:
    imported = read(write_json(tmp_path / "a-retail.json", [tau_record(0), record, tau_record(2)]))
    assert imported.frame["task_id"].tolist() == ["retail/0", "retail/2"]
    assert imported.dropped == {"unreadable_record": 1}
    assert "a-retail.json row 2" in imported.examples["unreadable_record"]
