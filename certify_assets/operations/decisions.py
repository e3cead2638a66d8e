"""The table of decisions: of one batch or of all, as they were made and as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.operations.batches import (
    DrawnBatch,
    batch_names,
    closing_of,
    decisions_sha256,
    draw_of,
)
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

#: why a run is in the review queue, the most urgent first; "" where it is not
ASKED: Final = ("batch_draw", "audit_sample", "undecided", "")

#: decision of a run that waits for the certificate of its batch
PROVISIONAL: Final = "provisional"

#: why the corpus certificate does not cover a run: its task is in the splits, its task is in what
#: the judge was trained on, its agent is not in CAL, or its batch is not like CAL
NOT_COVERED: Final = ("known_task", "trained_task", "new_agent", "shifted")
#: reasons of runs that were provisional: in the certified set, labelled by its draw, and the rest
CLOSED: Final = ("batch_certificate", "batch_draw", "batch_not_certified")

DECISION_COLUMNS: Final = (
    "corpus",
    "batch",
    "trajectory_id",
    "task_id",
    "agent",
    "attempt",
    "judge",
    "score",
    "decision",  # reject, release, human or, until the batch is certified or not, provisional
    # a reason of certificates.sides.decide; one of NOT_COVERED; changed_run; one of CLOSED; or
    # the code of the refusal
    "reason",
    "asked",  # one of ASKED
    "reject_threshold",
    "release_threshold",
    "certificate_sha256",
    "adapter_sha256",
    "source_file",
    "source_sha256",
)


@remembered
def first_decisions_of(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return the decisions of a batch as they were made, provisional ones included."""
    return corpus.store.objects.get_table(decisions_sha256(corpus, batch))


def decision_of(corpus: Corpus, batch: str, trajectory_id: str) -> Mapping[str, Any]:
    """Return the current decision of one run, without reading those of the others."""
    import pyarrow.parquet as pq

    with corpus.store.objects.as_file(decisions_sha256(corpus, batch)) as path:
        filters = [("trajectory_id", "==", trajectory_id)]
        rows = pq.read_table(path, partitioning=None, filters=filters).to_pandas()
    found: Mapping[str, Any] = _standing(corpus, batch, rows).iloc[0].to_dict()
    return found


@remembered
def decisions_of(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return the current decisions of a batch, with `DECISION_COLUMNS`."""
    return _standing(corpus, batch, first_decisions_of(corpus, batch))


def _standing(corpus: Corpus, batch: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the decisions of a batch, with provisional ones replaced by those of its closing."""
    waits = (rows["decision"] == PROVISIONAL).to_numpy()
    draw = draw_of(corpus, batch) if waits.any() else None
    if draw is None:
        return rows
    closing = closing_of(corpus, draw)
    if closing is not None:
        closed = corpus.store.objects.get_table(closing.content.objects["closed"])
        closed = closed.set_index("trajectory_id")
        drawn = rows["trajectory_id"].isin(closed.index).to_numpy()
        found = closed.loc[rows.loc[waits & drawn, "trajectory_id"]]
        for name in ("decision", "reason", "asked"):
            rows.loc[waits & drawn, name] = found[name].to_numpy()
    else:
        try:
            drawn = rows["trajectory_id"].isin(drawn_runs(corpus, draw) if draw else []).to_numpy()
        except IntegrityError:
            # who opens the draw gets the sentence; until then its runs wait
            return rows
    # reviewers got what no threshold of the draw decides
    rows.loc[waits & ~drawn, "decision"] = "human"
    rows.loc[waits & ~drawn & (rows["asked"] == "").to_numpy(), "asked"] = "undecided"
    return rows


@remembered
def drawn_runs(corpus: Corpus, draw: str) -> list[str]:
    """Return the runs that a draw may decide."""
    drawn = corpus.last(DrawnBatch, draw)
    assert drawn is not None
    order: list[str] = corpus.store.objects.get_json(drawn.content.objects["audit"])["order"]
    return order


def provisional_rows(corpus: Corpus, batches: Iterable[str]) -> pd.DataFrame:
    """Return the rows of batches that were provisional when these were decided."""
    import pandas as pd

    parts = [first_decisions_of(corpus, name) for name in batches]
    rows = pd.concat(parts, ignore_index=True)
    return rows[rows["decision"] == PROVISIONAL]


@remembered
def load_decisions(corpus: Corpus) -> pd.DataFrame:
    """Return the decisions of all batches, the oldest first."""
    import pandas as pd
    import pyarrow as pa

    objects, names = corpus.store.objects, batch_names(corpus)
    if not names:
        return no_decisions()
    tables = [objects.get_arrow(decisions_sha256(corpus, name)) for name in names]
    # a year has many small tables, which are converted at once; a column of a refused batch may be
    # empty, and has no type then
    rows = pa.concat_tables(tables, promote_options="default").to_pandas()
    waits, ends = (rows["decision"] == PROVISIONAL).to_numpy(), np.cumsum([*map(len, tables)])
    parts = [
        _standing(corpus, name, rows.iloc[start:end].copy())
        if waits[start:end].any()
        else rows.iloc[start:end]
        for name, start, end in zip(names, [0, *ends], ends, strict=False)
    ]
    return pd.concat(parts, ignore_index=True)


def no_decisions() -> pd.DataFrame:
    """Return a table of decisions without rows."""
    import pandas as pd

    return pd.DataFrame(columns=list(DECISION_COLUMNS), dtype=object)
