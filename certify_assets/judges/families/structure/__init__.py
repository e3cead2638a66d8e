"""Judges that read the steps of a run: boosted trees, alone or with the words of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.corpora.splits import SPLITS
from certify_assets.documents import Document
from certify_assets.errors import IntegrityError
from certify_assets.judges.base import JudgeProvenance, Scores, scores_from_log_odds
from certify_assets.judges.configured import WordsEntry
from certify_assets.judges.families.lexical import (
    Counted,
    LexicalJudge,
    LexicalSettings,
    known_words,
    words_of,
)
from certify_assets.judges.families.structure.features import FEATURES as FEATURES
from certify_assets.judges.families.structure.features import VERSION, structure_features
from certify_assets.judges.families.structure.trees import BoostedTrees
from certify_assets.judges.family import FileFamily
from certify_assets.judges.model_files import (
    ArrayJudge,
    FileJudge,
    Fold,
    KnownRuns,
    training_labels,
)
from certify_assets.judges.reading import LEXICAL, WHOLE, JudgeInput
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import judge_family
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.corpus import Corpus

_FOLDS, _SALT = 3, 0x5F0D


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


class StructureDocument(Document):
    """The meaning of a structure judge's arrays."""

    TITLE = "structure judge"
    # judges on other features are of another schema
    SCHEMA = f"certify_assets/structure_judge/{VERSION}"
    REFUSAL = IntegrityError

    settings: StructureSettings
    renderer_sha256: str
    training: dict[str, int]


class StructureJudge(ArrayJudge):
    """A trained structure judge; its score is the log-odds of success that the trees sum to."""

    FILES = ("trees.safetensors", "structure.json")
    ENGINE = f"certify_assets/structure/{VERSION}"
    ABOUT = StructureDocument
    about: StructureDocument

    @property
    def name(self) -> str:
        """Name of the judge: structure."""
        return "structure"

    @property
    def trees(self) -> BoostedTrees:
        """The trees."""
        return BoostedTrees(**self.arrays)

    @classmethod
    def crossfit(
        cls,
        features: NDArray[np.float32],
        outcomes: ArrayLike,
        folds: Sequence[Fold],
        settings: StructureSettings,
        renderer_sha256: str,
    ) -> tuple[Self, list[NDArray[np.float64]]]:
        """Train, and score the rows that each fold holds out by trees fitted to its others."""
        labels = training_labels(outcomes)
        held_out = [
            _fitted(features[fold.known], labels[fold.known], settings).decision(
                features[fold.held]
            )
            for fold in folds
        ]
        about = StructureDocument(
            settings=settings,
            renderer_sha256=renderer_sha256,
            training={"rows": len(features), "successes": int(labels.sum())},
        )
        return cls(about, _fitted(features, labels, settings)._asdict()), held_out

    def knows(self, features: NDArray[np.float32]) -> bool:
        """Return True, as every structure judge reads the same features."""
        return True

    def refitted(self, features: NDArray[np.float32], labels: NDArray[np.int64]) -> Self:
        """Train again."""
        about = self.about
        return self.crossfit(features, labels, (), about.settings, about.renderer_sha256)[0]

    def decided(self, features: NDArray[np.float32]) -> Scores:
        """Judge runs whose features are computed."""
        return scores_from_log_odds(self.trees.decision(features))

    def score_runs(self, runs: pd.DataFrame, texts: Sequence[str] = ()) -> Scores:
        """Judge trajectories by their steps; the texts are not read."""
        return self.decided(structure_features(runs))

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return self.made(self.about.renderer_sha256, asdict(self.about.settings))


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


class Scale(NamedTuple):
    """Mean and standard deviation of a judge's scores."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Scale:
        """Measure the scale; scores that are all equal keep their unit."""
        return cls(float(scores.mean()), float(scores.std()) or 1.0)

    @classmethod
    def held_out(cls, parts: Sequence[NDArray[np.float64]], fitted: NDArray[np.float64]) -> Scale:
        """Measure the scale on the scores of folds or, without folds, on those of training."""
        # a judge spreads the runs that it was fitted to more than others, and a flexible one more
        # so, which would give it less weight in a mean than it deserves
        return cls.of(np.concatenate(parts) if len(parts) else fitted)

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardise scores."""
        return (scores - self.mean) / self.deviation


def task_folds(tasks: NDArray[Any], labels: NDArray[np.int64], seed: int) -> list[Fold]:
    """Deal the tasks into folds, without folds whose other runs have one outcome."""
    names, code = np.unique(tasks, return_inverse=True)
    dealt = np.random.default_rng([_SALT, seed, names.size]).permutation(names.size) % _FOLDS
    held = [dealt[code] == number for number in range(min(_FOLDS, names.size))]
    folds = [Fold(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in held]
    return [fold for fold in folds if np.unique(labels[fold.known]).size == 2]


class CombinedDocument(Document):
    """The scale of each part, measured on training tasks held out from it."""

    TITLE = "combined judge"
    SCHEMA = "certify_assets/combined_judge/1"
    REFUSAL = IntegrityError

    lexical: Scale
    structure: Scale


@dataclass(frozen=True, eq=False)
class Read:
    """The features of some runs for both judges."""

    words: Counted
    steps: NDArray[np.float32]

    def __getitem__(self, rows: NDArray[Any]) -> Read:
        """Return the features of some of the runs."""
        return Read(self.words[rows], self.steps[rows])


@dataclass(frozen=True, eq=False)
class CombinedJudge(FileJudge):
    """The mean of the standardised scores of a lexical and a structure judge of the same runs."""

    FILES = (*LexicalJudge.FILES, *StructureJudge.FILES, "combined.json")
    ENGINE = f"certify_assets/combined/1+{StructureJudge.ENGINE}"

    lexical: LexicalJudge
    structure: StructureJudge
    scales: CombinedDocument

    @property
    def name(self) -> str:
        """Name of the judge: combined."""
        return "combined"

    @classmethod
    def fitted(
        cls,
        read: Read,
        tasks: pd.Series[str],
        labels: NDArray[np.int64],
        seed: int,
        renderer_sha256: str,
    ) -> Self:
        """Train both judges on the features of runs, and measure their scales."""
        folds, settings = (
            task_folds(tasks.to_numpy(object), labels, seed),
            LexicalSettings(seed=seed),
        )
        words, of_words = LexicalJudge.crossfit(
            read.words, labels, folds, settings, renderer_sha256
        )
        steps, of_steps = StructureJudge.crossfit(
            read.steps, labels, folds, StructureSettings(seed=seed), renderer_sha256
        )
        scales = CombinedDocument(
            lexical=Scale.held_out(of_words, words.decided(read.words).score),
            structure=Scale.held_out(of_steps, steps.decided(read.steps).score),
        )
        return cls(words, steps, scales)

    def knows(self, features: Read) -> bool:
        """Whether all words of the judge are counted."""
        return self.lexical.knows(features.words)

    def refitted(self, features: Read, labels: NDArray[np.int64]) -> Self:
        """Train both judges again; their scales stay those of all training runs."""
        words = self.lexical.refitted(features.words, labels)
        return type(self)(words, self.structure.refitted(features.steps, labels), self.scales)

    def decided(self, features: Read) -> Scores:
        """Judge runs whose features are computed."""
        return self._mean(
            self.lexical.decided(features.words), self.structure.decided(features.steps)
        )

    def score_runs(self, runs: pd.DataFrame, texts: Sequence[str]) -> Scores:
        """Judge trajectories by their texts and their steps."""
        return self._mean(self.lexical.score(texts), self.structure.score_runs(runs))

    def _mean(self, words: Scores, steps: Scores) -> Scores:
        scales = self.scales
        return scores_from_log_odds(
            (scales.lexical(words.score) + scales.structure(steps.score)) / 2
        )

    def success_words(self) -> str:
        """Return the words that its lexical part counts most for success."""
        return self.lexical.success_words()

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return self.made(
            self.lexical.about.renderer_sha256,
            {
                "lexical": asdict(self.lexical.about.settings),
                "structure": asdict(self.structure.about.settings),
                "scales": self.scales.to_dict(),
            },
        )

    def files(self) -> dict[str, bytes]:
        """Return the files of both judges, and the document that joins them."""
        parts = {**self.lexical.files(), **self.structure.files()}
        return {**parts, self.FILES[-1]: self.scales.to_json()}

    @classmethod
    def parsed(cls, files: Mapping[str, bytes]) -> Self:
        """Read both judges, and the document that joins them."""
        scales = CombinedDocument.from_json(files[cls.FILES[-1]])
        return cls(LexicalJudge.parsed(files), StructureJudge.parsed(files), scales)


@remembered
def known_steps(corpus: Corpus) -> KnownRuns:
    """Return the features of all runs of a corpus."""
    runs = corpus.runs_of(*SPLITS)
    return KnownRuns.named(runs["trajectory_id"], structure_features(runs))


class StructureSpec(JudgeSpec):
    """Gradient-boosted trees on steps, lengths, errors, repetitions and endings of a run.

    They are trained on the SFT split.
    """

    library = "scikitlearn"
    retrainable = True

    family: Literal["structure"] = "structure"
    # of the steps, whose features it reads
    reading: JudgeInput = WHOLE

    @property
    def everywhere(self) -> bool:
        """Every corpus gets it as half of `combined`."""
        return False


@judge_family("structure")
class StructureFamily(FileFamily):
    """Gradient boosting on features of steps, errors, repetitions and endings."""

    position = 1
    kind = StructureJudge
    judges = (StructureSpec(name="structure"),)

    def known(self, corpus: Corpus, reading: JudgeInput) -> KnownRuns:
        """Return the features of all runs."""
        return known_steps(corpus)

    def fitted(
        self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int, known: KnownRuns | None = None
    ) -> StructureJudge:
        """Train on labelled rows."""
        features = structure_features(rows) if known is None else known.of(rows["trajectory_id"])
        settings, using = StructureSettings(seed=seed), reading.renderer
        return StructureJudge.crossfit(features, rows["outcome"], (), settings, using.sha256)[0]


class CombinedSpec(JudgeSpec):
    """The mean of the standardised scores of a lexical and a structure judge.

    Both are trained on the SFT split.
    """

    library = "scikitlearn"
    retrainable = True

    family: Literal["combined"] = "combined"
    # of the words; of the steps all are read
    reading: JudgeInput = LEXICAL


class CombinedEntry(WordsEntry):
    """A combined judge, as users write it."""

    family: Literal["combined"]


@judge_family("combined")
class CombinedFamily(FileFamily):
    """The mean of the standardised scores of a lexical and a structure judge."""

    position = 2
    kind = CombinedJudge
    entry = CombinedEntry
    spec = CombinedSpec
    judges = (CombinedSpec(name="combined"),)

    def known(self, corpus: Corpus, reading: JudgeInput) -> KnownRuns:
        """Return the words and the features of all runs."""
        words, steps = known_words(corpus, reading.renderer), known_steps(corpus)
        same_rows = steps.of(words.rows)
        return KnownRuns(words.rows, Read(words.features, same_rows))

    def fitted(
        self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int, known: KnownRuns | None = None
    ) -> CombinedJudge:
        """Train both parts on labelled rows; their scales are measured on tasks held out."""
        labels, using = training_labels(rows["outcome"]), reading.renderer
        if known is None:
            read = Read(words_of(rows, reading, LexicalSettings()), structure_features(rows))
        else:
            read = known.of(rows["trajectory_id"])
        return CombinedJudge.fitted(read, rows["task_id"], labels, seed, using.sha256)
