"""Examples of every command, which its help ends with, and help that is short at first."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import click

#: by the command's words; a test parses each
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "": (
        "certify certificate scores.csv --out certificate.json",
        "certify corpus import runs/ --name mine && certify run mine",
    ),
    "certificate": (
        "certify certificate scores.csv --out certificate.json",
        "certify certificate scores.csv --side reject --alpha 5% --min-coverage 30%",
        "certify certificate scores.csv --task-col instance --success-label resolved",
    ),
    "verify": ("certify verify certificate.json scores.csv",),
    "key": ("certify key new team.key --owner 'Evaluation team'",),
    "key new": ("certify key new team.key --owner 'Evaluation team'",),
    "audit": ("certify audit certificate.json later.csv",),
    "decide": ("certify decide certificate.json new.csv --queue for_review.csv",),
    "batch": ("certify batch draw certificate.json new.csv --seed 7 --out draw.csv",),
    "batch plan": ("certify batch plan certificate.json new.csv --out plan.json",),
    "batch draw": ("certify batch draw certificate.json new.csv --seed 7 --out draw.csv",),
    "batch close": ("certify batch close certificate.json new.csv draw.csv labels.csv",),
    "monitor": ("certify monitor certificate.json labelled.csv",),
    "plan": (
        "certify plan scores.csv",
        "certify plan --success-rate .4 --auroc .85 --icc .3 --tasks 120",
    ),
    "report": ("certify report certificate.json scores.csv --out certificate.html",),
    "resample": ("certify resample other.csv --threshold -1.2 --alpha 10%",),
    "run": ("certify run mine", "certify run mine --judge sft --min-coverage 30%"),
    "demo": ("certify demo",),
    "corpus": ("certify corpus import runs/ --name mine", "certify corpus show mine"),
    "corpus import": (
        "certify corpus import runs/ --name mine",
        "certify corpus import runs.csv --name mine --format table",
        "certify corpus import new_runs/ --name mine --add --dry-run",
    ),
    "corpus list": ("certify corpus list",),
    "corpus rm": ("certify corpus rm mine --yes",),
    "corpus show": ("certify corpus show mine --page mine.html",),
    "corpus splits": ("certify corpus splits mine --seed 7",),
    "judge": ("certify judge list", "certify judge compare mine"),
    "judge list": ("certify judge list",),
    "judge train": ("certify judge train mine --judge combined",),
    "judge sources": ("certify judge sources mine --strict",),
    "judge score": ("certify judge score mine new_runs/ --judge combined --out new.csv",),
    "judge compare": ("certify judge compare mine --html comparison.html",),
    "judge parity": ("certify judge parity mine --judge my_gpt",),
    "judge recalibrate": ("certify judge recalibrate mine --judge combined",),
    "judge arms": ("certify judge arms mine --judge grpo",),
    "ops": ("certify ops deploy mine combined", "certify ops ingest mine new_runs/"),
    "ops deploy": ("certify ops deploy mine combined --alpha 10%",),
    "ops status": ("certify ops status mine",),
    "ops rollback": ("certify ops rollback mine",),
    "ops prune": ("certify ops prune mine --dry-run",),
    "ops export": (
        "certify ops export mine decisions.jsonl --format langfuse",
        "certify ops export mine http://127.0.0.1:5000 --format mlflow",
    ),
    "ops ingest": (
        "certify ops ingest mine new_runs/ --dry-run",
        "certify ops ingest mine new_runs/ --queue for_review.csv",
    ),
    "ops recertify": ("certify ops recertify mine --deploy",),
    "ops history": ("certify ops history mine --page history.html",),
    "ops lineage": ("certify ops lineage run-17 --corpus mine",),
    "review": ("certify review serve mine --reviewer ann",),
    "review queue": ("certify review queue mine --limit 5",),
    "review export": ("certify review export mine queue.csv",),
    "review import": ("certify review import mine labels.csv --reviewer ann",),
    "review serve": ("certify review serve mine --reviewer ann --reviewer ben",),
    "ledger": ("certify ledger status mine",),
    "ledger status": ("certify ledger status mine",),
    "research": ("certify research study --profile quick",),
    "research study": ("certify research study mine --profile quick",),
    "research law": ("certify research law --paper",),
    "research simulate": ("certify research simulate --tasks 20 --tasks 50 --trials 100",),
    "research harvest": ("certify research harvest mine --alpha 20% --side reject",),
    "research generate-miniwob": ("certify research generate-miniwob --out runs --attempts 2",),
    "ui": ("certify ui --port 3000",),
}


def add_examples(command: click.Command, words: str) -> click.Command:
    """End the help of a command, and of those below it, with their examples."""
    if found := EXAMPLES.get(words):
        lines = "\n".join(f"  {line}" for line in found)
        command.epilog = f"\b\nExample{'s' if len(found) > 1 else ''}:\n{lines}"
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            add_examples(part, f"{words} {name}".strip())
    return command


def similar(name: str) -> list[str]:
    """Return the commands, at any level, whose last word is close to what was typed."""
    paths = [words for words in EXAMPLES if words]
    close = get_close_matches(name, {words.split()[-1] for words in paths}, n=3)
    return sorted(
        (words for words in paths if words.split()[-1] in close),
        key=lambda words: (close.index(words.split()[-1]), words.count(" "), words),
    )[:3]


class ShortHelp(click.Command):
    """A command of many options: --help lists the first of them, --help-all every one."""

    def __init__(self, *given: Any, first: tuple[str, ...], **options: Any) -> None:
        super().__init__(*given, **options)
        self._first = frozenset(first)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_whole,
                help="Show every option and exit.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, all of them where they are asked for."""
        whole, always = ctx.meta.get(_WHOLE), ("help", "help_all", "as_json")
        params = self.get_params(ctx)
        shown = [item for item in params if whole or item.name in self._first.union(always)]
        records = [record for item in shown if (record := item.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(records)
        left = sum(isinstance(item, click.Option) for item in params) - sum(
            isinstance(item, click.Option) for item in shown
        )
        if left:
            formatter.write_paragraph()
            formatter.write_text(f"{left} more options: {ctx.command_path} --help-all")


_WHOLE: Final = "certify_assets.help_all"


def _show_whole(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help())
        ctx.exit()
