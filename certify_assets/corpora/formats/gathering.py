"""Gathering of runs after an adapter has read them: labels, copies, attempts, ids."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from certify_assets.corpora.deliveries import instruction_sha256, letters_sha256
from certify_assets.corpora.formats.base import Draft, Drafts, Reading, excerpt
from certify_assets.corpora.formats.files import Tally
from certify_assets.corpora.schema import Step, Trajectory, clean_text, row_groups, write_groups
from certify_assets.errors import InputError
from certify_assets.files import naming
from certify_assets.names import folding, spelled, two_spellings
from certify_assets.work import WorkStage, counted, under_way

_IN_MEMORY = 64 << 20
# no person reads a longer text, and a few of them would fill memory
_LONGEST_TEXT = 20_000_000
_CODEC = "lz4"
#: what an import notes of runs that ask nothing
NO_INSTRUCTION = "runs have no instruction"


class Place(NamedTuple):
    """Where the texts of a run wait."""

    start: int
    packed: int
    size: int
    chars: int


class StepTexts:
    """Instructions and steps, compressed, in memory or, where there are many, in a file."""

    def __init__(self) -> None:
        # closed by close
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._end = 0

    def put(self, instruction: str, steps: Sequence[Step]) -> Place:
        """Keep the texts of one run."""
        import pyarrow as pa

        texts = [instruction, *(text for step in steps for text in (step.action, step.observation))]
        # JSON keeps lone surrogates, which no encoding to UTF-8 does
        data = json.dumps(texts).encode("ascii")
        packed = pa.compress(data, codec=_CODEC, asbytes=True)
        with naming(Path(tempfile.gettempdir())):
            self._file.seek(self._end)
            self._file.write(packed)
        place = Place(self._end, len(packed), len(data), sum(map(len, texts)))
        self._end += len(packed)
        return place

    def get(self, place: Place) -> tuple[str, tuple[Step, ...]]:
        """Return the texts of one run."""
        import pyarrow as pa

        self._file.seek(place.start)
        data = pa.decompress(
            self._file.read(place.packed), decompressed_size=place.size, codec=_CODEC, asbytes=True
        )
        instruction, *rest = json.loads(data)
        return instruction, tuple(map(Step, rest[::2], rest[1::2]))

    def close(self) -> None:
        """Throw the texts away."""
        self._file.close()


class _Kept(NamedTuple):
    """A run without its texts, and where those wait."""

    run: Draft
    place: Place


class _Row(NamedTuple):
    task_id: str
    trajectory_id: str
    attempt: int
    kept: _Kept


@dataclass(frozen=True)
class Gathered:
    """The runs of an import without their texts, sorted by task_id and trajectory_id."""

    corpus: str
    rows: list[_Row]
    texts: StepTexts

    def trajectories(self) -> Iterator[Trajectory]:
        """Go through the runs."""
        return map(self._trajectory, counted("comparing the runs", self.rows))

    def trajectory(self, place: int) -> Trajectory:
        """Return the run of one of the rows."""
        return self._trajectory(self.rows[place])

    def chars(self, place: int) -> int:
        """Return the number of characters of the run of one of the rows."""
        return self.rows[place].kept.place.chars

    def groups(self) -> Iterator[list[Trajectory]]:
        """Go through the runs by the row groups of a file."""
        with under_way(WorkStage("writing the runs", len(self.rows))) as stage:
            for start, end in row_groups(row.kept.place.chars for row in self.rows):
                yield [self._trajectory(row) for row in self.rows[start:end]]
                stage.done = end

    def write(self, sink: IO[bytes]) -> None:
        """Write the runs as Parquet."""
        write_groups(sink, self.groups())

    def tasks(self) -> int:
        """Count the tasks."""
        return len({row.task_id for row in self.rows})

    def agents(self) -> tuple[str, ...]:
        """Return the agents, sorted."""
        return tuple(sorted({row.kept.run.agent for row in self.rows}))

    def _trajectory(self, row: _Row) -> Trajectory:
        run, place = row.kept
        instruction, steps = self.texts.get(place)
        return Trajectory(
            corpus=self.corpus,
            task_id=row.task_id,
            trajectory_id=row.trajectory_id,
            agent=run.agent,
            attempt=row.attempt,
            instruction=instruction,
            steps=steps,
            outcome=run.outcome,
            source_file=run.origin.file,
            source_sha256=run.origin.sha256,
        )


def gather(drafts: Iterable[Draft], corpus: str, reading: Reading, texts: StepTexts) -> Gathered:
    """Turn drafts into the runs of a corpus."""
    instructions = _Instructions()
    usable = _usable(drafts, reading)
    if reading.options.get("drop_copies"):
        usable = _of_one_task(usable, reading.tally)
    kept = list(_without_copies(usable, reading.tally, texts, instructions))
    tasks, spelling = instructions.tasks(reading), _spelled(kept, reading)
    attempts: Counter[tuple[str, str]] = Counter()
    ids: dict[str, Draft] = {}
    rows: list[_Row] = []
    for run, place in kept:
        task = tasks[run.task_id, run.variant]
        task = spelling.get(task, task)
        attempt = (
            attempts[task, run.agent]
            if run.attempt is None or run.trajectory_id is None
            else run.attempt
        )
        attempts[task, run.agent] += 1
        identity = run.trajectory_id or f"{task}/{run.agent}/{attempt}"
        if identity in ids:
            raise InputError(
                f"{run.origin} has the trajectory_id {identity!r} of {ids[identity].origin}; "
                "give every run its own id."
            )
        ids[identity] = run
        rows.append(_Row(task, identity, attempt, _Kept(run, place)))
    rows.sort(key=lambda row: (row.task_id, row.trajectory_id))
    return Gathered(corpus, rows, texts)


def _spelled(kept: Sequence[_Kept], reading: Reading) -> dict[str, str]:
    """Refuse names in two spellings, or return one for each; note those that only look alike."""
    for kind in ("task_id", "trajectory_id"):
        first: dict[str, Draft] = {}
        for run, _ in kept:
            first.setdefault(getattr(run, kind) or "", run)
        fold = kind == "task_id" and reading.options.get("ids") == "fold"
        if not fold and (pair := two_spellings(first)):
            one, other = pair
            raise InputError(
                f"{first[other].origin}: the {kind} {spelled(other)} is {spelled(one)} in "
                f"{first[one].origin} in another spelling. Write the same name in both"
                + (", or count them as one with --option ids=fold." * (kind == "task_id") or ".")
            )
    spelling = folding(run.task_id for run, _ in kept)
    if reading.options.get("ids") == "fold":
        return spelling
    if spelling:
        one, other = next(iter(spelling.items()))
        reading.notes[
            f"tasks spelled almost alike, such as {spelled(other)} and {spelled(one)} "
            "(similar_ids); the option ids=fold counts them as one"
        ] = len({*spelling, *spelling.values()})
    return {}


def _usable(drafts: Iterable[Draft], reading: Reading) -> Drafts:
    for draft in drafts:
        ids = (draft.task_id, draft.trajectory_id or "", draft.agent)
        if any(clean_text(name) != name for name in ids):
            # two such ids would become one in the table
            reading.drop(
                "unreadable_record",
                f"{draft.origin} has a task, trajectory_id or agent that is no Unicode text; give "
                "it another.",
            )
        elif draft.outcome is None and not reading.options.get("keep_unlabelled"):
            reading.drop(
                "no_label",
                f"{draft.origin} has no outcome; keep such runs with the option keep_unlabelled.",
            )
        else:
            yield draft


def _of_one_task(drafts: Iterable[Draft], tally: Tally) -> Drafts:
    """Leave out runs that repeat one of another task in text and outcome."""
    first: dict[tuple[str, int | None], Draft] = {}
    for draft in drafts:
        steps = [(step.action, step.observation) for step in draft.steps]
        key = letters_sha256(draft.instruction, steps), draft.outcome
        original = first.setdefault(key, replace(draft, instruction="", steps=()))
        if key[0] and original.task_id != draft.task_id:
            tally.drop(
                "copy_in_another_task",
                f"{draft.origin} repeats {original.origin}, a run of task {original.task_id!r}.",
            )
        else:
            yield draft


def _without_copies(
    drafts: Iterable[Draft], tally: Tally, texts: StepTexts, instructions: _Instructions
) -> Iterator[_Kept]:
    """Leave out copies of a run in another file or repetition."""
    seen: dict[bytes, tuple[Draft, ...]] = {}
    for draft in drafts:
        key = hashlib.sha256(
            draft.content() + (draft.trajectory_id or "").encode("utf-8", "surrogatepass")
        ).digest()
        alike = seen.get(key, ())
        original = next(
            (earlier for earlier in alike if draft.steps and _is_copy(draft, earlier)), None
        )
        if original is not None:
            _require_one_label(draft, original)
            tally.drop("duplicate", f"{draft.origin} is a copy of {original.origin}.")
            continue
        # most of a corpus is text, and none of it is needed to tell copies apart, number attempts
        # and order the runs: memory holds a few hundred bytes of each
        run = replace(draft, instruction="", steps=())
        seen[key] = (*alike, run)
        instructions.add(draft)
        yield _Kept(run, texts.put(draft.instruction, _bounded(draft.steps, tally)))


def _bounded(steps: Sequence[Step], tally: Tally) -> Sequence[Step]:
    if all(max(len(step.action), len(step.observation)) <= _LONGEST_TEXT for step in steps):
        return steps
    tally.notes[f"the middle of texts longer than {_LONGEST_TEXT:,} characters, by run"] += 1
    return [
        Step(excerpt(step.action, _LONGEST_TEXT), excerpt(step.observation, _LONGEST_TEXT))
        for step in steps
    ]


def _require_one_label(draft: Draft, original: Draft) -> None:
    labels = {draft.outcome, original.outcome} - {None}
    if draft.trajectory_id is not None and len(labels) > 1:
        raise InputError(
            f"{draft.origin} gives the run {draft.trajectory_id!r} the outcome {draft.outcome} and "
            f"{original.origin} gives it {original.outcome}; keep the one that is right."
        )


def _is_copy(draft: Draft, earlier: Draft) -> bool:
    """Whether equal content is a copy: by its own id, in another file, or in one repetition."""
    same_place = draft.origin.file == earlier.origin.file
    return (
        draft.trajectory_id is not None or not same_place or draft.repetition == earlier.repetition
    )


class _Instructions:
    """What the runs of every task ask, by the settings of their source."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, tuple[str, ...]], Counter[str]] = {}

    def add(self, draft: Draft) -> None:
        asked = self._asked.setdefault((draft.task_id, draft.variant), Counter())
        if draft.steps:
            asked[instruction_sha256(draft.instruction)] += 1

    def tasks(self, reading: Reading) -> dict[tuple[str, tuple[str, ...]], str]:
        """Return the task of every task id and settings."""
        variants: dict[str, list[tuple[str, ...]]] = {}
        for task, variant in self._asked:
            variants.setdefault(task, []).append(variant)
        names = {
            (task, variant): self._name(task, variant, others)
            for task, others in variants.items()
            for variant in others
        }
        asked: dict[str, Counter[str]] = {}
        for key, texts in self._asked.items():
            asked.setdefault(names[key], Counter()).update(texts)
        silent = sum(texts[""] for texts in asked.values())
        if silent:
            reading.notes[NO_INSTRUCTION] = silent
        unlike = sum(len(texts.keys() - {""}) > 1 for texts in asked.values())
        if unlike:
            reading.notes["tasks whose runs have unlike instructions"] = unlike
        if reading.options.get("merge_same_instruction"):
            merged = _merged(asked)
            names = {key: merged[name] for key, name in names.items()}
            if moved := sum(texts.total() for name, texts in asked.items() if merged[name] != name):
                reading.notes["runs moved to a task with the same instruction"] = moved
        return names

    def _name(self, task: str, variant: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
        """Name a task by the settings that differ, where no two of them ask the same."""
        asked = [self._asked[task, other].keys() for other in others]
        if len(others) == 1 or len(set().union(*asked)) < sum(map(len, asked)):
            return task
        shared = set(others[0]).intersection(*others[1:])
        return f"{task} {', '.join(setting for setting in variant if setting not in shared)}"


def _merged(asked: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the first of the tasks that each is linked to by instructions."""
    by_text: dict[str, set[str]] = {}
    for task, texts in asked.items():
        for text in texts:
            by_text.setdefault(text, set()).add(task)
    by_text.pop("", None)
    groups = {task: {task} for task in asked}
    for tasks in by_text.values():
        group = set().union(*(groups[task] for task in tasks))
        groups |= dict.fromkeys(group, group)
    return {task: min(group) for task, group in groups.items()}
