"""The combined judge: the mean of the standardised scores of a lexical and a structure judge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.files import canonical_json
from certify_assets.judges.base import JudgeProvenance, Reason, Scores, scores_from_log_odds
from certify_assets.judges.features import structure_features
from certify_assets.judges.lexical import Counted, LexicalJudge, LexicalSettings
from certify_assets.judges.model_files import FileJudge, Scale, task_folds, training_labels
from certify_assets.judges.structure import StructureJudge, StructureSettings, largest

if TYPE_CHECKING:
    import pandas as pd

_SCHEMA = "certify_assets/combined_judge/1"
_DOCUMENT = "combined.json"


@dataclass(frozen=True, eq=False)
class Read:
    """What both judges read of some runs."""

    words: Counted
    steps: NDArray[np.float32]

    def __getitem__(self, rows: NDArray[Any]) -> Read:
        """Return what they read of some of the runs."""
        return Read(self.words[rows], self.steps[rows])


@dataclass(frozen=True, eq=False)
class CombinedJudge(FileJudge):
    """Two trained judges of the same runs, and the scale of each."""

    FILES = (*LexicalJudge.FILES, *StructureJudge.FILES, _DOCUMENT)
    ENGINE = f"certify_assets/combined/1+{StructureJudge.ENGINE}"

    lexical: LexicalJudge
    structure: StructureJudge
    # of the scores of training runs by weights and trees that had no part of their tasks
    lexical_scale: Scale
    structure_scale: Scale

    @property
    def name(self) -> str:
        """Name of the judge: combined."""
        return "combined"

    @classmethod
    def train(
        cls,
        runs: pd.DataFrame,
        texts: Sequence[str],
        outcomes: ArrayLike,
        *,
        seed: int = 42,
        renderer_sha256: str = "",
    ) -> CombinedJudge:
        """Train both judges on labelled runs and their texts, and measure their scales there."""
        labels, tasks = training_labels(outcomes), runs["task_id"].to_numpy(object)
        folds = task_folds(tasks, labels, seed)
        settings = LexicalSettings(seed=seed)
        counted, features = Counted.of(texts, settings), structure_features(runs)
        words, of_words = LexicalJudge.crossfit(counted, labels, folds, settings, renderer_sha256)
        steps, of_steps = StructureJudge.crossfit(
            features, labels, folds, StructureSettings(seed=seed), renderer_sha256
        )
        return cls(
            words,
            steps,
            Scale.held_out(of_words, words.decided(counted).score),
            Scale.held_out(of_steps, steps.decided(features).score),
        )

    def features(self, runs: pd.DataFrame, texts: Sequence[str]) -> Read:
        """Count the words of texts, and compute the features of runs."""
        return Read(self.lexical.features(runs, texts), self.structure.features(runs, texts))

    def refitted(self, features: Read, labels: NDArray[np.int64]) -> CombinedJudge:
        """Train both judges again; their scales stay, which are of all training runs."""
        return replace(
            self,
            lexical=self.lexical.refitted(features.words, labels),
            structure=self.structure.refitted(features.steps, labels),
        )

    def decided(self, features: Read) -> Scores:
        """Judge runs whose features are computed."""
        words = self.lexical_scale(self.lexical.decided(features.words).score)
        steps = self.structure_scale(self.structure.decided(features.steps).score)
        return scores_from_log_odds((words + steps) / 2)

    def score_runs(self, runs: pd.DataFrame, texts: Sequence[str]) -> Scores:
        """Judge trajectories by their texts and their steps."""
        words = self.lexical_scale(self.lexical.score(texts).score)
        steps = self.structure_scale(self.structure.score_runs(runs).score)
        return scores_from_log_odds((words + steps) / 2)

    def reasons(self, runs: pd.DataFrame, texts: Sequence[str]) -> list[list[Reason]]:
        """Return what each word and each feature adds to the score of each run."""
        parts = (
            (self.lexical.reasons(texts), self.lexical_scale),
            (self.structure.reasons(runs), self.structure_scale),
        )
        scaled = [
            [[(name, value / scale.deviation / 2) for name, value in run] for run in found]
            for found, scale in parts
        ]
        return [largest(one + other) for one, other in zip(*scaled, strict=True)]

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return self.made(
            self.lexical.renderer_sha256,
            {
                "lexical": asdict(self.lexical.settings),
                "structure": asdict(self.structure.settings),
                "scales": [asdict(self.lexical_scale), asdict(self.structure_scale)],
            },
        )

    def files(self) -> dict[str, bytes]:
        """Return the files of both judges, and the document that joins them."""
        parts = {**self.lexical.files(), **self.structure.files()}
        document = {
            "schema": _SCHEMA,
            "lexical_scale": asdict(self.lexical_scale),
            "structure_scale": asdict(self.structure_scale),
        }
        return {**parts, _DOCUMENT: canonical_json(document)}

    @classmethod
    def parsed(cls, folder: Path, files: Mapping[str, bytes]) -> Self:
        """Read both judges, and the document that joins them."""
        document = json.loads(files[_DOCUMENT])
        words = LexicalJudge.parsed(folder, files)
        steps = StructureJudge.parsed(folder, files)
        scales = (Scale(**document[f"{name}_scale"]) for name in ("lexical", "structure"))
        return cls(words, steps, *scales)
