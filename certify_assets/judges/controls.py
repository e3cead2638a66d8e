"""Judges that do not read the run: what length alone and agent alone would have said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import JudgeProvenance, Scores, scores_from_log_odds
from certify_assets.judges.reading import WHOLE

# a text that was cut to a budget has lost the very length that this control is about
UNCUT = WHOLE.renderer


@dataclass(frozen=True, slots=True)
class LengthJudge:
    """Logistic regression on the logarithm of a text's length."""

    # log-odds of success are  intercept + slope · ln(1 + characters)
    slope: float
    intercept: float

    @property
    def name(self) -> str:
        """Name of the control: length_only."""
        return "length_only"

    @classmethod
    def train(cls, texts: Sequence[str], outcomes: ArrayLike) -> LengthJudge:
        """Fit on texts rendered by `UNCUT`."""
        from sklearn.linear_model import LogisticRegression

        labels = _labels(len(texts), outcomes)
        model = LogisticRegression(C=100.0).fit(_log_lengths(texts)[:, None], labels)
        return cls(float(model.coef_[0, 0]), float(model.intercept_[0]))

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge texts by their lengths."""
        return scores_from_log_odds(self.intercept + self.slope * _log_lengths(texts))

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return _provenance(
            self.name, {"slope": self.slope, "intercept": self.intercept}, UNCUT.sha256
        )


@dataclass(frozen=True)
class AgentJudge:
    """The success rate of the agent on the training tasks."""

    # by agent, each with half a success and half a failure added
    log_odds: Mapping[str, float]
    # of agents that were not there
    default: float

    @property
    def name(self) -> str:
        """Name of the control: agent_only."""
        return "agent_only"

    @classmethod
    def train(cls, agents: Sequence[str], outcomes: ArrayLike) -> AgentJudge:
        """Fit on the agents of training runs."""
        labels = _labels(len(agents), outcomes)
        names = np.asarray(agents, dtype=object)
        rates = {agent: _log_odds(labels[names == agent]) for agent in sorted(set(agents))}
        return cls(rates, _log_odds(labels))

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge runs by their agents: the "texts" of this judge are names of agents."""
        return scores_from_log_odds(
            np.array([self.log_odds.get(agent, self.default) for agent in texts], dtype=np.float64)
        )

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return _provenance(
            self.name, {"log_odds": dict(self.log_odds), "default": self.default}, ""
        )


def _labels(rows: int, outcomes: ArrayLike) -> NDArray[np.float64]:
    labels = np.asarray(outcomes, dtype=np.float64)
    if (
        labels.shape != (rows,)
        or not np.isin(labels, (0.0, 1.0)).all()
        or not 0 < labels.sum() < rows
    ):
        raise InputError(
            f"{rows} training runs need as many outcomes, 0 and 1 and some of each; train on "
            "labelled runs of both."
        )
    return labels


def _log_lengths(texts: Sequence[str]) -> NDArray[np.float64]:
    return np.log1p(np.array([len(text) for text in texts], dtype=np.float64))


def _log_odds(labels: NDArray[np.float64]) -> float:
    successes = float(labels.sum())
    return math.log((successes + 0.5) / (labels.size - successes + 0.5))


def _provenance(
    name: str, parameters: Mapping[str, object], renderer_sha256: str
) -> JudgeProvenance:
    return JudgeProvenance(
        name,
        sha256_bytes(canonical_json(dict(parameters))),
        renderer_sha256,
        "certify_assets/control/1",
        "float64",
    )
