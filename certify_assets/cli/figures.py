"""Figures of a document as a terminal shows them: words for field names, numbers rounded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import click

from certify_assets.cli.output import FIGURES, show_table
from certify_assets.cli.output import figure as shown_figure
from certify_assets.words import percent

_WORDS: Final = {
    "alpha": "error budget",
    "auroc": "AUROC",
    "certificate_sha256": "hash of the certificate",
    "batch_sha256": "hash of the batch",
    "plan_sha256": "hash of the plan",
    "adapter_sha256": "hash of the model",
    "certified_at": "error shown to be within the budget after tasks",
    "coverage": "share decided",
    "covered_tasks": "tasks with decided runs",
    "covered_trajectories": "runs decided",
    "decided": "runs decided",
    "deff": "design effect",
    "delta": "one minus the confidence",
    "dropped": "left out",
    "e_process": "evidence by the e-process",
    "e_value": "evidence against the budget",
    "errors": "wrong among those decided",
    "errors_found": "wrong among those labelled",
    "expected_labels": "labels expected",
    "expected_net_share": "share expected to be saved",
    "first_alarm_at": "tasks until the first alarm",
    "first_alarm_task": "task of the first alarm",
    "icc": "ICC",
    "interval": "error, interval",
    "label_facts": "labels",
    "lower_bound": "error, lower bound",
    "n_eff": "effective runs",
    "net_share": "share saved",
    "open_share": "open or tied",
    "out": "written to",
    "own_coverage": "share that these runs would certify",
    "paper_rule_pass": "observed error within the budget",
    "realized_error": "observed error",
    "reason": "why",
    "selection_rule": "chosen by",
    "sft_tasks": "tasks of SFT",
    "sft_trajectories": "runs of SFT",
    "shiryaev_roberts": "evidence by Shiryaev–Roberts",
    "trajectories": "runs",
    "unscored": "runs without a score",
    "widest_set": "runs of the widest set",
    "worth_more": "more labels would save more",
}
_SHARES: Final = frozenset(
    {
        "alpha",
        "coverage",
        "delta",
        "expected_net_share",
        "lower_bound",
        "net_share",
        "open_share",
        "own_coverage",
        "realized_error",
        "success_rate",
    }
)
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_FIRST = 3

verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Show every figure, and hashes whole."
)


def words(name: str) -> str:
    """Return what a field is called where people read it."""
    side, _, rest = name.partition(" ")
    return f"{side}: {words(rest)}" if rest else _WORDS.get(name, name.replace("_", " "))


def figure(name: str, value: object, *, verbose: bool = False) -> str:
    """Return a figure as people read it: shares in percent, hashes and lists by their beginning."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "success_rate" and value is None:
        return "no outcome known"
    if name in _SHARES and isinstance(value, int | float):
        return percent(value)
    if name == "interval" and isinstance(value, list | tuple):
        return f"{percent(value[0])} to {percent(value[1])}"
    if isinstance(value, str) and _HASH.fullmatch(value) and not verbose:
        return value[:12]
    if isinstance(value, int):
        return str(value) if name == "seed" else f"{value:,}"
    if isinstance(value, Mapping) and len(value) > _FIRST and not verbose:
        first = {key: value[key] for key in islice(value, _FIRST)}
        return f"{shown_figure('', first)}, and {len(value) - _FIRST:,} more"
    if isinstance(value, list | tuple):
        return ", ".join(figure("", item, verbose=verbose) for item in value)
    return shown_figure(name, value)


def show_figures(
    title: str,
    documents: Mapping[str, Mapping[str, object]],
    *,
    most: Sequence[str] = (),
    verbose: bool = False,
) -> None:
    """Print figures of documents side by side, those named by ``most`` unless verbose."""
    first = next(iter(documents.values()))
    names = [name for name in (most or first) if name in first]
    # those that people ask for stay first
    names += [name for name in first if name not in names] if verbose else []
    rows = [
        [words(name), *(figure(name, item[name], verbose=verbose) for item in documents.values())]
        for name in names
    ]
    show_table(title, FIGURES if len(documents) == 1 else ("figure", *documents), rows)
