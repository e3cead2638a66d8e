"""Labels of reviewers: the journal, one line each and never rewritten, and what they amount to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.layout import (
    PROVISIONAL,
    batch_names,
    labels_key,
    load_decisions,
    require_as_decided,
    reviewed_key,
)
from certify_assets.storage.journal import Journal, LineFormat, heads_key

if TYPE_CHECKING:
    import pandas as pd

REVIEWED_COLUMNS: Final = (
    "trajectory_id",
    "task_id",
    "batch",
    "outcome",
    "votes",
    "disputed",
    "asked",
    "decision",
    "time",
)
_VIAS = ("page", "file", "label_studio", "cli")
LABEL_LINES: Final = LineFormat(
    number="number",
    encode=partial(json.dumps, ensure_ascii=False),
    entry="a label",
    remedy="restore the newest copy of the file",
)
# labels that no head names yet, and seconds from the first to the last, before the next head:
# a head for each label takes two to three times as long, and an older copy can lack no others
# unnoticed, none of which anything was decided from
_UNNAMED, _UNNAMED_SECONDS = 20, 60.0


L = TypeVar("L", bound="Label")


@dataclass(frozen=True)
class Label:
    """A statement of one reviewer on one run."""

    trajectory_id: str
    outcome: int | None  # None takes back the last statement of this reviewer
    reviewer: str
    via: str  # page, file, label_studio or cli
    token: str  # names this statement: a form or file that is sent twice adds one line
    comment: str = ""
    number: int = 0  # line of the journal, from 1; 0 until it is written
    time: str = ""  # UTC, ISO 8601; empty until it is written
    # hash of the previous line; empty in the first
    previous: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.outcome not in (0, 1, None) or isinstance(self.outcome, bool):
            raise InputError(
                f"{self.trajectory_id}: the outcome {self.outcome!r} is neither 0, 1 nor empty; "
                "give 1 for success, 0 for failure."
            )
        for name in ("trajectory_id", "reviewer", "token"):
            if not getattr(self, name).strip():
                raise InputError(
                    f"a label of {self.trajectory_id or 'a run'} has no {name}; give one."
                )
        if self.via not in _VIAS:
            raise InputError(
                f"{self.trajectory_id}: a label cannot come by {self.via!r}; give one of "
                f"{', '.join(_VIAS)}."
            )


@dataclass(frozen=True)
class Resolved:
    """The last statements of all reviewers on one run."""

    trajectory_id: str
    outcome: int | None  # of the majority; None where it is a tie
    votes: tuple[tuple[str, int], ...]  # the last statement of every reviewer, sorted by name
    time: str  # of the last statement

    @property
    def disputed(self) -> bool:
        """Whether two reviewers disagree."""
        return len({outcome for _, outcome in self.votes}) > 1


def append_label(corpus: Corpus, label: Label) -> Label:
    """Append one label; as `append_labels`."""
    return append_labels(corpus, [label])[0]


def append_labels(corpus: Corpus, labels: Sequence[Label]) -> list[Label]:
    """Append labels and return them as stored; one whose token is stored is returned as it is."""
    return extend_labels(corpus, _journal(corpus), labels)


def extend_labels(corpus: Corpus, journal: Journal[L], labels: Sequence[L]) -> list[L]:
    """Append labels to a journal of them; as `append_labels`."""
    stored: list[L] = []

    def new(before: list[L]) -> list[L]:
        stored.clear()
        by_token = {entry.token: entry for entry in before}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        added = []
        for label in labels:
            if label.token not in by_token:
                by_token[label.token] = replace(label, time=now)
                added.append(by_token[label.token])
            _require_same(by_token[label.token], label, corpus.name)
            stored.append(by_token[label.token])
        return added

    written = {label.token: label for label in journal.extend(new)}
    return [written.get(label.token, label) for label in stored]


def _require_same(written: Label, label: Label, corpus: str) -> None:
    names = ("trajectory_id", "outcome", "reviewer")
    if any(getattr(written, name) != getattr(label, name) for name in names):
        raise InputError(
            f"line {written.number} of the journal of {corpus} has the token {label.token!r} and "
            "says something else; give another token."
        )


def read_labels(corpus: Corpus) -> list[Label]:
    """Return the journal, the oldest first; empty where there is none."""
    return _journal(corpus).read()


def labels_head(corpus: Corpus, lines: int | None = None) -> tuple[int, str]:
    """Return number and hash of the last label, or of the one with a number."""
    found = _journal(corpus).lines()
    found = found if lines is None else found[:lines]
    return (found[-1].number, found[-1].sha256) if found else (0, "")


def anchor_labels(corpus: Corpus) -> None:
    """Keep the last label as a head of the journal; refuse one that lacks a label that had one.

    Whoever decides from labels, or refuses to, calls it before that is stored or said.
    """
    _journal(corpus).anchor()


def _journal(corpus: Corpus) -> Journal[Label]:
    # an older copy would forget labels that raised an alarm or contradicted others
    return Journal(
        corpus.store,
        labels_key(corpus.name),
        lambda entry: Label(**entry),
        LABEL_LINES,
        heads=heads_key(corpus.name),
        due=_need_head,
        watched=False,
    )


def _need_head(unnamed: Sequence[Label]) -> bool:
    if len(unnamed) >= _UNNAMED:
        return True
    try:
        first, last = (datetime.fromisoformat(unnamed[place].time) for place in (0, -1))
        return (last - first).total_seconds() >= _UNNAMED_SECONDS
    except (TypeError, ValueError):
        # times that this version did not write
        return True


def resolve_labels(labels: Iterable[Label]) -> Mapping[str, Resolved]:
    """Return the majority of the last statements on each run, in the order of first labels."""
    # runs whose every statement was taken back are left out
    votes: dict[str, dict[str, int]] = {}
    times: dict[str, str] = {}
    for label in labels:
        of_run = votes.setdefault(label.trajectory_id, {})
        times[label.trajectory_id] = label.time
        if label.outcome is None:
            of_run.pop(label.reviewer, None)
        else:
            of_run[label.reviewer] = label.outcome
    return {
        name: Resolved(name, _majority(of_run), tuple(sorted(of_run.items())), times[name])
        for name, of_run in votes.items()
        if of_run
    }


def overruled(labels: Iterable[Label]) -> dict[str, int]:
    """Return the outcomes of runs whose reviewers replaced or withdrew what they first said."""
    # a run that further reviewers outvote has the same outcome in whatever order they speak
    said = list(labels)
    first: dict[tuple[str, str], Label] = {}
    for label in said:
        if label.outcome is not None:
            first.setdefault((label.trajectory_id, label.reviewer), label)
    before = resolve_labels(first.values())
    return {
        name: now.outcome
        for name, now in resolve_labels(said).items()
        if now.outcome is not None and now.outcome != before[name].outcome
    }


def _majority(votes: Mapping[str, int]) -> int | None:
    successes, failures = sum(votes.values()), len(votes) - sum(votes.values())
    return None if successes == failures else int(successes > failures)


@dataclass(frozen=True)
class LabelTable:
    """The resolved labels of a corpus, one row a run."""

    frame: pd.DataFrame  # REVIEWED_COLUMNS; the outcome is missing where reviewers are tied
    statements: int  # lines of the journal
    unknown: tuple[str, ...]  # labelled runs that no batch decided

    @property
    def doubly(self) -> int:
        """Runs that two reviewers or more labelled."""
        votes = self.frame["votes"].map(lambda text: len(json.loads(text))).astype(int)
        return int(votes.ge(2).sum())

    @property
    def disputed(self) -> int:
        """Runs on which reviewers disagree."""
        return int(self.frame["disputed"].sum())

    @property
    def disagreement(self) -> float | None:
        """Share of the doubly labelled runs that are disputed; None without such runs."""
        return self.disputed / self.doubly if self.doubly else None

    def sentence(self) -> str:
        """Describe the disagreement."""
        return (
            f"reviewers differ on {self.disputed} of {self.doubly} runs that two of them or more "
            "labelled."
        )

    def figures(self) -> dict[str, int | float | None]:
        """Return the counts and rates."""
        share = self.disagreement
        return {
            "labelled": len(self.frame),
            "statements": self.statements,
            "labelled_twice": self.doubly,
            "unknown": len(self.unknown),
            "disputed": self.disputed,
            "tied": int(self.frame["outcome"].isna().sum()),
            "agreement": None if share is None else round(1.0 - share, 4),
        }


def label_table(corpus: Corpus) -> LabelTable:
    """Join the journal with the decisions, the run with the oldest label first."""
    labels = read_labels(corpus)
    resolved = resolve_labels(labels)
    for batch in batch_names(corpus):
        require_as_decided(corpus, batch, "decisions")
    every = load_decisions(corpus)
    found = every[every["trajectory_id"].isin(list(resolved))]
    # of a run that was decided twice the later decision
    decided = found.drop_duplicates("trajectory_id", keep="last").set_index("trajectory_id")
    known = [one for name, one in resolved.items() if name in decided.index]
    table = decided.loc[[one.trajectory_id for one in known]].reset_index()
    table = table.assign(
        outcome=[one.outcome for one in known],
        votes=[json.dumps(dict(one.votes), ensure_ascii=False) for one in known],
        disputed=[one.disputed for one in known],
        # which runs of an open draw need a label changes with the labels, so it is not stored
        asked=table["asked"].mask(
            (table["decision"] == PROVISIONAL) & (table["asked"] == ""), "batch_draw"
        ),
        time=[one.time for one in known],
    )
    return LabelTable(
        table[list(REVIEWED_COLUMNS)].astype({"outcome": "Int8", "disputed": bool}),
        len(labels),
        tuple(name for name in resolved if name not in decided.index),
    )


def write_label_table(corpus: Corpus) -> LabelTable:
    """Store the table of resolved labels; as `label_table`."""
    table = label_table(corpus)
    anchor_labels(corpus)
    corpus.store.write_table(reviewed_key(corpus.name), table.frame)
    return table
