"""The judge from the structure of a run: gradient-boosted trees on features of its steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.files import canonical_json
from certify_assets.judges.base import JudgeProvenance, Reason, Scores, scores_from_log_odds
from certify_assets.judges.features import FEATURES, VERSION, structure_features
from certify_assets.judges.model_files import FileJudge, Fold, damaged, training_labels
from certify_assets.judges.trees import BoostedTrees

if TYPE_CHECKING:
    import pandas as pd

_SCHEMA = "certify_assets/structure_judge/1"
_DOCUMENT, _TREES = "structure.json", "trees.safetensors"


@dataclass(frozen=True, slots=True)
class StructureSettings:
    """How the trees of a structure judge are trained."""

    trees: int = 120
    depth: int = 3
    learning_rate: float = 0.05
    # of the training runs and of the features, drawn for each tree and split
    runs_share: float = 0.7
    features_share: float = 0.4
    fewest_runs: int = 8
    seed: int = 42


@dataclass(frozen=True, eq=False)
class StructureJudge(FileJudge):
    """A trained structure judge; its score is the log-odds of success that the trees sum to."""

    FILES = (_TREES, _DOCUMENT)
    ENGINE = f"certify_assets/structure/{VERSION}"

    settings: StructureSettings
    trees: BoostedTrees
    renderer_sha256: str
    training: Mapping[str, int]

    @property
    def name(self) -> str:
        """Name of the judge: structure."""
        return "structure"

    @classmethod
    def train(
        cls,
        runs: pd.DataFrame,
        outcomes: ArrayLike,
        *,
        seed: int = 42,
        renderer_sha256: str = "",
    ) -> StructureJudge:
        """Train on labelled runs."""
        features, settings = structure_features(runs), StructureSettings(seed=seed)
        return cls.crossfit(features, outcomes, (), settings, renderer_sha256)[0]

    @classmethod
    def crossfit(
        cls,
        features: NDArray[np.float32],
        outcomes: ArrayLike,
        folds: Sequence[Fold],
        settings: StructureSettings,
        renderer_sha256: str,
    ) -> tuple[StructureJudge, list[NDArray[np.float64]]]:
        """Train, and score the rows that each fold holds out by trees fitted to its others."""
        labels = training_labels(outcomes)
        held_out = [
            _fitted(features[fold.known], labels[fold.known], settings).decision(
                features[fold.held]
            )
            for fold in folds
        ]
        judge = cls(
            settings=settings,
            trees=_fitted(features, labels, settings),
            renderer_sha256=renderer_sha256,
            training={"rows": len(features), "successes": int(labels.sum())},
        )
        return judge, held_out

    def features(self, runs: pd.DataFrame, texts: Sequence[str]) -> NDArray[np.float32]:
        """Compute the features of runs."""
        return structure_features(runs)

    def refitted(self, features: NDArray[np.float32], labels: NDArray[np.int64]) -> StructureJudge:
        """Train again."""
        return self.crossfit(features, labels, (), self.settings, self.renderer_sha256)[0]

    def decided(self, features: NDArray[np.float32]) -> Scores:
        """Judge runs whose features are computed."""
        return scores_from_log_odds(self.trees.decision(features))

    def score_runs(self, runs: pd.DataFrame, texts: Sequence[str] = ()) -> Scores:
        """Judge trajectories by their steps; the texts are not read."""
        return self.decided(structure_features(runs))

    def reasons(self, runs: pd.DataFrame, texts: Sequence[str] = ()) -> list[list[Reason]]:
        """Return what each feature adds to the score of each run, the largest first."""
        return [
            largest(zip(FEATURES, row.tolist(), strict=True))
            for row in self.trees.contributions(structure_features(runs))
        ]

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return self.made(self.renderer_sha256, asdict(self.settings))

    def files(self) -> dict[str, bytes]:
        """Return the files of the judge by name."""
        from safetensors.numpy import save

        trees = save(self.trees.arrays())
        document = {
            "schema": _SCHEMA,
            "settings": asdict(self.settings),
            "features_version": VERSION,
            "renderer_sha256": self.renderer_sha256,
            "training": dict(self.training),
        }
        return {_TREES: trees, _DOCUMENT: canonical_json(document)}

    @classmethod
    def parsed(cls, folder: Path, files: Mapping[str, bytes]) -> Self:
        """Read the judge from its files."""
        from safetensors.numpy import load

        document = json.loads(files[_DOCUMENT])
        if document["features_version"] != VERSION:
            raise damaged(
                folder / _DOCUMENT, "was trained on other features than this version computes"
            )
        return cls(
            settings=StructureSettings(**document["settings"]),
            trees=BoostedTrees.from_arrays(load(files[_TREES])),
            renderer_sha256=document["renderer_sha256"],
            training=document["training"],
        )


def largest(found: Iterable[tuple[str, float]]) -> list[Reason]:
    """Order what features add to a score by its size, without those that add nothing."""
    kept = [Reason(name, value) for name, value in found if value]
    return sorted(kept, key=lambda reason: (-abs(reason.contribution), reason.feature))


def _fitted(
    features: NDArray[np.float32], labels: NDArray[np.int64], settings: StructureSettings
) -> BoostedTrees:
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(
        n_estimators=settings.trees,
        max_depth=settings.depth,
        learning_rate=settings.learning_rate,
        subsample=settings.runs_share,
        max_features=settings.features_share,
        min_samples_leaf=settings.fewest_runs,
        random_state=settings.seed,
    )
    return BoostedTrees.fitted(model.fit(features, labels))
