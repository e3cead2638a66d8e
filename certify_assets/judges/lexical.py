"""The lexical judge: TF-IDF of words and word pairs, and a logistic regression."""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.errors import InputError
from certify_assets.files import canonical_json
from certify_assets.judges.base import JudgeProvenance, Scores, scores_from_log_odds
from certify_assets.judges.model_files import FileJudge, Fold, training_labels

if TYPE_CHECKING:
    import pandas as pd

_SCHEMA = "certify_assets/lexical_judge/1"
_DOCUMENT = "judge.json"
_WEIGHTS = "weights.safetensors"
_WORD = re.compile(r"\w\w+")


@dataclass(frozen=True, slots=True)
class LexicalSettings:
    """How a lexical judge is trained."""

    # of a success against a failure of weight 1: above 1 the judge is slower to call a run a
    # failure, which serves the reject side
    success_weight: float = 1.0
    # C of the logistic regression
    inverse_regularization: float = 10.0
    longest_ngram: int = 2
    # texts that a feature must occur in
    min_documents: int = 2
    # the most frequent first
    max_features: int = 50_000
    # recorded; the training itself draws no random number
    seed: int = 42


@dataclass(frozen=True, eq=False)
class Counted:
    """How often each feature occurs in some texts: any of them can train a judge, or be scored."""

    # feature → column
    places: Mapping[str, int]
    # sparse matrix, a row a text; columns in the order of the features
    counts: Any

    @classmethod
    def of(cls, texts: Sequence[str], settings: LexicalSettings) -> Counted:
        """Count the features of texts."""
        places: defaultdict[str, int] = defaultdict(count().__next__)
        counts = _counted(texts, settings, places)
        if not places:
            raise InputError(f"{len(texts)} training texts have no word; check the rendering.")
        names = sorted(places)
        columns = [places[name] for name in names]
        return cls(dict(zip(names, range(len(names)), strict=True)), counts[:, columns])

    def __getitem__(self, rows: NDArray[Any]) -> Counted:
        """Return some of the texts."""
        return Counted(self.places, self.counts[rows])

    def columns(self, vocabulary: Sequence[str]) -> Any:
        """Return the counts of some features."""
        return _sorted_rows(self.counts[:, [self.places[name] for name in vocabulary]])

    def frequent(self, settings: LexicalSettings) -> tuple[str, ...]:
        """Return the features that a judge of these texts has, sorted."""
        texts = self.counts.shape[0]
        documents, totals = self.counts.getnnz(axis=0), np.asarray(self.counts.sum(axis=0)).ravel()
        kept = np.flatnonzero(documents >= min(settings.min_documents, texts))
        # the most frequent first, ties in the order of the names
        kept = kept[np.argsort(-totals[kept], kind="stable")][: settings.max_features]
        if not kept.size:
            raise InputError(
                f"no word occurs in {settings.min_documents} of {texts} training texts; lower "
                "min_documents."
            )
        names = np.empty(len(self.places), dtype=object)
        names[list(self.places.values())] = list(self.places)
        return tuple(str(name) for name in names[np.sort(kept)])


@dataclass(frozen=True, eq=False)
class LexicalJudge(FileJudge):
    """A trained lexical judge."""

    FILES = (_WEIGHTS, _DOCUMENT)
    ENGINE = "certify_assets/lexical/1"

    # the score of a text is its log-odds of success  b + w·x/‖x‖  with  x_j = (1 + ln c_j)·idf_j
    # for a feature that occurs c_j > 0 times, and  idf_j = 1 + ln((1 + n)/(1 + n_j));
    # Salton and Buckley (1988), "Term-weighting approaches in automatic text retrieval"

    settings: LexicalSettings
    # features, sorted
    vocabulary: tuple[str, ...]
    idf: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    # log-odds of success of a text without any feature
    intercept: float
    renderer_sha256: str
    training: Mapping[str, int]

    @property
    def name(self) -> str:
        """Name of the judge: lexical, with the weight of successes where it is not 1."""
        weight = self.settings.success_weight
        return "lexical" if weight == 1 else f"lexical_w{weight:g}"

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        outcomes: ArrayLike,
        *,
        success_weight: float = 1.0,
        seed: int = 42,
        renderer_sha256: str = "",
    ) -> LexicalJudge:
        """Train on rendered trajectories of the SFT split."""
        labels = training_labels(outcomes)
        settings = LexicalSettings(success_weight=success_weight, seed=seed)
        return cls.crossfit(Counted.of(texts, settings), labels, (), settings, renderer_sha256)[0]

    @classmethod
    def crossfit(
        cls,
        words: Counted,
        outcomes: ArrayLike,
        folds: Sequence[Fold],
        settings: LexicalSettings,
        renderer_sha256: str,
    ) -> tuple[LexicalJudge, list[NDArray[np.float64]]]:
        """Train, and score the rows that each fold holds out by weights fitted to its others.

        Words and their idf are those of all texts: labels have no part in them.
        """
        labels = training_labels(outcomes)
        vocabulary = words.frequent(settings)
        counts = words.columns(vocabulary)
        documents = counts.shape[0]
        idf = 1.0 + np.log((1 + documents) / (1 + counts.getnnz(axis=0)))
        features = _weigh(counts, idf)
        # one thread: sums in one order give the same weights on any number of cores, and on vectors
        # this short it is faster
        with _threads().limit(limits=1):
            model = _fitted(features, labels, settings)
            held_out = [
                _fitted(features[fold.known], labels[fold.known], settings).decision_function(
                    features[fold.held]
                )
                for fold in folds
            ]
        judge = cls(
            settings=settings,
            vocabulary=vocabulary,
            idf=idf,
            coefficients=np.ascontiguousarray(model.coef_[0], dtype=np.float64),
            intercept=float(model.intercept_[0]),
            renderer_sha256=renderer_sha256,
            training={"rows": documents, "successes": int(labels.sum())},
        )
        return judge, held_out

    def features(self, runs: pd.DataFrame, texts: Sequence[str]) -> Counted:
        """Count the words of texts."""
        return Counted.of(texts, self.settings)

    def refitted(self, features: Counted, labels: NDArray[np.int64]) -> LexicalJudge:
        """Train again, with the words that are frequent in these texts."""
        return self.crossfit(features, labels, (), self.settings, self.renderer_sha256)[0]

    def decided(self, features: Counted) -> Scores:
        """Judge texts whose words are counted."""
        return self._scores(features.columns(self.vocabulary))

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories."""
        if not len(texts):
            return scores_from_log_odds(np.zeros(0))
        return self._scores(self._counts(texts))

    def _scores(self, counts: Any) -> Scores:
        features = _weigh(counts, self.idf)
        return scores_from_log_odds(
            np.asarray(features @ self.coefficients, dtype=np.float64) + self.intercept
        )

    def _counts(self, texts: Sequence[str]) -> Any:
        places = {name: place for place, name in enumerate(self.vocabulary)}
        return _sorted_rows(_counted(texts, self.settings, places))

    def reasons(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return what each word and word pair of a text adds to its score."""
        features = _weigh(self._counts(texts), self.idf)
        return [
            [
                (self.vocabulary[place], float(value * self.coefficients[place]))
                for place, value in zip(row.indices, row.data, strict=True)
            ]
            for row in features
        ]

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return self.made(self.renderer_sha256, asdict(self.settings))

    def files(self) -> dict[str, bytes]:
        """Return the files of the judge by name."""
        from safetensors.numpy import save

        weights = save(
            {
                "idf": self.idf,
                "coefficients": self.coefficients,
                "intercept": np.array([self.intercept]),
            }
        )
        document = {
            "schema": _SCHEMA,
            "settings": asdict(self.settings),
            "renderer_sha256": self.renderer_sha256,
            "training": dict(self.training),
            "vocabulary": list(self.vocabulary),
        }
        return {_WEIGHTS: weights, _DOCUMENT: canonical_json(document)}

    @classmethod
    def parsed(cls, folder: Path, files: Mapping[str, bytes]) -> Self:
        """Read the judge from its files."""
        from safetensors.numpy import load

        document, arrays = json.loads(files[_DOCUMENT]), load(files[_WEIGHTS])
        return cls(
            settings=LexicalSettings(**document["settings"]),
            vocabulary=tuple(document["vocabulary"]),
            idf=arrays["idf"],
            coefficients=arrays["coefficients"],
            intercept=float(arrays["intercept"][0]),
            renderer_sha256=document["renderer_sha256"],
            training=document["training"],
        )


@cache
def _threads() -> Any:
    """Return the thread pools of what fits; to look for them takes as long as a small fit."""
    # imported for what it loads
    import sklearn.linear_model  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def _fitted(features: Any, labels: NDArray[np.int64], settings: LexicalSettings) -> Any:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=settings.inverse_regularization, tol=1e-5, max_iter=2000)
    weights = np.where(labels == 1, float(settings.success_weight), 1.0)
    return model.fit(features, labels, sample_weight=weights)


def _features(text: str, settings: LexicalSettings) -> Iterator[str]:
    """Return the words of a text, then its sequences of words."""
    words = _WORD.findall(text.lower())
    longer = (
        map(" ".join, zip(*(words[start:] for start in range(length)), strict=False))
        for length in range(2, settings.longest_ngram + 1)
    )
    return chain(words, *longer)


def _counted(texts: Sequence[str], settings: LexicalSettings, places: dict[str, int]) -> Any:
    """Count the features that have a place: a sparse matrix of shape (texts, places)."""
    from scipy.sparse import csr_matrix

    # a dictionary that gives places gives every feature one
    given = isinstance(places, defaultdict)
    found, ends = array("q"), [0]
    for text in texts:
        features = _features(text, settings)
        found.extend(
            map(places.__getitem__, features) if given else map(places.get, features, repeat(-1))
        )
        ends.append(len(found))
    columns, rows = np.asarray(found), np.repeat(np.arange(len(texts)), np.diff(ends))
    has_place = columns >= 0
    columns, rows = columns[has_place], rows[has_place]
    # a feature that occurs several times in a text is summed
    ones = np.ones(columns.size, np.int64)
    return csr_matrix((ones, (rows, columns)), shape=(len(texts), len(places)))


def _sorted_rows(counts: Any) -> Any:
    # sums over the features of a row must not depend on how the matrix was made
    rows = counts.tocsr()
    rows.sort_indices()
    return rows


def _weigh(counts: Any, idf: NDArray[np.float64]) -> Any:
    """Turn counts into sublinear TF-IDF rows of length 1 (rows without a feature stay 0)."""
    weighted = counts.astype(np.float64)
    weighted.data = (1.0 + np.log(weighted.data)) * idf[weighted.indices]
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    weighted.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(weighted.indptr))
    return weighted
