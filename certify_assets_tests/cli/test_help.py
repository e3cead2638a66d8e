"""What is mistyped, swapped or in the place of something else is named."""

from pathlib import Path
from statistics import median

import click
import pytest

from certify_assets.cli.main import cli
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("deside c.json s.csv", "'decide'"),
        ("corpus lst", "'list'"),
        ("certificate s.csv --aplha .1", "--alpha"),
        ("research simualte", "'simulate'"),
        ("--verison", "--version"),
    ],
)
def test_what_is_mistyped_is_suggested(call: Call, line: str, suggestion: str) -> None:
    answer = call(line)
    assert answer.code == 2 and suggestion in answer.err and answer.out == ""
    assert "Did you mean" not in call("zzzzzz").err


@pytest.mark.parametrize("line", ["", "corpus"])
def test_a_command_without_words_prints_its_help(call: Call, line: str) -> None:
    answer = call(line)
    assert answer.code == 2 and answer.err.startswith("Usage: certify")
    assert "\nOptions:\n" in answer.err


def test_help_lists_ten_commands_and_help_all_every_one(call: Call) -> None:
    def listed(words: str) -> set[str]:
        lines = call(words).out.splitlines()
        return {line.split()[0] for line in lines if line.startswith("  ")} & {
            *cli.list_commands(None)
        }

    assert len(listed("--help")) == 10
    assert listed("--help-all") == {*cli.list_commands(None)}  # type: ignore[arg-type]


def test_commands_have_few_options() -> None:
    counts: list[int] = []

    def count(command: click.Command, context: click.Context) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                count(inner, context)
        else:
            counts.append(sum(isinstance(param, click.Option) for param in command.params))

    with click.Context(cli) as context:
        count(cli, context)
    assert median(counts) <= 5 and max(counts) <= 15


def test_swapped_arguments_are_named(call: Call, tmp_path: Path) -> None:
    scores, certificate = tmp_path / "scores.csv", tmp_path / "c.json"
    score_rows(tasks=60, attempts=4).to_csv(scores, index=False)
    assert call(f"certificate {scores} --out {certificate} --json").code == 0
    answer = call(f"decide {scores} {certificate}")
    assert answer.code == 2 and f"{scores} is not a certificate" in answer.err
    assert "Name the certificate before any scores" in answer.err
    certificate.write_text(certificate.read_text("utf-8")[:300], "utf-8")
    answer = call(f"verify {certificate} {scores}")
    assert answer.code == 2 and "is not a JSON document" in answer.err and "line" in answer.err
