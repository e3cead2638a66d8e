"""The contract of every judge.

Rendered texts in, log-probabilities of success and failure out, with its provenance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.rendering import Rendered, Renderer, render_frame
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes

if TYPE_CHECKING:
    import pandas as pd

SCORE_COLUMNS: tuple[str, ...] = (
    "corpus",
    "task_id",
    "trajectory_id",
    "agent",
    "attempt",
    "score",
    "log_p_success",
    "log_p_fail",
    "outcome",
)


@dataclass(frozen=True, eq=False)
class Scores:
    """What a judge says about n texts.

    Parameters
    ----------
    log_p_success, log_p_fail : float64 arrays, shape (n,)
        Natural logarithms of the probabilities of the two verdicts, at most 0; NaN in both where
        the judge gave no verdict.

    Raises
    ------
    InputError
        If the shapes differ or a value is positive.
    """

    log_p_success: NDArray[np.float64]
    log_p_fail: NDArray[np.float64]

    def __post_init__(self) -> None:
        success, fail = self.log_p_success, self.log_p_fail
        if success.ndim != 1 or success.shape != fail.shape:
            raise InputError(
                f"the judge gave {success.shape} and {fail.shape} log-probabilities; it owes one "
                "of each a text."
            )
        if (success > 0).any() or (fail > 0).any() or (np.isnan(success) != np.isnan(fail)).any():
            raise InputError(
                "the judge gave a positive log-probability or only one of two; it owes both, or "
                "NaN for both."
            )

    @property
    def score(self) -> NDArray[np.float64]:
        """Log-odds of success, the score of score tables; NaN = unscored."""
        return self.log_p_success - self.log_p_fail


@dataclass(frozen=True)
class JudgeProvenance:
    """Everything that must be the same for two scores to be comparable.

    Parameters
    ----------
    judge : str
        Name.
    adapter_sha256 : str
        Hash of what was trained.
    renderer_sha256 : str
        Hash of the renderer whose texts it was trained on and reads.
    engine : str
        What computes the scores, with its version.
    dtype : str
        Type of the numbers.
    settings : mapping
        JSON values: the rest.
    """

    judge: str
    adapter_sha256: str
    renderer_sha256: str
    engine: str
    dtype: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the provenance as a JSON object."""
        return {
            "judge": self.judge,
            "adapter_sha256": self.adapter_sha256,
            "renderer_sha256": self.renderer_sha256,
            "engine": self.engine,
            "dtype": self.dtype,
            "settings": dict(self.settings),
        }

    @property
    def sha256(self) -> str:
        """Hash of all of it."""
        return sha256_bytes(canonical_json(self.to_dict()))


@runtime_checkable
class Judge(Protocol):
    """What every judge offers."""

    @property
    def name(self) -> str:
        """Short name, unique among the judges of a project."""

    def provenance(self) -> JudgeProvenance:
        """Say what the scores depend on."""

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories; the score of a text does not depend on the others."""


def scores_from_log_odds(log_odds: NDArray[np.float64]) -> Scores:
    """Turn log-odds of success into log-probabilities, without overflow; NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        return Scores(-np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds))


def score_table(
    judge: Judge,
    frame: pd.DataFrame,
    renderer: Renderer,
    *,
    rendered: Sequence[Rendered] | None = None,
) -> pd.DataFrame:
    """Score trajectories.

    Parameters
    ----------
    judge : Judge
        Whose provenance names this renderer.
    frame : pandas.DataFrame
        Trajectories.
    renderer : Renderer
        What turns them into texts.
    rendered : sequence of Rendered, optional
        Its renderings of the rows, to save rendering them again.

    Returns
    -------
    pandas.DataFrame
        Columns `SCORE_COLUMNS`, rows in the order of `frame`.

    Raises
    ------
    StaleCertificateError
        If the judge was trained on the texts of another renderer.
    """
    expected = judge.provenance().renderer_sha256
    if expected != renderer.sha256:
        raise StaleCertificateError(
            f"judge {judge} reads the texts of renderer {expected[:12] or '(none)'}, not of "
            f"{renderer.sha256[:12]}; "
            "render with its own settings or train it again."
        )
    texts = [
        item.text for item in (render_frame(frame, renderer) if rendered is None else rendered)
    ]
    scores = judge.score(texts)
    table = frame[[name for name in SCORE_COLUMNS if name in frame.columns]].assign(
        score=scores.score, log_p_success=scores.log_p_success, log_p_fail=scores.log_p_fail
    )
    return table[list(SCORE_COLUMNS)].reset_index(drop=True)


def judge_auroc(table: pd.DataFrame) -> float:
    """AUROC of the scored, labelled rows of a score table; NaN when they all have one outcome."""
    labelled = table[table["outcome"].notna()]
    return auroc(
        labelled["score"].to_numpy(dtype=np.float64), labelled["outcome"].to_numpy(dtype=np.float64)
    )
