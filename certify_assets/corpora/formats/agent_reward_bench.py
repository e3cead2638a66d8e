"""AgentRewardBench: cleaned trajectories (JSON) with the verdicts in annotations.csv."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

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
    DELIMITED,
    Record,
    begins,
    has_fields,
    is_list_of_objects,
    one_object,
    text_of,
)
from certify_assets.errors import InputError

_MARKS = (rb'"benchmark"\s*:', rb'"goal"\s*:')
_COLUMNS = words("annotator_name benchmark task_id model_name exp_name trajectory_success")
_VERDICTS: dict[str, int | None] = {"Successful": 1, "Unsuccessful": 0, "Unsure": None}
_VARIANTS = frozenset({"resized", "improved"})


class _Run(NamedTuple):
    """What names an annotated trajectory."""

    benchmark: str
    task: str
    agent: str
    experiment: str


#: verdicts by annotator, by run
_Annotations = dict[_Run, dict[str, int | None]]


def _fits(file: SourceFile) -> bool:
    if file.suffix in DELIMITED:
        return has_fields(file, _COLUMNS)
    return begins(file, b"{", *_MARKS) and _is_run(one_object(file.read()))


def _is_run(record: Any) -> bool:
    is_object = isinstance(record, dict) and "judge" not in record
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
    annotations = _annotations(files, reading)
    reading.label_facts.update(_facts(annotations.values()) if annotations else {})
    # the first run of every annotation
    first: dict[_Run, Draft] = {}

    def labelled(record: Record, origin: Origin) -> Draft:
        draft = _draft(record, origin)
        run = _annotated(record, draft, annotations)
        original = first.setdefault(run, draft) if run else draft
        if record.get("valid") is False:
            raise LeftOutError("is marked as not valid by its source", "infrastructure_error")
        if not annotations and not reading.options.get("keep_unlabelled"):
            said = "has no annotations next to it; give annotations.csv too"
            raise LeftOutError(said, "no_label")
        if draft.steps and original.content() != draft.content():
            raise LeftOutError(
                f"and {original.origin} are two runs of one annotation, which went to the latter",
                "ambiguous_label",
            )
        return replace(draft, outcome=_majority(annotations[run].values())) if run else draft

    for file in files:
        if file.suffix == ".csv":
            if file.name not in reading.hashes:
                reading.other(file.name)
            continue
        for _, data in reading.contents([file]):
            record = one_object(data)
            if _is_run(record) or (isinstance(record, str) and begins(file, b"{", *_MARKS)):
                yield from reading.runs([(reading.origin(file), record)], labelled)
            else:
                reading.other(file.name)
    alone = "" if first or not annotations else _labels_alone(annotations)
    for run in annotations:
        if run not in first:
            said = f"an annotation is of {run.task} by {run.agent}, and its run is missing."
            reading.drop("no_trajectory", alone or said)


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


def _normalised(name: str) -> str:
    """Remove the parts of a dotted name that name variants of a benchmark."""
    return ".".join(part for part in name.split(".") if part not in _VARIANTS)


def _annotations(files: FileSet, reading: Reading) -> _Annotations:
    """Read what annotators say of each run; None where one was unsure."""
    found: _Annotations = {}
    tables = (file for file in files.matching("*.csv") if has_fields(file, _COLUMNS))
    for origin, row in reading.records(tables, lambda row: True):
        cells = {name: row[name].strip() for name in _COLUMNS}
        verdict, annotator = cells["trajectory_success"], cells["annotator_name"]
        experiment = _normalised(cells["exp_name"])
        run = _Run(
            cells["benchmark"], _normalised(cells["task_id"]), cells["model_name"], experiment
        )
        if missing := sorted(name for name, cell in cells.items() if not cell):
            reading.unusable(origin, f"it has no {', '.join(missing)}")
        elif verdict not in _VERDICTS:
            raise InputError(
                f"{origin}: trajectory_success is {verdict[:40]!r}. "
                f"Write {', '.join(_VERDICTS)} instead."
            )
        elif annotator in found.setdefault(run, {}):
            reading.drop("duplicate", f"{origin} repeats an annotation by the same annotator.")
        else:
            found[run][annotator] = _VERDICTS[verdict]
    return found


def _annotated(record: Record, draft: Draft, annotations: _Annotations) -> _Run | None:
    """Return the annotated run that a file holds."""
    named = (text_of(record.get("experiment")), *PurePosixPath(draft.origin.file).parts[-2:-1])
    benchmark = text_of(record.get("benchmark"))
    runs = (_Run(benchmark, draft.task_id, draft.agent, _normalised(name)) for name in named)
    return next((run for run in runs if run in annotations), None)


def _majority(verdicts: Iterable[int | None]) -> int | None:
    """Return what most of a trajectory's annotators say."""
    decided = [verdict for verdict in verdicts if verdict is not None]
    return None if 2 * sum(decided) == len(decided) else int(2 * sum(decided) > len(decided))


def _facts(annotations: Collection[dict[str, int | None]]) -> dict[str, float]:
    """Count annotations, ties and disagreement; unsure annotators aside."""
    decided = [[one for one in said.values() if one is not None] for said in annotations]
    several = [len(set(verdicts)) > 1 for verdicts in decided if len(verdicts) > 1]
    return {
        "annotations": sum(map(len, annotations)),
        "trajectories_annotated": len(annotations),
        "ties": sum(bool(found) and 2 * sum(found) == len(found) for found in decided),
        "disagreement_rate": sum(several) / len(several) if several else 0.0,
    }


def _labels_alone(annotations: _Annotations) -> str:
    facts, tasks = _facts(annotations.values()), {run.task for run in annotations}
    outcomes = (_majority(said.values()) for said in annotations.values())
    decided = [outcome for outcome in outcomes if outcome is not None]
    return (
        f"there are labels alone, {facts['annotations']:,} annotations of {len(annotations):,} "
        f"trajectories of {len(tasks):,} tasks ({len(decided):,} with a majority, "
        f"{facts['ties']:,} ties, success rate {sum(decided) / max(1, len(decided)):.3f}), and "
        "no trajectory to judge; give the folder of cleaned trajectories "
        "(cleaned/<benchmark>/<agent>/<experiment>/<task>.json) too."
    )
