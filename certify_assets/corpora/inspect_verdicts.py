"""Decisions on the samples of an Inspect AI log, written as scores."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from certify_assets._version import __version__
from certify_assets.corpora.formats.inspect import (
    LETTERS,
    inspect_log,
    judgements_of,
    naming,
    problem_of,
)
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.judged import plain
from certify_assets.errors import InputError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

#: the score that carries a verdict; it is that of the scorer certify/certified
SCORE: Final = "certified"
METRICS: Final = ("decided_share", "certified_error_bound")
_PASSED: Final = {"release": "C", "reject": "I"}


class SampleVerdict(NamedTuple):
    """The decision on one sample, and its reason."""

    decision: str
    reason: str
    score: float | None


class EditCounts(NamedTuple):
    """Numbers of samples whose verdict was written, and of those that had it already."""

    written: int
    unchanged: int


def cells(scores: Mapping[str, Any]) -> Record:
    """Return the scores of a sample as in the table of its log."""
    values = {name: {"value": score.value} for name, score in scores.items()}
    return {one.name: plain(one.name, one.value, LETTERS) for one in judgements_of(values)}


def verdict_fields(verdict: SampleVerdict, certificates: Sequence[Certificate]) -> Record:
    """Return the fields of an Inspect score for a verdict: value, explanation, reason, metadata.

    The value has the keys ``certified`` (C, I, or NaN, which is Inspect's sign of unscored) and
    ``decided`` (1 or 0). It is an object because Inspect leaves samples with the value NaN out of
    metrics, and the share of decided samples needs them.
    """
    decided = verdict.decision in _PASSED
    by = [item for item in certificates if item.side == verdict.decision]
    about: Record = {
        "decision": verdict.decision,
        "reason": verdict.reason,
        "certificate_sha256": ";".join(item.sha256 for item in certificates),
    }
    if by:
        about |= {"threshold": by[0].threshold, "alpha": by[0].alpha, "delta": by[0].delta}
    said = f"score {verdict.score:.6g}" if verdict.score is not None else "no score"
    end = f"At most {100 * by[0].alpha:g} % of such decisions may be wrong." if by else "Review it."
    return {
        "value": {SCORE: _PASSED.get(verdict.decision, math.nan), "decided": float(decided)},
        "explanation": f"{verdict.decision} ({verdict.reason}): {said}. {end}",
        "reason": None if decided else verdict.reason,
        "metadata": about,
    }


def write_verdicts(
    path: Path,
    out: Path,
    verdicts: Mapping[str, SampleVerdict],
    certificates: Sequence[Certificate],
) -> EditCounts:
    """Write verdicts into a log as edits of the score ``certified``, with their provenance.

    A verdict that the log holds already is not edited again. The other scores and their metrics
    stay as they are.

    Parameters
    ----------
    path, out : Path
        The log, and the file to write; they may be the same.
    verdicts : mapping of str to SampleVerdict
        By trajectory_id, as in the table of the log.
    certificates : sequence of Certificate
        The deciding certificates, at most one for each side.
    """
    library = inspect_log()
    from inspect_ai.scorer import ScoreEdit

    try:
        log = library.read_eval_log(path)
    except Exception as error:
        raise InputError(f"{path} cannot be used: {problem_of(error)}. Fetch it again.") from None
    names, hashes = naming(log.eval, path.stem), [item.sha256 for item in certificates]
    provenance = library.ProvenanceData(
        author=f"certify_assets {__version__}",
        reason="decided by a certificate",
        metadata={"certificate_sha256": hashes},
    )
    written = unchanged = 0
    for sample in log.samples or []:
        verdict = verdicts.get(names.run(sample.uuid, sample.id, sample.epoch))
        if verdict is None:
            continue
        fields = verdict_fields(verdict, certificates)
        before = (sample.scores or {}).get(SCORE)
        if before is not None and before.metadata == fields["metadata"]:
            unchanged += 1
            continue
        edit = ScoreEdit(**fields, provenance=provenance)
        library.edit_score(log, sample.id, SCORE, edit, recompute_metrics=False, epoch=sample.epoch)
        written += 1
    if not written and out == path:
        return EditCounts(written, unchanged)
    _summarise(log, library)
    with tempfile.TemporaryDirectory(prefix="certify-inspect-") as folder:
        copy = Path(folder) / f"log{path.suffix}"
        library.write_eval_log(log, copy)
        write_atomic(out, copy.read_bytes())
    return EditCounts(written, unchanged)


def _summarise(log: Any, library: Any) -> None:
    """Put the metrics of the verdicts in the header; leave those of other scores unchanged."""
    from inspect_ai.log import EvalResults, EvalSpec
    from pydantic import TypeAdapter

    others = [one for one in log.eval.scorers or [] if one.name != SCORE]
    before = log.results
    figures = [one for one in (before.scores if before else []) if one.scorer != SCORE]
    kind: Any = EvalSpec.model_fields["scorers"].annotation
    metrics = [{"name": f"certify/{name}"} for name in METRICS]
    log.eval.scorers = TypeAdapter(kind).validate_python([{"name": SCORE, "metrics": metrics}])
    log.results = before or EvalResults()
    library.recompute_metrics(log)
    log.eval.scorers = [*others, *log.eval.scorers]
    # Inspect computes the metrics of all scores again, and makes these the headline of the log
    own = [one for one in log.results.scores if one.name == SCORE]
    log.results = before or log.results
    log.results.scores = [*figures, *own]
