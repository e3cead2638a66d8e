"""AgentRewardBench: cleaned trajectories (JSON) with the verdicts in annotations.csv."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    words,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import message_text, steps_of_turns, turn_on_page
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    has_fields,
    is_list_of_objects,
    text_of,
)
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_MARKS = (rb'"benchmark"\s*:', rb'"goal"\s*:')
# what names an annotated trajectory, then who says what of it
_RUN = words("benchmark task_id model_name exp_name")
_COLUMNS = (*_RUN, "annotator_name", "trajectory_success")
_VERDICTS = {"Successful": 1.0, "Unsuccessful": 0.0, "Unsure": math.nan}
_VARIANTS = frozenset({"resized", "improved"})


def _fits(file: SourceFile) -> bool:
    if file.suffix == ".csv":
        return has_fields(file, _COLUMNS)
    # a judgment of a run holds the run too
    return begins(file, b"{", *_MARKS) and not begins(file, b"{", rb'"judge"\s*:')


def _is_run(record: Any) -> bool:
    is_object = isinstance(record, dict) and "judge" not in record and "goal" in record
    return is_object and isinstance(record.get("steps"), list)


@corpus_format(
    title="AgentRewardBench (cleaned trajectories with annotations.csv)",
    suffixes=(".csv", ".json"),
    domain="web",
    fits=_fits,
    label_source="majority of human annotators",
)
def agent_reward_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read cleaned runs and the labels of their annotators."""
    labels = _Labels(files, reading)
    # the first run of every annotation
    first: dict[_Run, Draft] = {}

    def labelled(record: Record, origin: Origin) -> Draft:
        draft = _draft(record, origin)
        run = next(filter(labels.holds, _names(record, draft)), None)
        original = first.setdefault(run, draft) if run else draft
        if record.get("valid") is False:
            raise LeftOutError("is marked as not valid by its source", "infrastructure_error")
        if labels.table.empty and not reading.options.get("keep_unlabelled"):
            said = "has no annotations next to it; give annotations.csv too"
            raise LeftOutError(said, "no_label")
        if draft.steps and original.content() != draft.content():
            raise LeftOutError(
                f"and {original.origin} are two runs of one annotation, which went to the latter",
                "ambiguous_label",
            )
        return replace(draft, outcome=labels.outcome(run)) if run else draft

    for file, record in reading.documents(files, lambda file: file.suffix == ".json"):
        if _is_run(record):
            yield from reading.runs([(reading.origin(file), record)], labelled)
        else:
            reading.other(file.name)
    for run in labels.shares.index:
        if run not in first:
            said = f"an annotation is of {run[1]} by {run[2]}, and its run is missing."
            reading.drop("no_trajectory", said if first else labels.alone())


class _Run(NamedTuple):
    """The names that identify an annotated trajectory."""

    benchmark: str
    task: str
    agent: str
    experiment: str


def _draft(record: Record, origin: Origin) -> Draft:
    path = PurePosixPath(origin.file.removesuffix(".gz"))
    agent = text_of(record.get("agent")) or (path.parts[-3] if len(path.parts) > 2 else "")
    if not is_list_of_objects(record["steps"]):
        raise LeftOutError("one of its steps is not an object")
    if not agent:
        raise LeftOutError("its agent is not known")
    turns = [
        turn_on_page(
            step.get("url"),
            step.get("last_action_error"),
            text_of(step.get("axtree")) or text_of(step.get("axtree_pruned")),
            text_of(step.get("reasoning")),
            text_of(step.get("action")),
        )
        for step in record["steps"]
    ]
    return Draft(
        task_id=_normalised(path.stem),
        agent=agent,
        instruction=message_text(record["goal"]),
        steps=steps_of_turns(turns),
        outcome=None,
        origin=origin,
        named_agent=agent,
    )


def _names(record: Record, draft: Draft) -> Iterator[_Run]:
    """Return the names that an annotation may give a run: its experiment, or its folder."""
    folder = PurePosixPath(draft.origin.file).parent.name
    for experiment in (text_of(record.get("experiment")), folder):
        benchmark = text_of(record.get("benchmark"))
        yield _Run(benchmark, draft.task_id, draft.agent, _normalised(experiment))


def _normalised(name: str) -> str:
    """Remove the parts of a dotted name that name variants of a benchmark."""
    return ".".join(part for part in name.split(".") if part not in _VARIANTS)


class _Labels:
    """The annotations, one row for each, NaN where the annotator was unsure."""

    def __init__(self, files: FileSet, reading: Reading) -> None:
        import pandas as pd

        rows = []
        tables = (file for file in files.matching("*.csv") if has_fields(file, _COLUMNS))
        for origin, row in reading.records(tables, lambda row: True):
            cells = {name: row[name].strip() for name in _COLUMNS}
            verdict = cells.pop("trajectory_success")
            if missing := sorted(name for name, cell in cells.items() if not cell):
                reading.unusable(origin, f"it has no {', '.join(missing)}")
            elif verdict not in _VERDICTS:
                raise InputError(
                    f"{origin}: trajectory_success is {verdict[:40]!r}. "
                    f"Write {', '.join(_VERDICTS)} instead."
                )
            else:
                cells |= {name: _normalised(cells[name]) for name in ("task_id", "exp_name")}
                rows.append({**cells, "verdict": _VERDICTS[verdict], "origin": origin})
        table = pd.DataFrame(rows, columns=[*_COLUMNS[:-1], "verdict", "origin"])
        again = table.duplicated(list(_COLUMNS[:-1]))
        for origin in table.loc[again, "origin"]:
            reading.drop("duplicate", f"{origin} repeats an annotation by the same annotator.")
        self.table: pd.DataFrame = table[~again]
        by_run = self.table.groupby(list(_RUN), sort=False)["verdict"]
        #: share of a run's annotators who call it a success; NaN where all were unsure
        self.shares: pd.Series[float] = by_run.mean()
        several = by_run.nunique()[by_run.count() > 1]
        if rows:
            reading.label_facts |= {
                "annotations": len(self.table),
                "trajectories_annotated": len(self.shares),
                "ties": int((self.shares == 0.5).sum()),
                "disagreement_rate": float((several > 1).mean()) if len(several) else 0.0,
            }

    def holds(self, run: _Run) -> bool:
        """Whether a run was annotated."""
        return run in self.shares.index

    def outcome(self, run: _Run) -> int | None:
        """Return the majority label of a run; None for a tie, or if all annotators were unsure."""
        share = self.shares[run]
        return None if share == 0.5 or math.isnan(share) else int(share > 0.5)

    def alone(self) -> str:
        """Describe the annotations if none of their runs is there."""
        decided = self.shares[self.shares.notna() & (self.shares != 0.5)]
        return (
            f"the files hold only labels: {len(self.table):,} annotations of {len(self.shares):,} "
            f"trajectories of {self.table['task_id'].nunique():,} tasks ({len(decided):,} with a "
            f"majority, {(self.shares == 0.5).sum():,} ties, success rate "
            f"{(decided > 0.5).mean():.3f}), and no trajectory to judge. Give the folder of "
            "cleaned trajectories (cleaned/<benchmark>/<agent>/<experiment>/<task>.json) too."
        )
