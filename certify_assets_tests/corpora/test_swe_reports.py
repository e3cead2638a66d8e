import pytest
from hypothesis import given
from hypothesis import strategies as st

from certify_assets.corpora.formats.records import decode, one_object
from certify_assets.corpora.formats.swe_reports import (
    Report,
    Unlabelled,
    issue_text,
    run_name,
    task_of,
)

WORDS = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}[a-z]", fullmatch=True)


@given(
    owner=WORDS.filter(lambda word: "__" not in word),
    name=WORDS.filter(lambda word: not word.endswith("_pr")),
    number=st.integers(0, 99_999),
)
def test_both_spellings_are_one_id(owner: str, name: str, number: int) -> None:
    old = f"{owner}__{name}-{number}"
    assert task_of(f"{owner}/{name}:pr-{number}") == task_of(old) == task_of(task_of(old)) == old


@pytest.mark.parametrize(
    ("given_id", "task"),
    [
        ("apache/dubbo:pr-10638", "apache__dubbo-10638"),
        ("apache__dubbo_pr-10638", "apache__dubbo-10638"),
        ("pytest-dev__pytest-7432", "pytest-dev__pytest-7432"),
        ("tasks/list-3", "tasks/list-3"),
        ("a b/c:pr-1", "a b/c:pr-1"),
        ("", ""),
    ],
)
def test_ids(given_id: str, task: str) -> None:
    assert task_of(given_id) == task


@pytest.mark.parametrize(
    ("prompt", "issue"),
    [
        ("<issue>One\n</issue>", "One"),
        (
            "Read:\n<pr_description>\nOne\n<b>two</b>\n</pr_description>\nNow work.",
            "One\n<b>two</b>",
        ),
        ("Here's the issue text:\nISSUE:\nOne\n\nINSTRUCTIONS:\nWork.", "One"),
        ("ISSUE:\nOne", "One"),
        ("Fix the ISSUE: now", "Fix the ISSUE: now"),
        ("<issue>never closed", "<issue>never closed"),
        ("", ""),
    ],
)
def test_the_issue_in_a_prompt(prompt: str, issue: str) -> None:
    assert issue_text(prompt) == issue


def test_what_a_report_says() -> None:
    old = Report("r.json", "r", frozenset({"a"}), no_setup=frozenset({"c"}))
    assert (old.outcome("a"), old.outcome("b")) == (1, 0)
    assert old.outcome("c") == Unlabelled(
        "infrastructure_error",
        "was not evaluated: r.json says that its environment could not be set up",
    )
    new = Report("r.json", "r", frozenset({"a"}), counted=frozenset({"a", "b"}))
    found = new.outcome("c")
    assert (new.outcome("a"), new.outcome("b")) == (1, 0)
    assert isinstance(found, Unlabelled)
    assert found.reason == "not_evaluated"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "it is not JSON"),
        (b"\xff", "it is not UTF-8"),
        (b"7", "it is int"),
        (b"", "it is not JSON"),
    ],
)
def test_what_is_no_object(data: bytes, problem: str) -> None:
    found = one_object(decode(data))
    assert isinstance(found, str) and found.startswith(problem)
    assert one_object(decode(b'\xef\xbb\xbf{"a": 1}')) == {"a": 1}


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("a/b/trajs/x-1.traj", "b"),
        ("a/b/x-1/x-1.traj", "b"),
        ("a/trajs/output.jsonl", "a"),
        ("x-1.traj", "unknown"),
    ],
)
def test_the_folder_that_names_a_run(name: str, run: str) -> None:
    assert run_name(name) == run
