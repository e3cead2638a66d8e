"""What people said of decided runs, resolved to one row a run, with how often they agree."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.journal import Resolved, read_labels, resolve_labels
from certify_assets.operations.layout import batch_names, decisions_of, require_as_decided

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["REVIEWED_COLUMNS", "Reviewed", "review_labels", "reviewed_key", "write_reviewed"]

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


@dataclass(frozen=True)
class Reviewed:
    """The resolved labels of a corpus.

    Parameters
    ----------
    frame : pandas.DataFrame
        With `REVIEWED_COLUMNS`: `outcome` is 0, 1 or missing where reviewers are tied; `votes` is a JSON object of reviewer to outcome;
        `asked` is "" where a person labelled a run that nobody was asked about.
    statements : int
        Lines of the journal.
    unknown : tuple of str
        Runs with a label that no batch decided.
    """

    frame: pd.DataFrame
    statements: int
    unknown: tuple[str, ...]

    @property
    def doubly(self) -> int:
        """Runs that two people or more labelled."""
        return int(self._votes().ge(2).sum())

    @property
    def disagreement(self) -> float | None:
        """Share of the runs labelled by two or more on which they differ; None where there are none."""
        return float(self.frame["disputed"].sum()) / self.doubly if self.doubly else None

    def sentence(self) -> str:
        """Say how many of the runs that two people labelled they differ on."""
        return f"reviewers differ on {int(self.frame['disputed'].sum())} of {self.doubly} runs that two of them or more labelled."

    def figures(self) -> dict[str, Any]:
        """Return the counts and rates as a document."""
        share = self.disagreement
        counts = {
            "labelled": len(self.frame),
            "statements": self.statements,
            "labelled_twice": self.doubly,
            "unknown": len(self.unknown),
        }
        counts |= {
            "disputed": int(self.frame["disputed"].sum()),
            "tied": int(self.frame["outcome"].isna().sum()),
        }
        return {**counts, "agreement": None if share is None else round(1.0 - share, 4)}

    def _votes(self) -> pd.Series:
        return self.frame["votes"].map(lambda text: len(json.loads(text))).astype(int)


def reviewed_key(corpus: str) -> str:
    """Return where the resolved labels are stored."""
    return f"operations/{corpus}/labels.parquet"


def review_labels(corpus: Corpus) -> Reviewed:
    """Join the journal to the decisions, the run with the oldest label first."""
    import pandas as pd

    labels = read_labels(corpus)
    resolved = resolve_labels(labels)
    decided = _decided(corpus, resolved)
    rows = [_row(one, decided[name]) for name, one in resolved.items() if name in decided]
    frame = pd.DataFrame(rows, columns=list(REVIEWED_COLUMNS)).astype(
        {"outcome": "Int8", "disputed": bool}
    )
    return Reviewed(frame, len(labels), tuple(name for name in resolved if name not in decided))


def write_reviewed(corpus: Corpus) -> Reviewed:
    """Write the table of resolved labels; as `review_labels`."""
    reviewed = review_labels(corpus)
    corpus.store.write_table(reviewed_key(corpus.name), reviewed.frame)
    return reviewed


def _decided(corpus: Corpus, resolved: Mapping[str, Resolved]) -> dict[str, dict[str, Any]]:
    """Return the decisions on labelled runs; of a run that was decided twice the later."""
    found: dict[str, dict[str, Any]] = {}
    for batch in batch_names(corpus):
        require_as_decided(corpus, batch, "decisions")
        frame = decisions_of(corpus, batch)
        for row in frame[frame["trajectory_id"].isin(list(resolved))].to_dict("records"):
            found[row["trajectory_id"]] = row
    return found


def _row(one: Resolved, decided: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        name: decided[name] for name in ("trajectory_id", "task_id", "batch", "asked", "decision")
    }
    votes = json.dumps(dict(one.votes), ensure_ascii=False)
    return {
        **about,
        "outcome": one.outcome,
        "votes": votes,
        "disputed": one.disputed,
        "time": one.time,
    }
