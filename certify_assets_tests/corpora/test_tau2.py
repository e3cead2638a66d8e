from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import ImportedCorpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader, write_json
from certify_assets_tests.corpora.formats.tau2 import call, results, simulation, task
from certify_assets_tests.paths import shared_data

read = reader("tau2")


def one(tmp_path: Path, **changes: Any) -> ImportedCorpus:
    return read(write_json(tmp_path / "x.json", results([simulation("s", **changes)], [task("0")])))


def test_a_simulation_becomes_a_run(tmp_path: Path) -> None:
    (run,) = from_frame(one(tmp_path).frame)
    assert (run.task_id, run.trajectory_id, run.agent) == ("shop/0", "s", "llm_agent:m-1")
    assert (run.attempt, run.outcome) == (0, 1)
    assert run.instruction == "You want to move order 0.\nYou are Ada."
    assert run.steps == (
        Step("Hi.", "user: Please move order 0."),
        Step('find_order({"number": "0"})', 'tool find_order: {"state": "open"}'),
        Step("Run s is at its end.", ""),
    )


def test_calls_of_the_user_and_several_replies_at_once(tmp_path: Path) -> None:
    calls = [call("a"), call("b")]
    replies = [{"role": "tool", "id": f"call_{name}", "content": name} for name in "ab"]
    messages = [
        {"role": "assistant", "content": "Look at your phone.", "tool_calls": calls},
        {"role": "tool", "tool_messages": replies},
        {"role": "user", "content": None, "tool_calls": [call("look", "user", at="bar")]},
        {"role": "tool", "id": "call_look", "content": "no signal", "requestor": "user"},
        {"role": "critic", "content": "well done"},
    ]
    imported = one(tmp_path, messages=messages)
    seen = 'tool a: a\ntool b: b\nuser: look({"at": "bar"})\ntool look: no signal'
    (run,) = from_frame(imported.frame)
    assert run.steps == (Step("Look at your phone.\na({})\nb({})", seen),)
    assert imported.notes == {"messages of another role left out": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reward_info": {}}, "no_label"),
        ({"termination_reason": "infrastructure_error"}, "infrastructure_error"),
        ({"termination_reason": "max_steps"}, ""),
        ({"messages": None}, "no_trajectory"),
        ({"task_id": True}, "unreadable_record"),
    ],
)
def test_what_cannot_be_used_is_counted(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    runs = [simulation("a"), simulation("s", **changes), simulation("z", trial=1)]
    imported = read(write_json(tmp_path / "x.json", results(runs, [task("0")])))
    assert imported.dropped == ({reason: 1} if reason else {})
    assert len(imported.frame) == (2 if reason else 3)
    assert all("x.json row 2" in sentence for sentence in imported.examples.values())


def test_domains_keep_tasks_apart_and_trials_of_several_files_are_numbered_on(
    tmp_path: Path,
) -> None:
    for number, domain in enumerate(("shop", "shop", "bank")):
        document = results([simulation(f"s{number}")], [task("0")], domain=domain)
        write_json(tmp_path / f"{number}.json", document)
    found = [(run.task_id, run.attempt) for run in from_frame(read(tmp_path).frame)]
    assert found == [("bank/0", 0), ("shop/0", 0), ("shop/0", 1)]
    assert set(read(tmp_path, domain="all").frame["task_id"]) == {"all/0"}


def test_a_file_that_does_not_name_its_domain_asks_for_it(tmp_path: Path) -> None:
    document = results([simulation("s")], [task("0")])
    document["info"]["environment_info"] = {}
    with pytest.raises(InputError, match="not name its domain; give it with the option domain"):
        read(write_json(tmp_path / "x.json", document))


def test_runs_that_were_numbered_anew_go_back_to_their_task(tmp_path: Path) -> None:
    tasks = [task(str(number)) for number in range(3)]
    tasks += [task(name, evaluation_criteria={"nl_assertions": [name]}) for name in "34"]
    runs = [
        simulation(f"s{named}", of) | {"task_id": named}
        for named, of in (("0", "1"), ("1", "0"), ("2", "2"))
    ]
    said = {"reward": 1.0, "nl_assertions": [{"nl_assertion": "3"}]}
    runs += [simulation("s4", reward_info=said, task_id="4")]
    runs += [simulation("s3", reward_info={"reward": 0.0}, task_id="3")]
    imported = read(write_json(tmp_path / "x.json", results(runs, tasks)))
    found = {run.trajectory_id: run for run in from_frame(imported.frame)}
    assert {name: run.task_id for name, run in found.items()} == {
        "s0": "shop/1", "s1": "shop/0", "s2": "shop/2", "s4": "shop/3",
    }  # fmt: skip
    assert imported.notes == {"runs whose task was corrected to the one that was checked": 3}
    assert imported.dropped == {"unknown_task": 1}
    assert found["s0"].instruction.startswith("You want to move order 1.")


def test_a_run_that_broke_off_stays_with_its_task(tmp_path: Path) -> None:
    checks = {"reward": 0.0, "action_checks": None}
    broken = simulation("s1", "1", reward_info=checks, termination_reason="max_steps")
    document = results([simulation("s0"), broken], [task("0"), task("1")])
    imported = read(write_json(tmp_path / "x.json", document))
    assert imported.frame["task_id"].tolist() == ["shop/0", "shop/1"]
    assert not imported.notes and not imported.dropped


def test_the_published_runs() -> None:
    imported = read(sorted(shared_data("tau2_native").glob("*.tar.gz")))
    frame = imported.frame
    assert (len(frame), frame["task_id"].nunique(), imported.dropped) == (243, 175, {})
    # one producer numbered its 164 runs again: read by their numbers, two agents' runs of one
    # number would be of different tasks
    # releases of the benchmark word some instructions differently
    assert imported.notes == {
        "runs whose task was corrected to the one that was checked": 162,
        "tasks whose runs have unlike instructions": 23,
    }
    assert sorted(frame["task_id"].str.split("/").str[0].value_counts().to_dict().items()) == [
        ("airline", 111),
        ("mock", 16),
        ("retail", 115),
        ("telecom", 1),
    ]
    profile = profile_corpus(frame)
    assert (round(profile.success_rate, 3), round(profile.icc, 2)) == (0.683, 0.0)
