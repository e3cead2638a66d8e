from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats.miniwob_demos import page_text
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.schema import Step, from_frame
from certify_assets_tests.corpora.builders import reader
from certify_assets_tests.corpora.formats.miniwob_demos import click, demo, event, node, page, put
from certify_assets_tests.paths import shared_data

NAME = "turk/send-text_3ABC_d1.json.gz"

read = reader("miniwob_demos")


def actions(tmp_path: Path, states: list[Any]) -> list[tuple[str, str]]:
    put(tmp_path / NAME, demo(states))
    (steps,) = read(tmp_path).frame["steps"]
    return [(step["action"], step["observation"]) for step in steps]


def keys(text: str, before: str = "") -> list[dict[str, Any]]:
    """Keys as browsers report them: down, press and up, each twice; the value shows at the end."""
    states: list[dict[str, Any]] = []
    for number, letter in enumerate(text, 1):
        for kind, value in (
            ("keydown", text[: number - 1]),
            ("keypress", text[: number - 1]),
            ("keyup", text[:number]),
        ):
            code = {
                "keyCode": ord(letter.upper()),
                "charCode": ord(letter) if kind == "keypress" else 0,
            }
            states += [
                event(kind, page(before + value), timing=timing, **code) for timing in (1, 3)
            ]
    return states


def test_a_demonstration_becomes_a_run(tmp_path: Path) -> None:
    put(
        tmp_path / NAME,
        demo(
            [
                *click(page(), y=5),
                *keys("hi"),
                *click(page("hi"), page("hi", node("P", 60, "Sent."))),
            ],
            1,
        ),
    )
    (run,) = from_frame(read(tmp_path).frame)
    assert run.task_id == "send-text"
    assert run.agent == "3ABC"
    assert run.trajectory_id == "send-text_3ABC_d1"
    assert run.outcome == 1
    assert run.instruction == "Press Send."
    assert run.steps == (
        Step("", "input_text\nbutton Send"),
        Step("click 'input_text' at (10, 5)", "the page did not change"),
        Step("type hi", "input_text = hi\nbutton Send"),
        Step("click 'button Send' at (10, 40)", "input_text = hi\nbutton Send\nSent."),
    )


def test_drags_named_keys_scrolls_and_double_clicks(tmp_path: Path) -> None:
    drag = [event("mousedown", page(), 5), event("mouseup", page(), 40)]
    special = [event("keydown", page(), keyCode=code, charCode=0) for code in (8, 13, 16)]
    found = [
        action
        for action, _ in actions(
            tmp_path, [*drag, *special, event("scroll", page()), event("dblclick", page())]
        )
    ]
    assert found == [
        "",
        "drag 'input_text' at (10, 5) to 'button Send' at (10, 40)",
        "type [Backspace][Enter]",
        "scroll",
        "double-click 'button Send' at (10, 40)",
    ]


def test_a_run_that_ends_between_press_and_click(tmp_path: Path) -> None:
    assert [action for action, _ in actions(tmp_path, click(page())[:2])] == [
        "",
        "press 'button Send' at (10, 40)",
    ]
    twice = [*click(page())[:2], *click(page(), y=5)]
    assert [action for action, _ in actions(tmp_path, twice)] == [
        "",
        "press 'button Send' at (10, 40)",
        "click 'input_text' at (10, 5)",
    ]


def test_odd_events_and_pages(tmp_path: Path) -> None:
    odd: list[Any] = [
        event("click", page(), y=500),
        {"action": {"type": "click", "timing": 1}, "dom": page()},
        {"action": {"type": "keypress", "charCode": 13, "timing": 1}, "dom": page()},
        {"action": {"type": "gesture", "timing": 1}, "dom": None},
        {"action": 5, "dom": {"tag": "BODY", "children": "none"}},
    ]
    assert actions(tmp_path, odd) == [
        ("", "input_text\nbutton Send"),
        ("click page at (10, 500)", "the page did not change"),
        ("click somewhere", ""),
    ]
    deep: dict[str, Any] = {"tag": "t", "text": "deep"}
    for _ in range(5_000):
        deep = {"tag": "DIV", "children": [deep]}
    assert page_text(deep) == "deep"


@pytest.mark.parametrize(
    ("reward", "outcome"),
    [(1, 1), (1.0, 1), (0.99, 0), (0, 0), (-1, 0), (None, None), ("1", None), (True, None)],
)
def test_rewards(tmp_path: Path, reward: Any, outcome: int | None) -> None:
    put(tmp_path / NAME, demo(reward=reward))
    put(tmp_path / NAME.replace("d1", "d2"), demo())
    first = from_frame(read(tmp_path, keep_unlabelled=True).frame)[0]
    assert first.outcome == outcome
    assert read(tmp_path).dropped == ({"no_label": 1} if outcome is None else {})


def test_equal_runs_of_one_person_are_runs_and_copied_files_copies(tmp_path: Path) -> None:
    for name in (NAME, NAME.replace("d1", "d2"), NAME.replace("turk", "copy")):
        put(tmp_path / name, demo())
    imported = read(tmp_path)
    assert len(imported.frame) == 2 and imported.dropped == {"duplicate": 1}


@pytest.mark.parametrize(
    ("name", "record", "task", "person"),
    [
        ("t/send-text-turk_X_d3.json.gz", demo(taskName="send-text"), "send-text-turk", "X"),
        ("t/run7.json.gz", demo(), "send-text", "person"),
        ("folder/run7.json.gz", demo(taskName=None), "folder", "person"),
    ],
)
def test_task_and_person_are_in_the_file_name(
    tmp_path: Path, name: str, record: Any, task: str, person: str
) -> None:
    put(tmp_path / name, record)
    assert read(tmp_path).frame[["task_id", "agent"]].to_numpy().tolist() == [[task, person]]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"utterance": None}, "unreadable_record"),
        ({"states": [{"time": 0}, 1]}, "unreadable_record"),
        ({"states": []}, "no_trajectory"),
        ({"states": [{"time": 0, "action": None, "dom": {}}]}, "no_trajectory"),
    ],
)
def test_what_cannot_be_used_is_counted(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    put(tmp_path / NAME, demo() | changes)
    put(tmp_path / NAME.replace("d1", "d2"), demo())
    imported = read(tmp_path)
    assert imported.dropped == {reason: 1} and len(imported.frame) == 1


@pytest.mark.slow
def test_the_published_demonstrations() -> None:
    imported = read(sorted(shared_data("miniwob_demos").glob("*.tar.gz")))
    profile = profile_corpus(imported.frame)
    # the other 23 of the 1706 files hold no state
    assert profile.trajectories == 1683
    assert profile.tasks == 60
    assert imported.dropped == {"no_trajectory": 23}
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.927, 0.32)
