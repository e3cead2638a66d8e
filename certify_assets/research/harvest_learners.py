"""Learners of the harvest study: recipes that train a base model on given rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import score_table
from certify_assets.judges.certharvest import refuse_held_out
from certify_assets.judges.families.lexical import LexicalFamily
from certify_assets.judges.families.structure import CombinedFamily
from certify_assets.judges.families.transfer import gather_pool
from certify_assets.judges.family import FileFamily
from certify_assets.judges.lm import smollm2
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.reading import LEXICAL, JudgeInput
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.base import Judge

#: judges that are trained in seconds
_QUICK: dict[str, FileFamily] = {"lexical": LexicalFamily(), "combined": CombinedFamily()}
#: learners whose training takes minutes, and the model that each of them fine-tunes
_LANGUAGE = {"sft": "compact", smollm2.NAME: smollm2.NAME}


@dataclass(frozen=True, eq=False)
class Splits:
    """The labelled trajectories of the four splits, and their manifest."""

    sft: pd.DataFrame
    rl: pd.DataFrame
    cal: pd.DataFrame
    test: pd.DataFrame
    manifest: SplitManifest


class Learner:
    """A recipe; each judge is trained once, and scores a table once."""

    def __init__(
        self,
        name: str,
        source: pd.DataFrame,
        manifest: SplitManifest,
        fit: Callable[[pd.DataFrame], Judge],
        reading: JudgeInput,
        *,
        transfer: bool = False,
    ) -> None:
        self.name = name
        # labelled by reviewers: the target's SFT split (in-domain), or rows of other corpora
        self.source = source[source["outcome"].notna()].reset_index(drop=True)
        # whether the source has no row of the target, whose SFT split is then in the pool as well
        self.transfer = transfer
        self._manifest, self._fit, self._reading = manifest, fit, reading
        self._judges: dict[str, Judge] = {}
        self._scores: dict[tuple[str, str], pd.DataFrame] = {}

    @property
    def costly(self) -> bool:
        """Whether a training takes minutes; then only one of the controls is trained."""
        return self.name in _LANGUAGE

    def train(self, rows: pd.DataFrame, *, spent: Collection[str] = ()) -> Judge:
        """Train on labelled rows; tasks that certify or audit are refused, except those `spent`."""
        refuse_held_out(rows, self._manifest, what="training", spent=spent)
        key = identity(rows)
        if key not in self._judges:
            self._judges[key] = self._fit(rows)
        return self._judges[key]

    def score(self, judge: Judge, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows with the judge's scores."""
        key = judge.provenance().sha256, identity(rows)
        if key not in self._scores:
            self._scores[key] = score_table(judge, rows, self._reading.renderer)
        return rows.assign(score=self._scores[key]["score"].to_numpy())


def identity(rows: pd.DataFrame) -> str:
    """Hash of the names and outcomes of some runs."""
    return sha256_bytes(
        rows[["corpus", "trajectory_id", "outcome"]].to_csv(index=False).encode("utf-8")
    )


@contextmanager
def learner_maker(
    corpus: Corpus, name: str, *, report: Report = silent
) -> Iterator[Callable[[Splits], Learner]]:
    """Return the maker of a learner, with a folder for checkpoints if training is costly."""
    start, _, transfer = name.partition("_")
    elsewhere = None
    if transfer:
        pool = gather_pool(corpus)
        if pool.missing:
            raise InputError(pool.missing)
        elsewhere = pool.frame

    def made(splits: Splits, fit: Callable[[pd.DataFrame], Judge], reading: JudgeInput) -> Learner:
        source = splits.sft if elsewhere is None else elsewhere
        return Learner(start, source, splits.manifest, fit, reading, transfer=bool(transfer))

    if start in _QUICK:
        yield lambda splits: made(splits, _fitted(_QUICK[start]), LEXICAL)
        return
    reading = known_model(_LANGUAGE[start]).reading
    with corpus.store.workplace(f"harvests/{corpus}/{name}") as place:
        yield lambda splits: made(
            splits, _fine_tuned(_LANGUAGE[start], place, bool(transfer), report), reading
        )


def _fitted(family: FileFamily) -> Callable[[pd.DataFrame], Judge]:
    return lambda rows: cast("Judge", family.fitted(rows, LEXICAL, seed=42))


def _fine_tuned(
    model: str, place: Path, transfer: bool, report: Report
) -> Callable[[pd.DataFrame], Judge]:
    """Return a function that fine-tunes a language model from its base and can resume."""
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    known = known_model(model)
    recipe = known.recipe.pooled if transfer else known.recipe

    def fit(rows: pd.DataFrame) -> Judge:
        base = CausalJudge(model, *load_base(model, None, known.reading), shards=place / "shards")
        run = sha256_bytes(canonical_json([identity(rows), recipe.to_dict()]))
        return base.fine_tuned(rows, place / run[:12], recipe=recipe, seed=42, report=report)[0]

    return fit
