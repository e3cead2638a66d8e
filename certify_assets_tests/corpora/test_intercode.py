import json
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.leakage import check_leaks
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.schema import Step, from_frame
from certify_assets_tests.corpora.builders import reader, write_json
from certify_assets_tests.corpora.formats.intercode import episode
from certify_assets_tests.paths import shared_data

NAME = "bash/gpt-9/ic_bash_plan_solve_fs_1.json"

read = reader("intercode")


def test_an_episode_becomes_a_run(tmp_path: Path) -> None:
    record = episode(
        4,
        (0.1, 1.0, 0.0),
        steps=["Look.", "Count."],
        thoughts=["First I look.", "Then I count."],
        observations=["a\n", "b\n"],
    )
    write_json(tmp_path / NAME, {"0": record})
    (run,) = from_frame(read(tmp_path).frame)
    assert run.task_id == "files_fs_1/4"
    assert run.agent == "gpt-9_plan_solve"
    assert run.attempt == 0
    assert run.outcome == 1
    assert run.instruction == "Count the files of folder 4."
    assert run.steps == (
        Step("plan: Look.\nCount.", ""),
        Step("First I look.\nls /data/4 | head -0", "a\n"),
        Step("Then I count.\nls /data/4 | head -1", "b\n"),
        Step("ls /data/4 | head -2", ""),
    )


@pytest.mark.parametrize(
    ("reward", "outcome"),
    [
        (1.0, 1),
        (1, 1),
        (1 - 1e-9, 1),
        (0.99, 0),
        (0, 0),
        (-1, 0),
        (None, None),
        ("1", None),
        (True, None),
    ],
)
def test_rewards(tmp_path: Path, reward: Any, outcome: int | None) -> None:
    write_json(
        tmp_path / NAME, {"0": episode() | {"summary": {"max_reward": reward}}, "1": episode(1)}
    )
    (first, _) = from_frame(read(tmp_path, keep_unlabelled=True).frame)
    assert first.outcome == outcome
    assert read(tmp_path).dropped == ({"no_label": 1} if outcome is None else {})


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("bash/gpt-4/ic_bash_multiturn_gpt-4_10_turns_fs_3.json", "multiturn_gpt-4_10_turns"),
        ("bash/gpt-3.5/ic_bash_react_10_turns_fs_1.json", "gpt-3.5_react_10_turns"),
        ("mine/runs/ic_bash_react_10_turns.json", "react_10_turns"),
        ("my.json.json", "my"),
    ],
)
def test_the_agent_is_in_the_path(tmp_path: Path, name: str, agent: str) -> None:
    write_json(tmp_path / "in" / name, {"0": episode()})
    assert read(tmp_path / "in").frame["agent"].tolist() == [agent]


def test_equal_runs_of_two_models_are_two_runs_and_copies_one(tmp_path: Path) -> None:
    for name in (NAME, NAME.replace("gpt-9", "gpt-8"), f"copy/{NAME}"):
        write_json(tmp_path / name, {"0": episode()})
    imported = read(tmp_path)
    assert len(imported.frame) == 2 and imported.dropped == {"duplicate": 1}


def test_episodes_with_settings_before_or_after_them(tmp_path: Path) -> None:
    logs = {str(task): episode(task) for task in range(3)}
    write_json(tmp_path / "a" / NAME, {"meta": {"env": "bash", "seed": None}, "logs": logs})
    write_json(tmp_path / "b" / NAME, {"logs": logs, "meta": {"env": "bash"}})
    assert len(read(tmp_path / "a").frame) == 3 == len(read(tmp_path / "b").frame)


@pytest.mark.parametrize(
    "record",
    [
        {"task_id": 5},
        7,
        "text",
        None,
        [1],
        episode(True),
        episode() | {"task_id": None},
        episode() | {"query": None},
        episode() | {"turn_history": []},
        episode(actions=[1]),
        episode(actions="ls"),
        episode(thoughts=[{}]),
    ],
)
def test_a_broken_episode_costs_that_episode(tmp_path: Path, record: Any) -> None:
    write_json(tmp_path / NAME, {"0": episode(0), "1": record, "2": episode(2)})
    imported = read(tmp_path)
    assert imported.frame["task_id"].tolist() == ["files_fs_1/0", "files_fs_1/2"]
    assert imported.dropped == {"unreadable_record": 1}
    assert "ic_bash_plan_solve_fs_1.json row 2" in imported.examples["unreadable_record"]


@pytest.mark.parametrize(
    "damage",
    [
        '{"task_id": 1, "query": ,}',
        '{"a": \x00}',
        '{"task_id": 1, "turn_history": {"x": {}, "y" {}}}',
        "7 8",
    ],
)
def test_reading_goes_on_after_what_is_not_json(tmp_path: Path, damage: str) -> None:
    write_json(tmp_path / NAME, {"0": episode(0), "1": "@", "2": {"x": 1}, "3": episode(3)})
    path = tmp_path / NAME
    path.write_text(path.read_text("utf-8").replace('"@"', damage), "utf-8")
    imported = read(tmp_path)
    assert imported.frame["task_id"].tolist() == ["files_fs_1/0", "files_fs_1/3"]
    assert set(imported.dropped) == {"unreadable_record"}


def test_keys_that_are_broken_cost_their_episode(tmp_path: Path) -> None:
    text = json.dumps({"0": episode(0), "1": episode(1), "2": episode(2)})
    write_json(tmp_path / NAME, {})
    for broken in ('1: {"environment"', '"1 : {"environment"', '"1" {"environment"'):
        (tmp_path / NAME).write_text(text.replace('"1": {"environment"', broken), "utf-8")
        imported = read(tmp_path)
        assert imported.frame["task_id"].tolist() == ["files_fs_1/0", "files_fs_1/2"]
        assert imported.dropped == {"unreadable_record": 1}


def test_a_file_that_ends_early_says_that_episodes_may_be_missing(tmp_path: Path) -> None:
    text = json.dumps({str(task): episode(task) for task in range(3)})
    write_json(tmp_path / NAME, {})
    (tmp_path / NAME).write_text(text[:-1], "utf-8")
    assert read(tmp_path).dropped == {"file_ends_early": 1}
    (tmp_path / NAME).write_text(text[:-9], "utf-8")
    imported = read(tmp_path)
    assert len(imported.frame) == 2
    assert imported.dropped == {"file_ends_early": 1, "unreadable_record": 1}


def test_bytes_that_are_not_utf8_cost_their_episode(tmp_path: Path) -> None:
    text = json.dumps(
        {str(task): episode(task, actions=["caf@" if task == 1 else "cat é"]) for task in range(3)},
        ensure_ascii=False,
    )
    write_json(tmp_path / NAME, {})
    (tmp_path / NAME).write_bytes(b"\xef\xbb\xbf" + text.encode().replace(b"caf@", b"caf\xe9"))
    imported = read(tmp_path)
    assert imported.frame["task_id"].tolist() == ["files_fs_1/0", "files_fs_1/2"]
    assert imported.dropped == {"unreadable_record": 1}


@pytest.mark.slow
def test_the_published_bash_runs() -> None:
    imported = read(sorted(shared_data("intercode_bash").glob("*.tar.gz")))
    frame = imported.frame
    assert len(frame) == 1802
    assert frame["task_id"].nunique() == 200
    assert frame["agent"].nunique() == 10
    assert imported.dropped == {}
    profile = profile_corpus(frame)
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.287, 0.32)
    # 200 of these runs are in the four files that keep their episodes under "logs"; the others are
    # the 1602 of the collection's README
    flat = frame[
        ~frame["agent"].str.contains("refine")
        & ~frame["source_file"].str.contains(r"plan_solve_fs_[234]")
    ]
    profile = profile_corpus(flat)
    assert (len(flat), round(profile.success_rate, 3), round(profile.icc, 2)) == (1602, 0.288, 0.33)
    assert check_leaks(frame).over, (
        "episodes that stop at success are a structural leak, and it shows"
    )
