from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import ImportedCorpus
from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import from_frame, reader, write_json, write_lines
from certify_assets_tests.corpora.swe_builders import ISSUE, openhands, report

read = reader("openhands")


def read_lines(folder: Path, *records: Any) -> ImportedCorpus:
    return read(write_lines(folder / "output.jsonl", records))


def test_events_become_steps(tmp_path: Path) -> None:
    (run,) = from_frame(read_lines(tmp_path, openhands("org__name-1")).frame)
    assert (run.task_id, run.agent) == ("org__name-1", "CodeActAgent maker/model-1")
    assert (run.outcome, run.instruction) == (1, ISSUE)
    assert run.steps == (
        Step("I look.\nrun: ls", "sums.py"),
        Step('finish({"final_thought": "Fixed.", "task_completed": "true"})', ""),
    )


def test_events_of_the_sdk_become_steps(tmp_path: Path) -> None:
    def text(words: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": words}]

    def event(kind: str, source: str, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "source": source, **fields}

    def message(source: str, role: str, words: str) -> dict[str, Any]:
        return event("MessageEvent", source, llm_message={"role": role, "content": text(words)})

    call = {"kind": "TerminalAction", "command": "ls", "timeout": None}
    seen = {"kind": "TerminalObservation", "content": text("sums.py")}
    history = [
        event("SystemPromptEvent", "agent", system_prompt={"text": "You are"}),
        message("user", "user", "<issue>Count.</issue>"),
        event("ActionEvent", "agent", thought=text("I look."), tool_name="terminal", action=call),
        event("ObservationEvent", "environment", observation=seen),
        event("AgentErrorEvent", "agent", error="no such tool"),
        event("ConversationStateUpdateEvent", "environment", value="finished"),
        message("agent", "assistant", "Fixed."),
    ]
    record = openhands("org__name-1", history=history, instance=None, instruction=None)
    (run,) = from_frame(read_lines(tmp_path, record).frame)
    assert run.instruction == "Count."
    assert run.steps == (Step("I look.\nterminal: ls", "sums.py\nno such tool"), Step("Fixed.", ""))


@pytest.mark.parametrize(
    ("changes", "outcome", "reason"),
    [
        ({"report": {"resolved": False, "empty_generation": True}}, 0, ""),
        ({"report": None, "test_result": {"report": {"resolved": True}}}, 1, ""),
        ({"report": {"resolved": False, "error_eval": True}}, None, "infrastructure_error"),
    ],
)
def test_outcomes(
    tmp_path: Path, changes: dict[str, Any], outcome: int | None, reason: str
) -> None:
    record = openhands("org__name-1", None, **changes)
    imported = read_lines(tmp_path, record, openhands("org__name-2"))
    found = dict(zip(imported.frame["task_id"], imported.frame["outcome"].tolist(), strict=True))
    assert found.get("org__name-1") == outcome
    assert imported.dropped == ({reason: 1} if reason else {})


def test_a_report_beside_the_output(tmp_path: Path) -> None:
    records = [openhands(f"org__name-{n}", None, f"look {row}") for row, n in enumerate("1233")]
    write_lines(tmp_path / "run" / "output.jsonl", records)
    found = report(["org__name-1", "org__name-3"], others=["org__name-2"])
    write_json(tmp_path / "run" / "report.json", found)
    imported = read(tmp_path)
    outcomes = zip(imported.frame["task_id"], imported.frame["outcome"].tolist(), strict=True)
    assert dict(outcomes) == {"org__name-1": 1, "org__name-2": 0}
    assert imported.dropped == {"ambiguous_label": 2}
