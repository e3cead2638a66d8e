"""Scores of an Inspect AI log as a table, and what was decided of its samples written back."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from certify_assets._version import __version__
from certify_assets.corpora.formats import FORMATS
from certify_assets.corpora.formats.files import FileSet, SourceFile, Tally
from certify_assets.corpora.formats.inspect import LETTERS, inspect_log, members, naming, problem_of
from certify_assets.errors import InputError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

#: the score that carries a verdict; it is that of the scorer certify/certified
SCORE: Final = "certified"
_PASSED: Final = {"release": "C", "reject": "I"}


class SampleVerdict(NamedTuple):
    """What was decided of one sample, and why."""

    decision: str
    reason: str
    score: float | None


class EditCounts(NamedTuple):
    """Samples whose verdict was written, and those that had it already."""

    written: int
    unchanged: int


def is_log(path: Path) -> bool:
    """Whether a file is a log of Inspect AI."""
    return path.suffix.lower() == ".eval" or (
        path.suffix.lower() == ".json" and path.is_file() and FORMATS["inspect"].fits(_file(path))
    )


def _file(path: Path) -> SourceFile:
    (file,) = FileSet([path], (".eval", ".json"), Tally())
    return file


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    """Read a log with the library; what it says is a sentence."""
    if path.suffix.lower() == ".eval":
        # what an archive states is checked before it is unpacked
        members(_file(path))
    try:
        return read(path)
    except Exception as error:
        raise InputError(f"{path} cannot be used: {problem_of(error)}. Fetch it again.") from None


def read_log(path: Path) -> pd.DataFrame:
    """Return the scores of a log as one row a sample and epoch.

    Returns
    -------
    DataFrame
        Columns trajectory_id (the sample's uuid), task_id, agent, and every score by its name;
        ``NAME.KEY`` where its value is an object. C, P, I and N are 1, 0.5, 0 and 0. Samples that
        ended with an error are left out.

    Raises
    ------
    InputError
        If the log cannot be read, or inspect-ai is missing.
    """
    import pandas as pd

    library = inspect_log()
    log = _read(path, partial(library.read_eval_log, header_only=True))
    samples = _read(path, library.read_eval_log_sample_summaries)
    names = naming(log.eval, path.stem)
    rows = [
        {
            "trajectory_id": names.run(sample),
            "task_id": f"{names.task}/{sample.id}",
            "agent": names.agent,
            **cells(sample.scores or {}),
        }
        for sample in samples
        if not sample.error
    ]
    if not rows:
        raise InputError(f"{path} has no finished sample. Evaluate it first.")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pd.DataFrame(rows, columns=columns, dtype=object)


def cells(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a sample's scores by name, and by ``NAME.KEY`` those of objects."""
    found = {}
    for name, score in scores.items():
        value = score.value
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, part in parts:
            found[f"{name}.{key}" if key else name] = _cell(part)
    return found


def _cell(value: Any) -> float | str | None:
    if isinstance(value, bool | int | float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, str):
        return LETTERS.get(value.lower(), value)
    return None


def verdict_fields(verdict: SampleVerdict, certificates: Sequence[Certificate]) -> dict[str, Any]:
    """Return what a score of Inspect says of a verdict: value, explanation, reason, metadata.

    The value has the keys ``certified`` (C, I, or NaN, which is Inspect's sign of unscored) and
    ``decided`` (1 or 0). It is an object because Inspect keeps samples whose whole value is NaN
    from metrics, and the share of decided samples needs them.
    """
    decided = verdict.decision in _PASSED
    by = [item for item in certificates if item.side == verdict.decision]
    about: dict[str, Any] = {
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
        The log, and where it goes; they may be the same.
    verdicts : mapping of str to SampleVerdict
        By trajectory_id, as `read_log` has it.
    certificates : sequence of Certificate
        That decided, at most one a side.
    """
    library = inspect_log()
    from inspect_ai.scorer import ScoreEdit

    log = _read(path, library.read_eval_log)
    names, hashes = naming(log.eval, path.stem), [item.sha256 for item in certificates]
    provenance = library.ProvenanceData(
        author=f"certify_assets {__version__}",
        reason="decided by a certificate",
        metadata={"certificate_sha256": hashes},
    )
    written = unchanged = 0
    found: list[SampleVerdict] = []
    for sample in log.samples or []:
        verdict = verdicts.get(names.run(sample))
        if verdict is None:
            continue
        found.append(verdict)
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
    _summarise(log, found, certificates)
    with tempfile.TemporaryDirectory(prefix="certify-inspect-") as folder:
        copy = Path(folder) / f"log{path.suffix}"
        library.write_eval_log(log, copy)
        write_atomic(out, copy.read_bytes())
    return EditCounts(written, unchanged)


def _summarise(
    log: Any, verdicts: Sequence[SampleVerdict], certificates: Sequence[Certificate]
) -> None:
    """Put the metrics of the verdicts in the header, as the scorer would."""
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore, EvalSpec
    from pydantic import TypeAdapter

    runs, decisions = len(verdicts), [one.decision for one in verdicts if one.decision in _PASSED]
    alphas = [item.alpha for item in certificates if item.side in decisions]
    figures = {
        "decided_share": len(decisions) / max(1, runs),
        "certified_error_bound": max(alphas, default=math.nan),
    }
    metrics = {
        name: EvalMetric(name=f"certify/{name}", value=value) for name, value in figures.items()
    }
    own = EvalScore(
        name=SCORE, scorer=SCORE, scored_samples=runs, unscored_samples=0, metrics=metrics
    )
    log.results = log.results or EvalResults(total_samples=runs, completed_samples=runs)
    log.results.scores = [one for one in log.results.scores if one.scorer != SCORE] + [own]
    others = [one for one in log.eval.scorers or [] if one.name != SCORE]
    named = [{"name": metric.name} for metric in metrics.values()]
    # Inspect computes its metrics again by what the header names
    scorers = TypeAdapter(EvalSpec.model_fields["scorers"].annotation)
    log.eval.scorers = others + scorers.validate_python([{"name": SCORE, "metrics": named}])
