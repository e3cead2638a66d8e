"""AgentRewardBench: cleaned trajectories (JSON) with the verdicts in annotations.csv."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    contents,
    corpus_format,
    records,
    unusable,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import message_text
from certify_assets.corpora.formats.records import (
    DELIMITED,
    HEAD,
    Record,
    has_fields,
    is_object_with,
    one_object,
)
from certify_assets.corpora.formats.texts import (
    Turn,
    is_list_of_objects,
    page_text,
    steps_of_turns,
    text_of,
)
from certify_assets.errors import InputError

_MARKS = (rb'"benchmark"\s*:', rb'"goal"\s*:')
_COLUMNS = (
    "annotator_name",
    "benchmark",
    "task_id",
    "model_name",
    "exp_name",
    "trajectory_success",
)
_VERDICTS: Mapping[str, int | None] = {"Successful": 1, "Unsuccessful": 0, "Unsure": None}
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
    return is_object_with(file.head(HEAD), *_MARKS) and _is_run(one_object(file.read()))


def _is_run(record: Record | str) -> bool:
    return (
        isinstance(record, dict) and isinstance(record.get("steps"), list) and "judge" not in record
    )


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
    draft = partial(_labelled, annotations=annotations, first=first, reading=reading)
    for file in files:
        if file.suffix == ".csv":
            if file.name not in reading.hashes:
                said = "has no columns annotator_name, exp_name and trajectory_success."
                reading.other(file.name, said)
            continue
        for _, data in contents([file], reading):
            record = one_object(data)
            if _is_run(record) or (isinstance(record, str) and is_object_with(data, *_MARKS)):
                yield from reading.runs([(reading.origin(file), record)], draft)
            else:
                reading.other(file.name, "is no cleaned trajectory, or the output of a judge.")
    alone = "" if first or not annotations else _labels_alone(annotations)
    for run in annotations:
        if run not in first:
            words = f"an annotation is of {run.task} by {run.agent}, and its run is missing."
            reading.drop("no_trajectory", alone or words)


def _labelled(
    record: Record,
    origin: Origin,
    *,
    annotations: _Annotations,
    first: dict[_Run, Draft],
    reading: Reading,
) -> Draft:
    draft = _draft(record, origin)
    run = _annotated(record, draft, annotations)
    if run is not None:
        first.setdefault(run, draft)
    if record.get("valid") is False:
        raise LeftOutError("infrastructure_error", "is marked as not valid by its source")
    if not annotations and not reading.options.get("keep_unlabelled"):
        raise LeftOutError("no_label", "has no annotations next to it; give annotations.csv too")
    if run is None or not draft.steps:
        return draft
    if first[run].content() != draft.content():
        raise LeftOutError(
            "ambiguous_label",
            f"and {first[run].origin} are two runs of one annotation, which went to the latter",
        )
    return replace(draft, outcome=_majority(annotations[run].values()))


def _draft(record: Record, origin: Origin) -> Draft:
    path = PurePosixPath(origin.file.removesuffix(".gz"))
    agent = text_of(record.get("agent")) or (path.parts[-3] if len(path.parts) > 2 else "")
    if not is_list_of_objects(record["steps"]):
        raise unusable("one of its steps is not an object")
    if not agent:
        raise unusable("its agent is not known")
    return Draft(
        task_id=_normalised(path.stem),
        agent=agent,
        instruction=message_text(record["goal"]),
        steps=steps_of_turns(map(_turn, record["steps"])),
        outcome=None,
        origin=origin,
        named_agent=agent,
    )


def _turn(step: Record) -> Turn:
    tree = text_of(step.get("axtree")) or text_of(step.get("axtree_pruned"))
    page = page_text(step.get("url"), step.get("last_action_error"), tree)
    return Turn(page, text_of(step.get("reasoning")), text_of(step.get("action")))


def _normalised(name: str) -> str:
    """Remove the parts of a dotted name that name variants of a benchmark."""
    return ".".join(part for part in name.split(".") if part not in _VARIANTS)


def _annotations(files: FileSet, reading: Reading) -> _Annotations:
    """Read what annotators say of each run; None where one was unsure."""
    found: _Annotations = {}
    tables = (file for file in files.matching("*.csv", "*.csv.gz") if has_fields(file, _COLUMNS))
    for origin, row in records(tables, reading, lambda row: True):
        cells = {name: row[name].strip() for name in _COLUMNS}
        verdict, annotator = cells["trajectory_success"], cells["annotator_name"]
        experiment = _normalised(cells["exp_name"])
        run = _Run(
            cells["benchmark"], _normalised(cells["task_id"]), cells["model_name"], experiment
        )
        if missing := sorted(name for name, cell in cells.items() if not cell):
            said = f"cannot be used: it has no {', '.join(missing)}."
            reading.drop("unreadable_record", f"{origin} {said}")
        elif verdict not in _VERDICTS:
            raise InputError(
                f"{origin}: trajectory_success is {verdict[:40]!r}. "
                f"Write {', '.join(_VERDICTS)} instead."
            )
        elif annotator in found.setdefault(run, {}):
            said = "repeats an annotation by the same annotator."
            reading.drop("duplicate", f"{origin} {said}")
        else:
            found[run][annotator] = _VERDICTS[verdict]
    return found


def _annotated(record: Record, draft: Draft, annotations: _Annotations) -> _Run | None:
    """Return the annotated run that a file holds."""
    named = (text_of(record.get("experiment")), *PurePosixPath(draft.origin.file).parts[-2:-1])
    experiments = [_normalised(name) for name in named if "_on_" in name]
    # a run of unknown experiment is found where only one of its task and agent was annotated
    key = (text_of(record.get("benchmark")), draft.task_id, draft.agent)
    runs = [run for run in annotations if run[:3] == key]
    found = [run for run in runs if not experiments or run.experiment in experiments]
    return found[0] if len(found) == 1 else None


def _majority(verdicts: Iterable[int | None]) -> int | None:
    """Return what most of a trajectory's annotators say."""
    decided = [verdict for verdict in verdicts if verdict is not None]
    return None if 2 * sum(decided) == len(decided) else int(2 * sum(decided) > len(decided))


def _facts(annotations: Collection[Mapping[str, int | None]]) -> dict[str, float]:
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
