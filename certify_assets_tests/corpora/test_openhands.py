from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.schema import Step
from certify_assets_tests.corpora.builders import from_frame, reader
from certify_assets_tests.corpora.swe_builders import ISSUE, openhands, report, save, save_lines

read = reader("openhands")


def test_events_become_steps(tmp_path: Path) -> None:
    (run,) = from_frame(
        read(save_lines(tmp_path / "output.jsonl", [openhands("org__name-1")])).frame
    )
    assert run.task_id == "org__name-1"
    assert run.agent == "CodeActAgent maker/model-1"
    assert run.outcome == 1
    assert run.instruction == ISSUE
    assert run.steps == (
        Step("I look.\nrun: ls", "sums.py"),
        Step('finish({"final_thought": "Fixed.", "task_completed": "true"})', ""),
    )


def test_events_of_the_sdk_become_steps(tmp_path: Path) -> None:
    def text(words: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": words}]

    history = [
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"text": "You are"}},
        {
            "kind": "MessageEvent",
            "source": "user",
            "llm_message": {"role": "user", "content": text("<issue>Count.</issue>")},
        },
        {
            "kind": "ActionEvent",
            "source": "agent",
            "thought": text("I look."),
            "tool_name": "terminal",
            "action": {"kind": "TerminalAction", "command": "ls", "timeout": None},
        },
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "observation": {"kind": "TerminalObservation", "content": text("sums.py")},
        },
        {"kind": "AgentErrorEvent", "source": "agent", "error": "no such tool"},
        {"kind": "ConversationStateUpdateEvent", "source": "environment", "value": "finished"},
        {
            "kind": "MessageEvent",
            "source": "agent",
            "llm_message": {"role": "assistant", "content": text("Fixed.")},
        },
    ]
    record = openhands("org__name-1", history=history, instance=None, instruction=None)
    (run,) = from_frame(read(save_lines(tmp_path / "output.jsonl", [record])).frame)
    assert run.instruction == "Count."
    assert run.steps == (Step("I look.\nterminal: ls", "sums.py\nno such tool"), Step("Fixed.", ""))


def test_the_user_speaks_again(tmp_path: Path) -> None:
    history = openhands("x")["history"] + [
        {"source": "user", "action": "message", "args": {"content": "Go on."}},
        {
            "source": "agent",
            "action": "message",
            "args": {"content": "Done.", "wait_for_response": True},
        },
    ]
    (run,) = from_frame(
        read(
            save_lines(tmp_path / "output.jsonl", [openhands("org__name-1", history=history)])
        ).frame
    )
    assert run.steps[1].observation == "Go on." and run.steps[2] == Step("Done.", "")


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"report": {"resolved": True}}, 1),
        ({"report": {"resolved": 0}}, 0),
        ({"report": {"resolved": False, "empty_generation": True}}, 0),
        ({"report": None, "test_result": {"report": {"resolved": True}}}, 1),
        ({"report": {"resolved": "yes"}}, 1),
        ({"report": {"resolved": None}}, None),
        ({"report": {"resolved": 1.0}}, 1),
    ],
)
def test_outcomes(tmp_path: Path, changes: dict[str, Any], outcome: int | None) -> None:
    path = save_lines(
        tmp_path / "output.jsonl",
        [openhands("org__name-1", None, **changes), openhands("org__name-2")],
    )
    imported = read(path)
    found = dict(zip(imported.frame["task_id"], imported.frame["outcome"].tolist(), strict=True))
    assert found.get("org__name-1") == outcome
    assert imported.dropped == ({"no_label": 1} if outcome is None else {})


def test_what_could_not_be_evaluated_has_no_outcome(tmp_path: Path) -> None:
    failed = openhands("org__name-1", report={"resolved": False, "error_eval": True})
    imported = read(save_lines(tmp_path / "output.jsonl", [failed, openhands("org__name-2")]))
    assert imported.dropped == {"infrastructure_error": 1} and len(imported.frame) == 1


def test_a_report_beside_the_output(tmp_path: Path) -> None:
    records = [
        openhands(f"org__name-{number}", None, f"look {row}")
        for row, number in enumerate((1, 2, 3, 3))
    ]
    save_lines(tmp_path / "run" / "output.jsonl", records)
    save(
        tmp_path / "run" / "report.json",
        report(["org__name-1", "org__name-3"], others=["org__name-2"]),
    )
    imported = read(tmp_path)
    assert dict(
        zip(imported.frame["task_id"], imported.frame["outcome"].tolist(), strict=True)
    ) == {"org__name-1": 1, "org__name-2": 0}
    assert imported.dropped == {"ambiguous_label": 2}


def test_attempts_are_numbered_and_models_kept_apart(tmp_path: Path) -> None:
    one = openhands("org__name-1")
    other = openhands(
        "org__name-1", metadata={"agent_class": "CodeActAgent", "llm_config": {"model": "b"}}
    )
    save_lines(tmp_path / "a" / "output.jsonl", [one, one])
    save_lines(tmp_path / "b" / "output.jsonl", [other])
    save_lines(tmp_path / "c" / "output.jsonl", [one])
    imported = read(tmp_path)
    assert sorted(zip(imported.frame["agent"], imported.frame["attempt"], strict=True)) == [
        ("CodeActAgent b", 0),
        ("CodeActAgent maker/model-1", 0),
        ("CodeActAgent maker/model-1", 1),
    ]
    assert imported.dropped == {"duplicate": 1}


@pytest.mark.parametrize(
    "record",
    [
        7,
        {"history": [1], "instance_id": "x", "test_result": {}},
        openhands(""),
        openhands("x", history="y"),
    ],
)
def test_a_broken_record_costs_that_record(tmp_path: Path, record: Any) -> None:
    imported = read(
        save_lines(
            tmp_path / "output.jsonl", [openhands("org__name-1"), record, openhands("org__name-2")]
        )
    )
    assert len(imported.frame) == 2 and imported.dropped == {"unreadable_record": 1}
    assert "output.jsonl row 2 cannot be used: " in imported.examples["unreadable_record"]
