"""docs/review.md says what the code does: options, limits, kinds and the labelling interface."""

import re

from certify_assets.cli.review import review
from certify_assets.cli.review_app import ReviewLimits
from certify_assets.operations.label_files import STUDIO_CONFIG
from certify_assets.reports import review_page, review_run
from certify_assets_tests.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/review.md").read_text("utf-8")


def test_every_option_that_is_named_exists() -> None:
    named = set(re.findall(r"(?<=[`\s])--[a-z-]+", PAGE))
    commands = review.commands.values()
    options = {name for one in commands for parameter in one.params for name in parameter.opts}
    assert named <= options and {"--label-studio", "--double"} <= named
    called = set(re.findall(r"`certify review ([a-z]+)", PAGE))
    assert called == set(review.commands)


def test_the_labelling_interface_is_the_one_that_tasks_are_made_for() -> None:
    assert f"```xml\n{STUDIO_CONFIG}```" in PAGE


def test_limits_and_folds_are_as_written() -> None:
    text = " ".join(PAGE.split())
    assert f"{ReviewLimits().body_bytes // 1024} KiB" in text
    assert f"more than {ReviewLimits().seconds:g} seconds" in text
    assert f"at most {ReviewLimits().connections} are served" in text
    assert f"send nothing for {ReviewLimits().header_seconds:g} seconds" in text
    assert f"more than {review_run.SHOWN_CHARS} characters" in text
    assert f"more than {review_run.WHOLE_CHARS:,}" in text
    assert f"more than {review_run.STEPS} steps" in text
    assert [words[0].lower() for words in review_page.KIND_WORDS.values()] == re.findall(
        r"^\| (batch draws|audit sample|spot checks|undecided) \|", PAGE, re.MULTILINE
    )
