"""The contract of every judge: texts in, log-probabilities of success and failure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.errors import StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes

if TYPE_CHECKING:
    import pandas as pd

# of a score table: copied from the run, and made by the judge, as `Scores` names them
RUN_COLUMNS = ("corpus", "task_id", "trajectory_id", "agent", "attempt")
JUDGED_COLUMNS = ("score", "log_p_success", "log_p_fail")
SCORE_COLUMNS = (*RUN_COLUMNS, *JUDGED_COLUMNS, "outcome")


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a judge for n texts."""

    # natural logarithms, at most 0; NaN in both where the judge gave no verdict
    log_p_success: NDArray[np.float64]
    log_p_fail: NDArray[np.float64]

    @property
    def score(self) -> NDArray[np.float64]:
        """Log-odds of success, the score of score tables; NaN = unscored."""
        return self.log_p_success - self.log_p_fail


@dataclass(frozen=True)
class JudgeProvenance:
    """Everything that must be equal for two scores to be comparable."""

    judge: str
    # of what was trained
    adapter_sha256: str
    # of the renderer whose texts it was trained on and reads
    renderer_sha256: str
    # what computes the scores, with its version
    engine: str
    dtype: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Hash of all fields."""
        return sha256_bytes(canonical_json(asdict(self)))


#: what the scores of a server cost: the document of an `EndpointReport`
Bill = dict[str, Any]


class _Named(Protocol):
    """The interface that all judges share."""

    @property
    def name(self) -> str:
        """Short name, unique among the judges of a project."""

    def provenance(self) -> JudgeProvenance:
        """Return the facts that the scores depend on."""


@runtime_checkable
class TextJudge(_Named, Protocol):
    """A judge that reads only a rendered trajectory."""

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories; the score of a text does not depend on the others."""


@runtime_checkable
class RunJudge(_Named, Protocol):
    """A judge that reads the steps of a trajectory, and may read its text too."""

    def score_runs(self, runs: pd.DataFrame, texts: Sequence[str]) -> Scores:
        """Judge trajectories, with the text of each; no score depends on the other runs."""


class KnowingJudge(_Named, Protocol):
    """A judge of features that are computed once for all judges of a kind."""

    def knows(self, features: Any) -> bool:
        """Whether the features contain everything that the judge reads of a run."""

    def decided(self, features: Any) -> Scores:
        """Judge runs by their features, which must be known."""


Judge = TextJudge | RunJudge


def scores_from_log_odds(log_odds: NDArray[np.float64]) -> Scores:
    """Turn log-odds of success into log-probabilities, without overflow; NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        return Scores(-np.logaddexp(0.0, -log_odds), -np.logaddexp(0.0, log_odds))


def score_table(
    judge: Judge, frame: pd.DataFrame, renderer: Renderer, *, features: Any = None
) -> pd.DataFrame:
    """Score trajectories: columns `SCORE_COLUMNS`, rows in the order of the frame."""
    # `features` are what the judge reads of the rows, where that is known
    expected = judge.provenance().renderer_sha256
    if expected != renderer.sha256:
        raise StaleCertificateError(
            f"judge {judge} reads the texts of renderer {expected[:12] or '(none)'}, not of "
            f"{renderer.sha256[:12]}; "
            "render with its own settings or train it again."
        )
    if features is None:
        texts = [item.text for item in render_frame(frame, renderer)]
        scores = (
            judge.score_runs(frame, texts) if isinstance(judge, RunJudge) else judge.score(texts)
        )
    else:
        scores = cast("KnowingJudge", judge).decided(features)
    table = frame[[name for name in SCORE_COLUMNS if name in frame.columns]].assign(
        **{name: getattr(scores, name) for name in JUDGED_COLUMNS}
    )
    return table[list(SCORE_COLUMNS)].reset_index(drop=True)


def judge_auroc(table: pd.DataFrame) -> float | None:
    """AUROC of the scored, labelled rows of a score table; None if they have one outcome."""
    labelled = table[table["outcome"].notna()]
    area = auroc(
        labelled["score"].to_numpy(dtype=np.float64), labelled["outcome"].to_numpy(dtype=np.float64)
    )
    return area if np.isfinite(area) else None
