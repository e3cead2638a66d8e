"""Lexical judges: TF-IDF of words and word pairs, and a logistic regression."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.corpora.splits import SPLITS
from certify_assets.documents import Document
from certify_assets.errors import InputError, IntegrityError
from certify_assets.judges.base import JudgeProvenance, Scores, score_table, scores_from_log_odds
from certify_assets.judges.configured import WordsEntry
from certify_assets.judges.family import FileFamily, certify_candidates
from certify_assets.judges.model_files import ArrayJudge, Fold, KnownRuns, training_labels
from certify_assets.judges.reading import LEXICAL, JudgeInput
from certify_assets.judges.record import CandidateScore, JudgeRecord, labelled, save_files, texts
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import judge_family
from certify_assets.judges.stored import StoredJudge
from certify_assets.storage.moment import remembered
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.corpus import Corpus
    from certify_assets.corpora.rendering import Renderer

_WORD = re.compile(r"\w\w+")
_RULE = (
    "the weight on successes with the largest certified reject coverage on CAL at alpha 0.1 "
    "(at 0.2 where none certifies), the smaller weight on a tie; the level is divided by the "
    "number of candidates"
)


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
    """Counts of each feature in some texts, for training judges and for scoring."""

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

    def with_texts(self, texts: Sequence[str], settings: LexicalSettings) -> Counted:
        """Return the counts of the features that train a judge, and those of further texts.

        Features in fewer texts than `settings` requires are left out, as no judge of these texts
        has them.
        """
        from scipy.sparse import vstack

        names = [*self.places]
        kept = np.flatnonzero(self.counts.getnnz(axis=0) >= settings.min_documents)
        places = {names[place]: row for row, place in enumerate(kept)}
        counts = [self.counts[:, kept], _counted(texts, settings, places)]
        return Counted(places, vstack(counts, format="csr"))

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


class LexicalDocument(Document):
    """The meaning of a lexical judge's arrays."""

    TITLE = "lexical judge"
    SCHEMA = "certify_assets/lexical_judge/1"
    REFUSAL = IntegrityError

    settings: LexicalSettings
    renderer_sha256: str
    training: dict[str, int]
    # features, sorted
    vocabulary: tuple[str, ...]


class LexicalJudge(ArrayJudge):
    """A trained lexical judge."""

    # the score of a text is its log-odds of success  b + w·x/‖x‖  with  x_j = (1 + ln c_j)·idf_j
    # for a feature that occurs c_j > 0 times, and  idf_j = 1 + ln((1 + n)/(1 + n_j));
    # Salton and Buckley (1988), "Term-weighting approaches in automatic text retrieval"

    FILES = ("weights.safetensors", "judge.json")
    ENGINE = "certify_assets/lexical/1"
    ABOUT = LexicalDocument
    about: LexicalDocument

    @property
    def name(self) -> str:
        """Name of the judge: lexical, with the weight of successes where it is not 1."""
        weight = self.about.settings.success_weight
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
    ) -> Self:
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
    ) -> tuple[Self, list[NDArray[np.float64]]]:
        """Train, and score the rows that each fold holds out by weights fitted to its others.

        Words and their idf come from all texts, as they do not depend on labels.
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
        about = LexicalDocument(
            settings=settings,
            renderer_sha256=renderer_sha256,
            training={"rows": documents, "successes": int(labels.sum())},
            vocabulary=vocabulary,
        )
        arrays = {
            "idf": idf,
            "coefficients": np.ascontiguousarray(model.coef_[0], dtype=np.float64),
            # log-odds of success of a text without any feature
            "intercept": np.asarray(model.intercept_, dtype=np.float64),
        }
        return cls(about, arrays), held_out

    def knows(self, features: Counted) -> bool:
        """Whether all words of the judge are counted."""
        return features.places.keys() >= set(self.about.vocabulary)

    def refitted(self, features: Counted, labels: NDArray[np.int64]) -> Self:
        """Train again, with the words that are frequent in these texts."""
        about = self.about
        return self.crossfit(features, labels, (), about.settings, about.renderer_sha256)[0]

    def decided(self, features: Counted) -> Scores:
        """Judge texts whose words are counted."""
        return self._scores(_weigh(features.columns(self.about.vocabulary), self.arrays["idf"]))

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories."""
        if not len(texts):
            return scores_from_log_odds(np.zeros(0))
        return self._scores(self._features(texts))

    def _scores(self, features: Any) -> Scores:
        log_odds = np.asarray(features @ self.arrays["coefficients"], np.float64)
        return scores_from_log_odds(log_odds + self.arrays["intercept"])

    def success_words(self, count: int = 30, *, success: bool = True) -> str:
        """Return the words that count most for success, or for failure, the strongest first."""
        weights = self.arrays["coefficients"]
        places = np.argsort(-weights if success else weights, kind="stable")[:count]
        return " ".join(self.about.vocabulary[place] for place in places)

    def provenance(self) -> JudgeProvenance:
        """Return what the scores depend on."""
        return self.made(self.about.renderer_sha256, asdict(self.about.settings))

    def _features(self, texts: Sequence[str]) -> Any:
        """Return TF-IDF rows; a sparse matrix of shape (texts, features)."""
        places = {name: place for place, name in enumerate(self.about.vocabulary)}
        counts = _counted(texts, self.about.settings, places)
        return _weigh(_sorted_rows(counts), self.arrays["idf"])


@cache
def _threads() -> Any:
    """Return the thread pools of the fit, cached, as finding them takes as long as a small fit."""
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


def words_of(rows: pd.DataFrame, reading: JudgeInput, settings: LexicalSettings) -> Counted:
    """Count the features of runs."""
    return Counted.of(texts(rows, reading.renderer), settings)


@remembered
def known_words(corpus: Corpus, renderer: Renderer) -> KnownRuns:
    """Return, for all runs of a corpus, the words with which its SFT runs can train a judge."""
    settings, sft = LexicalSettings(), corpus.runs_of("sft")
    # their stored splits may not be there yet
    others = corpus.runs_of(*(split for split in SPLITS if split != "sft"))
    words = Counted.of(texts(sft, renderer), settings)
    words = words.with_texts(texts(others, renderer), settings)
    return KnownRuns.named([*sft["trajectory_id"], *others["trajectory_id"]], words)


class LexicalSpec(JudgeSpec):
    """TF-IDF and logistic regression, trained on the SFT split."""

    library = "scikitlearn"
    retrainable = True

    family: Literal["lexical"] = "lexical"
    reading: JudgeInput = LEXICAL
    # of several, one is chosen on CAL, and every certificate pays for their number in its level
    success_weights: tuple[float, ...] = (1.0,)

    @property
    def candidates(self) -> int:
        """Number of weights."""
        return len(self.success_weights) or 1

    @property
    def summary(self) -> str:
        """One sentence for lists and asset pages."""
        chosen = " Its weight on successes is picked on CAL and paid for in the level."
        return super().summary + (chosen if self.chooses else "")

    @property
    def everywhere(self) -> bool:
        """Every corpus gets the judge with one weight; a choice of weights is for comparison."""
        return not self.chooses


class LexicalEntry(WordsEntry):
    """A lexical judge, as users write it."""

    family: Literal["lexical"]


@judge_family("lexical")
class LexicalFamily(FileFamily):
    """Trained on SFT in seconds; the weight on successes may be chosen on CAL."""

    position = 0
    kind = LexicalJudge
    entry = LexicalEntry
    spec = LexicalSpec
    judges = (
        LexicalSpec(name="lexical"),
        LexicalSpec(name="lexical_weighted", success_weights=(1.0, 3.0, 10.0, 30.0)),
    )

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Train one candidate for each weight, and choose among them on CAL."""
        spec = judge.spec
        assert isinstance(spec, LexicalSpec)
        sft = judge.corpus.split("sft")
        known, seed = self.known(judge.corpus, spec.reading), spec.seed
        trained = {
            weight: self.fitted(
                labelled(sft), spec.reading, known=known, seed=seed, success_weight=weight
            )
            for weight in spec.success_weights
        }
        selection = _selection(judge, trained) if len(trained) > 1 else ()
        coverage = {row["success_weight"]: row["coverage"] for row in selection}
        # the smaller weight on a tie
        chosen = max(trained, key=lambda weight: (coverage.get(weight, 0.0), -weight))
        return judge.record(
            save_files(judge.store, judge.key("adapter"), trained[chosen]),
            sft,
            candidates=spec.candidates,
            selection=selection,
            selection_rule=_RULE if selection else "",
            success_weight=chosen,
        )

    def known(self, corpus: Corpus, reading: JudgeInput) -> KnownRuns:
        """Return the words of all runs."""
        return known_words(corpus, reading.renderer)

    def fitted(
        self,
        rows: pd.DataFrame,
        reading: JudgeInput,
        *,
        seed: int,
        known: KnownRuns | None = None,
        success_weight: float = 1.0,
    ) -> LexicalJudge:
        """Train on the features of labelled rows."""
        labels = training_labels(rows["outcome"])
        settings = LexicalSettings(success_weight=success_weight, seed=seed)
        words = (
            words_of(rows, reading, settings) if known is None else known.of(rows["trajectory_id"])
        )
        return LexicalJudge.crossfit(words, labels, (), settings, reading.renderer.sha256)[0]

    def made(
        self, judge: StoredJudge, rows: pd.DataFrame, *, run: str, report: Report
    ) -> tuple[LexicalJudge, Mapping[str, Any]]:
        """Train with the weight 1 and store the judge; there are no checkpoints."""
        model = self.fitted(rows, judge.spec.reading, seed=judge.spec.seed)
        save_files(judge.store, judge.key("adapter"), model)
        return model, {}


def _selection(
    judge: StoredJudge, trained: Mapping[float, LexicalJudge]
) -> tuple[CandidateScore, ...]:
    """Certified coverage of each candidate on CAL, at δ divided by their number."""
    cal, using = labelled(judge.corpus.split("cal")), judge.spec.reading.renderer
    tables = {f"w{weight:g}": score_table(model, cal, using) for weight, model in trained.items()}
    rows = zip(certify_candidates(tables, judge.corpus.config), trained, strict=True)
    return tuple({**row, "success_weight": weight} for row, weight in rows)
