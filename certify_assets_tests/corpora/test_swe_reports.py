import pytest

from certify_assets.corpora.formats.swe_reports import issue_text, task_of


@pytest.mark.parametrize(
    ("given_id", "task"),
    [
        ("apache/dubbo:pr-10638", "apache__dubbo-10638"),
        ("apache__dubbo_pr-10638", "apache__dubbo-10638"),
        ("pytest-dev__pytest-7432", "pytest-dev__pytest-7432"),
        ("tasks/list-3", "tasks/list-3"),
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
        ("<issue>never closed", "<issue>never closed"),
    ],
)
def test_the_issue_in_a_prompt(prompt: str, issue: str) -> None:
    assert issue_text(prompt) == issue
