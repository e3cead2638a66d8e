"""The journal of labels: what people said of runs, one line each, appended and flushed before it is confirmed, never rewritten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.layout import labels_key
from certify_assets.storage.journal import Journal, LineFormat

__all__ = ["Label", "Resolved", "append_label", "append_labels", "read_labels", "resolve_labels"]

_FORMAT = LineFormat(
    number="number",
    unchained_start=True,
    encode=partial(json.dumps, ensure_ascii=False),
    entry="a label",
)
_VIAS = ("page", "file", "label_studio", "cli")


@dataclass(frozen=True)
class Label:
    """What one person said of one run.

    Parameters
    ----------
    trajectory_id : str
    outcome : {0, 1} or None
        None takes back what this reviewer said before.
    reviewer : str
    via : {"page", "file", "label_studio", "cli"}
    token : str
        Names this statement: a form that is sent twice, or a file that is read twice, adds one line.
    comment : str
    number : int
        Line of the journal, from 1; 0 until it is written.
    time : str
        UTC, ISO 8601; "" until it is written.
    previous : str
        Hash of the line before; "" in the first.
    """

    trajectory_id: str
    outcome: int | None
    reviewer: str
    via: str
    token: str
    comment: str = ""
    number: int = 0
    time: str = ""
    previous: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.outcome not in (0, 1, None) or isinstance(self.outcome, bool):
            raise InputError(
                f"{self.trajectory_id}: the outcome {self.outcome!r} is neither 0, 1 nor empty; give 1 for success, 0 for failure."
            )
        for name in ("trajectory_id", "reviewer", "token"):
            if not getattr(self, name).strip():
                raise InputError(
                    f"a label of {self.trajectory_id or 'a run'} has no {name}; give one."
                )
        if self.via not in _VIAS:
            raise InputError(
                f"{self.trajectory_id}: a label cannot come by {self.via!r}; give one of {', '.join(_VIAS)}."
            )


@dataclass(frozen=True)
class Resolved:
    """What the reviewers of one run say together.

    Parameters
    ----------
    trajectory_id : str
    outcome : {0, 1} or None
        The majority's; None where it is a tie.
    votes : tuple of (str, int)
        The last statement of every reviewer, sorted by name.
    time : str
        Of the last statement.
    """

    trajectory_id: str
    outcome: int | None
    votes: tuple[tuple[str, int], ...]
    time: str

    @property
    def disputed(self) -> bool:
        """Whether two reviewers say different things."""
        return len({outcome for _, outcome in self.votes}) > 1


def append_label(corpus: Corpus, label: Label) -> Label:
    """Write one label; as `append_labels`."""
    return append_labels(corpus, [label])[0]


def append_labels(corpus: Corpus, labels: Sequence[Label]) -> list[Label]:
    """Write labels and return them as they stand in the journal, on the disk; what was written under a token before is returned as it is.

    Raises
    ------
    InputError
        If another label was written under a token; then none of them is written.
    IntegrityError
        As `read_labels`.
    """
    standing: list[Label] = []

    def new(before: list[Label]) -> list[Label]:
        by_token = {entry.token: entry for entry in before}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        added = []
        for label in labels:
            if label.token not in by_token:
                by_token[label.token] = replace(label, time=now)
                added.append(by_token[label.token])
            _require_same(by_token[label.token], label, corpus.name)
            standing.append(by_token[label.token])
        return added

    written = {label.token: label for label in _journal(corpus).extend(new)}
    return [written.get(label.token, label) for label in standing]


def _require_same(written: Label, label: Label, corpus: str) -> None:
    if (written.trajectory_id, written.outcome, written.reviewer) != (
        label.trajectory_id,
        label.outcome,
        label.reviewer,
    ):
        raise InputError(
            f"line {written.number} of the journal of {corpus} has the token {label.token!r} and says something else; give another token."
        )


def read_labels(corpus: Corpus) -> list[Label]:
    """Return the journal, the oldest first; empty where there is none.

    Raises
    ------
    IntegrityError
        If a line before the last was altered, taken out or put in.
    """
    return _journal(corpus).read()


def resolve_labels(labels: Iterable[Label]) -> Mapping[str, Resolved]:
    """Return what stands of each run: of every reviewer the last statement, and of those the majority.

    Returns
    -------
    mapping of str to Resolved
        By trajectory, in the order of their first label; runs whose every statement was taken back are left out.
    """
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


def _majority(votes: Mapping[str, int]) -> int | None:
    successes, failures = sum(votes.values()), len(votes) - sum(votes.values())
    return None if successes == failures else int(successes > failures)


def _journal(corpus: Corpus) -> Journal[Label]:
    return Journal(corpus.store, labels_key(corpus.name), lambda entry: Label(**entry), _FORMAT)
