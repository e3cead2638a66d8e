"""Runs to label without a server: a page that opens from disk, and tasks of Label Studio."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class RunToLabel(NamedTuple):
    """A drawn run: its name, the text that a reviewer reads, and what its draw says of it."""

    number: int
    id: str
    text: str
    batch: str
    drawn_by: str

    @classmethod
    def of(cls, columns: Mapping[str, Any], texts: Mapping[str, str]) -> list[RunToLabel]:
        """Return the rows of a file of drawn runs, with their texts.

        A run without a text has the other columns of its row in its place.
        """
        own = [name for name in columns if name not in ("batch", "outcome", "drawn_by")]
        rows = []
        for number, run in enumerate(map(str, columns["trajectory_id"])):
            cells = "\n".join(f"{name}: {columns[name][number]}" for name in own)
            about = (str(columns[name][number]) for name in ("batch", "drawn_by"))
            rows.append(cls(number, run, texts.get(run, cells), *about))
        return rows


def label_page(runs: Sequence[RunToLabel], *, title: str, file: str) -> str:
    """Return a page on which runs are labelled; it offers the labels as a CSV of this name."""
    from certify_assets.reports.page import environment, in_order

    return in_order(
        environment().get_template("label.html").render(runs=runs, title=title, file=file)
    )


def studio_tasks(runs: Sequence[RunToLabel]) -> str:
    """Return tasks of Label Studio, whose CSV export is a file of labelled drawn runs."""
    tasks = [
        {
            "data": {
                "trajectory_id": run.id,
                "batch": run.batch,
                "drawn_by": run.drawn_by,
                "run": run.text,
            }
        }
        for run in runs
    ]
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"
