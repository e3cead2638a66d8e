"""The judge from the structure of a run: gradient-boosted trees on features of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.errors import InputError, require_positive, require_whole
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import JudgeProvenance, Reason, Scores, scores_from_log_odds
from certify_assets.judges.crossfit import Fold, task_folds
from certify_assets.judges.features import FEATURES, VERSION, structure_features
from certify_assets.judges.model_files import (
    FileJudge,
    damaged,
    read_arrays,
    read_document,
    training_labels,
)
from certify_assets.judges.trees import MOST_DEPTH, BoostedTrees

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.ensemble import GradientBoostingClassifier

_SCHEMA = "certify_assets/structure_judge/1"
_DOCUMENT, _TREES = "structure.json", "trees.safetensors"
_REPEATS = 5
_SHUFFLING = 0x5F0E


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

    def __post_init__(self) -> None:
        words = "the judge's {name}"
        require_positive(self, words, "learning_rate", "runs_share", "features_share")
        require_whole(self, words, trees=1, depth=1, fewest_runs=1, seed=0)
        for name in ("runs_share", "features_share"):
            if getattr(self, name) > 1:
                raise InputError(f"the judge's {name} is above 1; give a share.")
        if self.depth > MOST_DEPTH:
            raise InputError(f"the judge's depth is {self.depth}; give at most {MOST_DEPTH}.")


@dataclass(frozen=True, eq=False)
class StructureJudge(FileJudge):
    """A trained structure judge; its score is the log-odds of success that the trees sum to."""

    FILES = (_TREES, _DOCUMENT)
    ENGINE = f"certify_assets/structure/{VERSION}"

    settings: StructureSettings
    trees: BoostedTrees
    # by feature, the AUROC that trees of the other training tasks lose when the feature is shuffled
    # among the runs; empty where it was not measured, or nothing could be
    importance: Mapping[str, float]
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
        settings: StructureSettings | None = None,
        explained: bool = True,
    ) -> StructureJudge:
        """Train on labelled runs; `explained` measures what each feature is worth."""
        settings = settings or StructureSettings(seed=seed)
        labels, tasks = training_labels(len(runs), outcomes), runs["task_id"].to_numpy(object)
        folds = task_folds(tasks, labels, settings.seed) if explained else ()
        return cls.crossfit(runs, labels, folds, settings, renderer_sha256, explained=explained)[0]

    @classmethod
    def crossfit(
        cls,
        runs: pd.DataFrame,
        outcomes: ArrayLike,
        folds: Sequence[Fold],
        settings: StructureSettings,
        renderer_sha256: str,
        *,
        explained: bool,
    ) -> tuple[StructureJudge, list[NDArray[np.float64]]]:
        """Train, and score the rows that each fold holds out by trees fitted to its others."""
        labels, features = training_labels(len(runs), outcomes), structure_features(runs)
        held_out = [
            _HeldOut(
                _fitted(features[fold.known], labels[fold.known], settings),
                features[fold.held],
                labels[fold.held],
            )
            for fold in folds
        ]
        judge = cls(
            settings=settings,
            trees=_fitted(features, labels, settings),
            importance=_importance(held_out, settings.seed) if explained else {},
            renderer_sha256=renderer_sha256,
            training={"rows": len(runs), "successes": int(labels.sum())},
        )
        return judge, [part.scores for part in held_out]

    def score_runs(self, runs: pd.DataFrame, texts: Sequence[str] = ()) -> Scores:
        """Judge trajectories by their steps; the texts are not read."""
        return scores_from_log_odds(self.trees.decision(structure_features(runs)))

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
            "features": list(FEATURES),
            "features_version": VERSION,
            "importance": dict(self.importance),
            "renderer_sha256": self.renderer_sha256,
            "training": dict(self.training),
            "trees_sha256": sha256_bytes(trees),
        }
        return {_TREES: trees, _DOCUMENT: canonical_json(document)}

    @classmethod
    def parsed(cls, folder: Path, files: Mapping[str, bytes]) -> Self:
        """Read the judge from its files."""
        path, trees = folder / _DOCUMENT, folder / _TREES
        kinds = {
            "settings": dict,
            "features": list,
            "features_version": int,
            "importance": dict,
            "renderer_sha256": str,
            "training": dict,
            "trees_sha256": str,
        }
        document = read_document(path, files[_DOCUMENT], "a structure judge", _SCHEMA, kinds)
        if document["settings"].keys() != asdict(StructureSettings()).keys():
            raise damaged(path, "has other settings than a structure judge")
        if (document["features"], document["features_version"]) != (list(FEATURES), VERSION):
            raise damaged(path, "was trained on other features than this version computes")
        importance = document["importance"]
        if set(importance) - set(FEATURES) or not all(
            isinstance(value, int | float) and np.isfinite(value) for value in importance.values()
        ):
            raise damaged(path, "has an importance that is of no feature or no number")
        if document["trees_sha256"] != sha256_bytes(files[_TREES]):
            raise damaged(trees, f"is not the file that {_DOCUMENT} names")
        try:
            found = BoostedTrees.from_arrays(read_arrays(trees, files[_TREES]), len(FEATURES))
        except InputError as error:
            raise damaged(trees, str(error)) from None
        return cls(
            settings=StructureSettings(**document["settings"]),
            trees=found,
            importance=importance,
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
    return BoostedTrees.fitted(booster(settings).fit(features, labels))


def booster(settings: StructureSettings) -> GradientBoostingClassifier:
    """Return the classifier of these settings, not fitted."""
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(
        n_estimators=settings.trees,
        max_depth=settings.depth,
        learning_rate=settings.learning_rate,
        subsample=settings.runs_share,
        max_features=settings.features_share,
        min_samples_leaf=settings.fewest_runs,
        random_state=settings.seed,
    )


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Runs of some training tasks, and trees that were fitted to those of the others."""

    trees: BoostedTrees
    features: NDArray[np.float32]
    labels: NDArray[np.int64]

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """Scores of the runs."""
        return self.trees.decision(self.features)

    def lost(self, column: int, draw: np.random.Generator) -> float:
        """Return the AUROC that shuffling a feature costs, in the mean over repetitions."""
        shuffled = np.repeat(self.features[None], _REPEATS, axis=0)
        for again in shuffled:
            again[:, column] = draw.permutation(again[:, column])
        scores = self.trees.decision(shuffled.reshape(-1, self.features.shape[1]))
        areas = [auroc(row, self.labels) for row in scores.reshape(_REPEATS, -1)]
        return auroc(self.scores, self.labels) - float(np.mean(areas))


def _importance(folds: Sequence[_HeldOut], seed: int) -> dict[str, float]:
    """Measure permutation importance on training tasks that the trees have not seen."""
    # CAL and TEST have no part in it: what is read of their labels must not shape what is certified
    usable = [fold for fold in folds if np.unique(fold.labels).size == 2]
    if not usable:
        return {}
    found, weights = {}, [fold.labels.size for fold in usable]
    for column, name in enumerate(FEATURES):
        # the draws of a feature do not depend on the others that there are
        draw = np.random.default_rng([_SHUFFLING, seed, column])
        lost = [fold.lost(column, draw) for fold in usable]
        found[name] = float(np.average(lost, weights=weights))
    return found
