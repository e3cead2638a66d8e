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

from certify_assets.corpora.formats.base import Draft, LeftOutError, Reading
from certify_assets.corpora.trajectory import (
    Step,
    Trajectory,
    clean_text,
    instruction_sha256,
    letters_sha256,
)
from certify_assets.errors import InputError
from certify_assets.files import naming
from certify_assets.names import folding, spelled, two_spellings
from certify_assets.work import counted

_IN_MEMORY = 64 << 20
# no person reads a longer text, and a few of them would fill memory
_LONGEST_TEXT = 20_000_000
#: letters of a judgement that a message shows
_SHOWN = 60
#: what an import notes of runs that ask nothing
NO_INSTRUCTION = "runs have no instruction"


class StepTexts:
    """Instructions and steps, in memory or, if there are many, in a file."""

    def __init__(self) -> None:
        # closed by close
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._end = 0

    def put(self, instruction: str, steps: Sequence[Step]) -> tuple[int, int]:
        """Keep the texts of one run; return their start and end."""
        texts = [instruction, *(text for step in steps for text in (step.action, step.observation))]
        start = self._end
        with naming(Path(tempfile.gettempdir())):
            self._file.seek(start)
            # JSON keeps lone surrogates, which no encoding to UTF-8 does
            self._end += self._file.write(json.dumps(texts).encode("ascii"))
        return start, self._end

    def get(self, place: tuple[int, int]) -> tuple[str, tuple[Step, ...]]:
        """Return the texts of one run."""
        start, end = place
        self._file.seek(start)
        instruction, *rest = json.loads(self._file.read(end - start))
        return instruction, tuple(map(Step, rest[::2], rest[1::2]))

    def close(self) -> None:
        """Delete the texts."""
        self._file.close()


class Run(NamedTuple):
    """A run of a corpus without its texts, and the place of the texts."""

    task_id: str
    trajectory_id: str
    attempt: int
    draft: Draft
    place: tuple[int, int]


@dataclass(frozen=True)
class Gathered:
    """The runs of an import without their texts, sorted by task_id and trajectory_id."""

    corpus: str
    rows: list[Run]
    texts: StepTexts

    def trajectories(self) -> Iterator[Trajectory]:
        """Iterate over the runs."""
        return map(self.trajectory, counted("comparing the runs", range(len(self.rows))))

    def write(self, sink: IO[bytes]) -> None:
        """Write the runs as Parquet."""
        from certify_assets.corpora.schema import write_trajectories

        write_trajectories(
            sink, map(self.trajectory, counted("writing the runs", range(len(self.rows))))
        )

    def tasks(self) -> int:
        """Count the tasks."""
        return len({row.task_id for row in self.rows})

    def agents(self) -> tuple[str, ...]:
        """Return the agents, sorted."""
        return tuple(sorted({row.draft.agent for row in self.rows}))

    def trajectory(self, place: int) -> Trajectory:
        """Return the run of one of the rows."""
        row = self.rows[place]
        draft = row.draft
        instruction, steps = self.texts.get(row.place)
        return Trajectory(
            corpus=self.corpus,
            task_id=row.task_id,
            trajectory_id=row.trajectory_id,
            agent=draft.agent,
            attempt=row.attempt,
            instruction=instruction,
            steps=steps,
            outcome=draft.outcome,
            source_file=draft.origin.file,
            source_sha256=draft.origin.sha256,
        )


def gather(drafts: Iterable[Draft], corpus: str, reading: Reading, texts: StepTexts) -> Gathered:
    """Turn drafts into the runs of a corpus."""
    kept = list(_kept(drafts, reading, texts))
    bare = [draft for draft, _ in kept]
    tasks, spelling = _tasks(bare, reading), _spelled(bare, reading)
    attempts: Counter[tuple[str, str]] = Counter()
    runs: dict[str, Run] = {}
    for (draft, place), given in zip(kept, tasks, strict=True):
        task = spelling.get(given, given)
        attempt = attempts[task, draft.agent]
        if draft.attempt is not None and draft.trajectory_id is not None:
            attempt = draft.attempt
        attempts[task, draft.agent] += 1
        identity = draft.trajectory_id or f"{task}/{draft.agent}/{attempt}"
        run = Run(task, identity, attempt, draft, place)
        if (first := runs.setdefault(identity, run)) is not run:
            raise InputError(
                f"{draft.origin} has the trajectory_id {identity!r} of {first.draft.origin}; "
                "give every run its own id."
            )
    rows = sorted(runs.values(), key=lambda run: (run.task_id, run.trajectory_id))
    return Gathered(corpus, rows, texts)


def _spelled(kept: Sequence[Draft], reading: Reading) -> dict[str, str]:
    """Refuse names in two spellings, or return one for each; note names that look similar."""
    for kind in ("task_id", "trajectory_id"):
        first: dict[str, Draft] = {}
        for draft in kept:
            first.setdefault(getattr(draft, kind) or "", draft)
        fold = kind == "task_id" and reading.options.get("ids") == "fold"
        if not fold and (pair := two_spellings(first)):
            one, other = pair
            raise InputError(
                f"{first[other].origin}: the {kind} {spelled(other)} is {spelled(one)} in "
                f"{first[one].origin} in another spelling. Write the same name in both"
                + (", or count them as one with --option ids=fold." * (kind == "task_id") or ".")
            )
    spelling = folding(draft.task_id for draft in kept)
    if reading.options.get("ids") == "fold":
        return spelling
    if spelling:
        one, other = next(iter(spelling.items()))
        reading.notes[
            f"tasks spelled almost alike, such as {spelled(other)} and {spelled(one)} "
            "(similar_ids); the option ids=fold counts them as one"
        ] = len({*spelling, *spelling.values()})
    return {}


def _kept(
    drafts: Iterable[Draft], reading: Reading, texts: StepTexts
) -> Iterator[tuple[Draft, tuple[int, int]]]:
    """Leave out unusable and unlabelled runs, and copies; store the texts.

    The hash of its words replaces the instruction of a draft.
    """
    # most of a corpus is text, and none of it is needed to tell copies apart, number attempts and
    # order the runs: memory holds a few hundred bytes of each
    seen: dict[bytes, list[Draft]] = {}
    elsewhere: dict[tuple[str, int | None], Draft] = {}
    for draft in drafts:
        words = instruction_sha256(draft.instruction)
        bare = replace(draft, instruction=words, steps=())
        content = draft.content() + (draft.trajectory_id or "").encode("utf-8", "surrogatepass")
        alike = seen.setdefault(hashlib.sha256(content).digest(), [])
        try:
            _require_usable(draft, reading)
            if reading.options.get("drop_copies"):
                _require_own_task(draft, bare, elsewhere)
            if copied := next((one for one in alike if _is_copy(draft, one)), None):
                _require_one_label(draft, copied)
                if reading.judged and draft.trajectory_id is not None:
                    _require_same_judgements(draft, copied)
                raise LeftOutError(f"is a copy of {copied.origin}", "duplicate")
        except LeftOutError as left:
            reading.drop(left.reason, f"{draft.origin} {left.words}.")
        else:
            alike.append(bare)
            yield bare, texts.put(draft.instruction, _bounded(draft.steps, reading))


def _require_usable(draft: Draft, reading: Reading) -> None:
    ids = (draft.task_id, draft.trajectory_id or "", draft.agent)
    # two such ids would become one in the table
    if any(clean_text(name) != name for name in ids):
        raise LeftOutError("its task, trajectory_id or agent is not Unicode text; give it another")
    if draft.outcome is None and not reading.options.get("keep_unlabelled"):
        raise LeftOutError(
            "has no outcome; keep such runs with the option keep_unlabelled", "no_label"
        )


def _require_own_task(
    draft: Draft, bare: Draft, first: dict[tuple[str, int | None], Draft]
) -> None:
    """Leave out a run if a run of another task has its texts and outcome."""
    steps = [(step.action, step.observation) for step in draft.steps]
    letters = letters_sha256(draft.instruction, steps)
    other = first.setdefault((letters, draft.outcome), bare)
    if letters and other.task_id != draft.task_id:
        said = f"repeats {other.origin}, a run of task {other.task_id!r}"
        raise LeftOutError(said, "copy_in_another_task")


def _bounded(steps: Sequence[Step], reading: Reading) -> Sequence[Step]:
    found = [Step(_excerpt(step.action), _excerpt(step.observation)) for step in steps]
    if found != [*steps]:
        reading.notes[f"the middle of texts longer than {_LONGEST_TEXT:,} characters, by run"] += 1
    return found


def _excerpt(text: str) -> str:
    """Keep the two ends of a long text, with the number of characters between them."""
    half = _LONGEST_TEXT // 2
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:half]} [{len(text) - 2 * half} characters cut] {text[-half:]}"


def _require_one_label(draft: Draft, original: Draft) -> None:
    labels = {draft.outcome, original.outcome} - {None}
    if draft.trajectory_id is not None and len(labels) > 1:
        raise InputError(
            f"{draft.origin} gives the run {draft.trajectory_id!r} the outcome {draft.outcome} and "
            f"{original.origin} gives it {original.outcome}; keep the one that is right."
        )


def _require_same_judgements(draft: Draft, original: Draft) -> None:
    """Refuse a copy of a run if its judgements are not among those of the original."""
    # as text, since NaN is not equal to itself
    said, before = (
        Counter((one.name, one.source, repr(one.value)) for one in run.judgements)
        for run in (draft, original)
    )
    if others := sorted(said - before):
        name, _, value = others[0]
        raise InputError(
            f"{draft.origin} says {name} = {value[:_SHOWN]} of the run {draft.trajectory_id!r}, "
            f"and {original.origin} does not. Keep one file of each run."
        )


def _is_copy(draft: Draft, earlier: Draft) -> bool:
    """Whether equal content is a copy: by its own id, in another file, or in one repetition."""
    if draft.trajectory_id is not None or draft.origin.file != earlier.origin.file:
        return True
    return draft.repetition is not None and draft.repetition == earlier.repetition


def _tasks(kept: Sequence[Draft], reading: Reading) -> list[str]:
    """Return the task of every run; settings that change its instruction are part of its name."""
    asked: dict[str, dict[tuple[str, ...], set[str]]] = {}
    for draft in kept:
        by_variant = asked.setdefault(draft.task_id, {})
        by_variant.setdefault(draft.variant, set()).add(draft.instruction)
    tasks = [_named(draft, asked[draft.task_id]) for draft in kept]
    words: dict[str, set[str]] = {}
    for task, draft in zip(tasks, kept, strict=True):
        words.setdefault(task, set()).add(draft.instruction)
    unlike = sum(len(found - {""}) > 1 for found in words.values())
    notes = {
        NO_INSTRUCTION: sum(not draft.instruction for draft in kept),
        "tasks whose runs have unlike instructions": unlike,
    }
    if reading.options.get("merge_same_instruction"):
        first = _merged(words)
        moved = sum(first[task] != task for task in tasks)
        notes["runs moved to a task with the same instruction"] = moved
        tasks = [first[task] for task in tasks]
    reading.notes.update(+Counter(notes))
    return tasks


def _named(draft: Draft, asked: Mapping[tuple[str, ...], set[str]]) -> str:
    """Name a task by the settings that differ, if each gives another instruction."""
    if len(asked) == 1 or len(set().union(*asked.values())) < sum(map(len, asked.values())):
        return draft.task_id
    first, *others = asked
    shared = set(first).intersection(*others)
    return f"{draft.task_id} {', '.join(part for part in draft.variant if part not in shared)}"


def _merged(words: Mapping[str, set[str]]) -> dict[str, str]:
    """Return, for each task, the first of those that shared instructions link to it."""
    groups = {task: {task} for task in words}
    first: dict[str, str] = {}
    for task, found in words.items():
        for text in found - {""}:
            other = first.setdefault(text, task)
            if groups[other] is not groups[task]:
                groups[other] |= groups[task]
                groups |= dict.fromkeys(groups[task], groups[other])
    return {task: min(group) for task, group in groups.items()}
