"""AgentRewardBench: cleaned trajectories (JSON) with the verdicts in annotations.csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


def _fits(file: SourceFile) -> bool:
    if file.suffix in DELIMITED:
        return has_fields(file, _COLUMNS)
    return is_object_with(file.head(HEAD), *_MARKS) and _is_run(one_object(file.read()))


def _is_run(record: Record | str) -> bool:
    return (
        isinstance(record, dict) and isinstance(record.get("steps"), list) and "judge" not in record
    )


def _explain(file: SourceFile) -> str | None:
    if not is_object_with(file.head(HEAD), b'"judge"', b'"benchmark"', b'"agent"'):
        return None
    return (
        f"{file.name} holds a judge's opinion of a run of AgentRewardBench, not a run; give "
        "the folder cleaned/ and annotations.csv."
    )


@corpus_format(
    title="AgentRewardBench (cleaned trajectories with annotations.csv)",
    suffixes=(".csv", ".json"),
    domain="web",
    fits=_fits,
    explain=_explain,
    label_source="majority of human annotators",
)
def agent_reward_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read cleaned runs and the labels of their annotators."""
    annotations = _Annotations(files, reading)
    reading.label_facts.update(annotations.facts())
    draft = partial(_labelled, annotations=annotations, reading=reading)
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
    annotations.count_missing(reading)


def _labelled(
    record: Record, origin: Origin, *, annotations: _Annotations, reading: Reading
) -> Draft:
    draft = _draft(record, origin)
    run = annotations.run_of(record, draft)
    if record.get("valid") is False:
        raise LeftOutError("infrastructure_error", "is marked as not valid by its source")
    if not draft.steps:
        raise LeftOutError("no_trajectory", "has no action of the agent; nothing can be judged")
    if not annotations.verdicts and not reading.options.get("keep_unlabelled"):
        raise LeftOutError("no_label", "has no annotations next to it; give annotations.csv too")
    return replace(draft, outcome=annotations.outcome(run, draft))


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
    return ".".join(part for part in name.strip().split(".") if part not in _VARIANTS)


class _Annotations:
    """Verdicts of annotators, by trajectory; None where one was unsure."""

    def __init__(self, files: FileSet, reading: Reading) -> None:
        self.verdicts: dict[_Run, list[int | None]] = {}
        self._places: dict[_Run, Origin] = {}
        # the first file of every annotated run
        self._found: dict[_Run, Draft] = {}
        seen: set[tuple[str, _Run]] = set()
        for origin, row in _rows(files, reading):
            run = _Run(
                row["benchmark"].strip(),
                _normalised(row["task_id"]),
                row["model_name"].strip(),
                _normalised(row["exp_name"]),
            )
            annotator = (row["annotator_name"].strip(), run)
            if annotator in seen:
                said = "repeats an annotation by the same annotator."
                reading.drop("duplicate", f"{origin} {said}")
            else:
                seen.add(annotator)
                self._places.setdefault(run, origin)
                self.verdicts.setdefault(run, []).append(_verdict(row, origin))
        self._runs: dict[tuple[str, str, str], list[_Run]] = {}
        for run in self.verdicts:
            self._runs.setdefault(run[:3], []).append(run)

    def run_of(self, record: Record, draft: Draft) -> _Run | None:
        """Return the annotated run that a file holds."""
        place = PurePosixPath(draft.origin.file)
        named = (text_of(record.get("experiment")), *place.parts[-2:-1])
        experiments = [_normalised(name) for name in named if "_on_" in name]
        # a run of unknown experiment is found where only one of its task and agent was annotated
        runs = self._runs.get((text_of(record.get("benchmark")), draft.task_id, draft.agent), ())
        found = [run for run in runs if not experiments or run.experiment in experiments]
        if len(found) != 1:
            return None
        self._found.setdefault(found[0], draft)
        return found[0]

    def outcome(self, run: _Run | None, draft: Draft) -> int | None:
        """Return what most annotators say of a run; LeftOutError where they may mean another."""
        if run is None:
            return None
        first = self._found[run]
        if first.content() != draft.content():
            raise LeftOutError(
                "ambiguous_label",
                f"and {first.origin} are two runs of one annotation, which went to the latter",
            )
        return _majority(self.verdicts[run])

    def facts(self) -> dict[str, float]:
        """Count annotations, ties and disagreement."""
        if not self.verdicts:
            return {}
        decided = [
            [verdict for verdict in verdicts if verdict is not None]
            for verdicts in self.verdicts.values()
        ]
        # unsure verdicts aside, disagreement is that of the trajectories with two or more
        several = [len(set(verdicts)) > 1 for verdicts in decided if len(verdicts) > 1]
        return {
            "annotations": sum(map(len, self.verdicts.values())),
            "trajectories_annotated": len(self.verdicts),
            "double_annotated": sum(len(verdicts) > 1 for verdicts in self.verdicts.values()),
            "ties": sum(bool(found) and 2 * sum(found) == len(found) for found in decided),
            "unsure": sum(verdicts.count(None) for verdicts in self.verdicts.values()),
            "disagreement_rate": sum(several) / len(several) if several else 0.0,
        }

    def count_missing(self, reading: Reading) -> None:
        """Count the annotations whose runs are not here."""
        for run in self.verdicts:
            if run not in self._found:
                words = (
                    f"{self._places[run]} is on {run.task} by {run.agent}, and its run is missing."
                )
                reading.drop("no_trajectory", words if self._found else self._labels_alone())

    def _labels_alone(self) -> str:
        facts = self.facts()
        outcomes = [_majority(verdicts) for verdicts in self.verdicts.values()]
        decided = [outcome for outcome in outcomes if outcome is not None]
        tasks = len({run.task for run in self.verdicts})
        return (
            f"{next(iter(self._places.values())).file} holds labels alone, "
            f"{facts['annotations']:,} annotations of {len(outcomes):,} trajectories of "
            f"{tasks:,} tasks ({len(decided):,} with a majority, "
            f"{facts['ties']:,} ties, success rate {sum(decided) / max(1, len(decided)):.3f}), and "
            "no trajectory to judge; give the folder of cleaned trajectories "
            "(cleaned/<benchmark>/<agent>/<experiment>/<task>.json) too."
        )


def _majority(verdicts: Iterable[int | None]) -> int | None:
    """Return what most of a trajectory's annotators say."""
    decided = [verdict for verdict in verdicts if verdict is not None]
    return None if 2 * sum(decided) == len(decided) else int(2 * sum(decided) > len(decided))


def _rows(files: FileSet, reading: Reading) -> Iterator[tuple[Origin, Record]]:
    tables = (file for file in files.matching("*.csv", "*.csv.gz") if has_fields(file, _COLUMNS))
    for origin, row in records(tables, reading, lambda row: True):
        if missing := sorted(name for name in _COLUMNS if not row[name].strip()):
            said = f"cannot be used: it has no {', '.join(missing)}."
            reading.drop("unreadable_record", f"{origin} {said}")
        else:
            yield origin, row


def _verdict(row: Record, origin: Origin) -> int | None:
    verdict = row["trajectory_success"].strip()
    if verdict not in _VERDICTS:
        raise InputError(
            f"{origin}: trajectory_success is {verdict[:40]!r}. "
            f"Write {', '.join(_VERDICTS)} instead."
        )
    return _VERDICTS[verdict]
