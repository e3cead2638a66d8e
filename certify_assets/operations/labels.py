"""Labels of reviewers: events that are never changed, and what they amount to."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import parse_json
from certify_assets.operations.batches import operation_key
from certify_assets.operations.decisions import PROVISIONAL, load_decisions
from certify_assets.storage.care import blank
from certify_assets.storage.events import Event, Payload, storable_text
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Store

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
_MOST_COMMENT, _MOST_NAME = 2000, 80


class Labelled(Payload):
    """A reviewer said something of a run; the token of the event names the statement."""

    kind = "labelled"
    trajectory_id: str
    outcome: Literal[0, 1] | None
    reviewer: str
    via: Literal["page", "file", "label_studio", "cli"]
    comment: str

    @property
    def subject(self) -> str:
        """Run that is labelled."""
        return self.trajectory_id


class GoldLabelled(Labelled):
    """A reviewer said something of a run of known outcome, which decides nothing."""

    kind = "gold_labelled"
    known: int


@dataclass(frozen=True)
class Label:
    """A statement of one reviewer on one run."""

    trajectory_id: str
    outcome: int | None  # None takes back the last statement of this reviewer
    reviewer: str
    via: str  # page, file, label_studio or cli
    token: str  # names this statement: a form or file that is sent twice adds one label
    comment: str = ""
    number: int = 0  # of its event; 0 until it is stored
    time: str = ""  # UTC, ISO 8601; empty until it is stored
    # of a run of known outcome: the table may be gone when reviewers are measured
    known: int | None = None

    @classmethod
    def of(cls, event: Event[Any]) -> Label:
        """Return the label of an event."""
        said = parse_json(event.payload)
        del said["objects"]
        return cls(**said, token=event.token, number=event.sequence, time=event.time)

    def to_payload(self) -> Labelled:
        """Return what its event says."""
        kind = Labelled if self.known is None else GoldLabelled
        names = kind.model_fields.keys() - {"objects"}
        return kind.model_validate({name: getattr(self, name) for name in names})


@dataclass(frozen=True, order=True)
class LabelPrefix:
    """The labels up to one of them, by number and hash of its event."""

    sequence: int = 0  # 0 without labels
    sha256: str = ""


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


def reviewer_name(given: str, known: Iterable[str]) -> str:
    """Return the known spelling of a name that differs in case or spaces alone, else the name."""
    name = " ".join(unicodedata.normalize("NFKC", given).split())
    if not name or len(name) > _MOST_NAME or not name.isprintable():
        raise InputError(
            f"the reviewer's name {given[:_MOST_NAME]!r} is empty, too long or unreadable. Give "
            f"1 to {_MOST_NAME} letters."
        )
    return next((one for one in known if one.casefold() == name.casefold()), name)


def comment_text(given: str) -> str:
    """Return a comment as it is stored; refuse characters that no database takes."""
    text = given.strip()[:_MOST_COMMENT]
    storable_text(text)
    return text


def append_label(corpus: Corpus, label: Label) -> Label:
    """Append one label; as `append_labels`."""
    return append_labels(corpus, [label])[0]


def append_labels(corpus: Corpus, labels: Sequence[Label]) -> list[Label]:
    """Append labels and return them as stored; one whose token is stored is returned as it is."""
    tokens = {label.token: label for label in labels}

    def work(view: Store) -> dict[str, Payload]:
        stored = {
            event.token: Label.of(event) for event in view.among(corpus.name, "token", tokens)
        }
        said = tokens | stored
        for label in labels:
            _require_same(said[label.token], label, corpus.name)
        return {token: label.to_payload() for token, label in tokens.items()}

    written = {event.token: Label.of(event) for event in corpus.store.short(corpus.name, work)}
    return [written[label.token] for label in labels]


def _require_same(written: Label, label: Label, corpus: str) -> None:
    names = ("trajectory_id", "outcome", "reviewer")
    if any(getattr(written, name) != getattr(label, name) for name in names):
        which = f"label {written.number}" if written.number else "another label"
        raise InputError(
            f"{which} of {corpus} has the token {label.token!r} and another content. Give another "
            "token."
        )


@remembered
def read_labels(corpus: Corpus, up_to: int | None = None) -> list[Label]:
    """Return the labels, the oldest first: all, or those whose events have at most a number.

    A step that reads them commits even where reviewers add labels meanwhile.
    """
    events = corpus.store.events(corpus.name, Labelled, watched=False)
    return [Label.of(event) for event in events if up_to is None or event.sequence <= up_to]


def read_gold_labels(corpus: Corpus) -> list[Label]:
    """Return what reviewers said of known runs, the oldest first."""
    found = corpus.store.events(corpus.name, GoldLabelled, watched=False)
    return [Label.of(event) for event in found]


def labels_head(corpus: Corpus) -> LabelPrefix:
    """Return the labels so far, by the last one."""
    last = corpus.last(Labelled, watched=False)
    return LabelPrefix(last.sequence, last.sha256) if last else LabelPrefix()


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
    unknown: tuple[str, ...]  # labelled runs that no batch decided

    def figures(self) -> dict[str, int]:
        """Return the counts."""
        return {
            "labelled": len(self.frame),
            "unknown": len(self.unknown),
            "disputed": int(self.frame["disputed"].sum()),
            "tied": int(self.frame["outcome"].isna().sum()),
        }


def label_table(corpus: Corpus) -> LabelTable:
    """Join labels and decisions, the run with the oldest label first."""
    resolved = resolve_labels(read_labels(corpus))
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
        tuple(name for name in resolved if name not in decided.index),
    )


def reviewed_key(corpus: str) -> str:
    """Return the key of the table of resolved labels."""
    return operation_key(corpus, "labels.parquet")


def write_label_table(corpus: Corpus) -> LabelTable:
    """Store the table of resolved labels; as `label_table`."""
    with corpus.writing():
        # one of fewer labels must not follow one of more
        corpus.store.current(reviewed_key(corpus.name))
        table = label_table(corpus)
        corpus.store.write_table(reviewed_key(corpus.name), table.frame)
    return table


def blank_reviewer(store: Store, corpus: str, reviewer: str) -> int:
    """Put a number for a reviewer's name and take the comments out; return the number of events.

    Raises
    ------
    InputError
        If the corpus has no labels.
    """
    said = [
        entry.content for kind in (Labelled, GoldLabelled) for entry in store.events(corpus, kind)
    ]
    names = {label.reviewer for label in said}
    if not names:
        raise InputError(f"{corpus} has no labels. Name a corpus that has some.")
    free = next(n for n in range(1, len(names) + 2) if f"reviewer {n}" not in names)

    def without_name(kind: str, said: Any) -> Any | None:
        del kind
        if said.get("reviewer") != reviewer:
            return None
        return {**said, "reviewer": f"reviewer {free}", "comment": ""}

    count = blank(store, corpus, without_name) if reviewer in names else 0
    # a call that was killed may have left the name in it
    write_label_table(Corpus(Store(store.root), corpus))
    return count
