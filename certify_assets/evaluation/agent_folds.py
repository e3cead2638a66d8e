"""Folds over agents: how a judge ranks runs of agents that it has never seen.

A fold is trained on the SFT runs of the other agents and read on CAL runs of those held out.
Figures are over pairs of one fold, because two folds have two judges whose scores need not be on
one scale; the judge trained on all agents is read on the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import (
    AurocFigures,
    Interval,
    Ranking,
    auroc,
    name_codes,
    percentile_interval,
    task_resamples,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED, load_embedded
from certify_assets.corpora.rendering import render_frame
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import rounded
from certify_assets.judges.base import score_table
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JUDGES

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.judges.base import Judge


_SCHEMA = "certify_assets/agent_disjoint/1"


class UnseenAuroc(TypedDict):
    """AUROC over pairs of one fold, and over pairs of one agent."""

    auroc: AurocFigures
    within_agent: AurocFigures


class UnseenDifference(TypedDict):
    """What a judge loses on unseen agents."""

    auroc: Interval
    within_agent: Interval


class AgentFold(TypedDict):
    """One fold: the agents held out, the runs without and with them, AUROC on their CAL runs."""

    agents: list[str]
    sft_runs: int
    cal_runs: int
    auroc: float | None
    auroc_trained_on_all: float | None


class SkippedFold(TypedDict):
    """A fold that cannot be trained or read."""

    agents: list[str]
    reason: str


class UnseenFigures(TypedDict):
    """AUROC on the rows that all scored; a language model has no `trained_on_as_many`."""

    rows: int
    disjoint: UnseenAuroc
    trained_on_as_many: NotRequired[UnseenAuroc]
    trained_on_all: UnseenAuroc
    difference: UnseenDifference


class AgentFolds(UnseenFigures):
    """A judge on unseen agents, as it is stored."""

    schema: str
    corpus: str
    judge: str
    folds: list[AgentFold]
    left_out: list[SkippedFold]
    seed: int
    caveat: str
    adapter_sha256: str
    manifest_sha256: str
    scores_sha256: str
    sentence: str


def fold_judges() -> list[str]:
    """Return the judges that can be trained without some agents."""
    return [name for name, spec in JUDGES.items() if spec.retrainable]


def agent_groups(agents: Sequence[str], folds: int, seed: int) -> list[list[str]]:
    """Deal the sorted agents in a seeded order into groups of as equal a size as possible."""
    names = sorted(set(agents))
    if not 2 <= folds <= 4:
        raise InputError(f"{folds} folds over agents were asked for; give 2, 3 or 4.")
    if len(names) < 2:
        raise InputError(
            "the corpus has runs of one agent alone, so none can be held out; import runs of "
            "several."
        )
    order = np.random.default_rng([seed, len(names)]).permutation(len(names))
    count = min(folds, len(names))
    return [sorted(names[place] for place in order[group::count]) for group in range(count)]


def evaluate_agent_folds(judge: JudgedCorpus, *, folds: int = 4, seed: int = 42) -> AgentFolds:
    """Train a judge without some agents and read it on them, fold by fold; store the document."""
    spec = judge.spec
    if not spec.retrainable:
        raise InputError(
            f"{judge} is not trained on SFT alone; ask for one of {', '.join(fold_judges())}."
        )
    rows, hashes, _ = judge.calibration
    # the rows on which all judges are compared
    cal = rows[rows["split"] == "cal"].reset_index(drop=True)
    sft = judge.corpus.split("sft")
    sft = sft[sft["outcome"].notna()]
    groups = agent_groups(
        [str(name) for frame in (sft, cal) for name in frame["agent"]], folds, seed
    )
    read = _Folds(
        sft,
        cal,
        runs_of(judge, cal),
        lambda known, number: judge.family.retrained(judge, known, f"agent_fold_{number}"),
        using=judge.renderer,
        matched=not spec.uses_language_model,
        seed=seed,
    )
    for number, held in enumerate(groups):
        read.fold(number, held)
    if not read.rows:
        raise InputError(
            f"no fold over the agents of {judge.corpus} can be trained: "
            f"{read.left_out[0]['reason']}; import runs of more agents."
        )
    figures = read.figures()
    document: AgentFolds = {
        "schema": _SCHEMA,
        "corpus": judge.corpus.name,
        "judge": judge.name,
        "folds": read.rows,
        "left_out": read.left_out,
        "seed": seed,
        **figures,
        "caveat": pretraining_caveat([judge.name], [str(name) for name in cal["agent"]]),
        "adapter_sha256": hashes["adapter_sha256"],
        "manifest_sha256": hashes["manifest_sha256"],
        "scores_sha256": hashes["scores_sha256"],
        "sentence": _sentence(judge.name, figures),
    }
    found: AgentFolds = rounded(document)
    judge.store.write_json(agent_folds_key(judge.corpus.name, judge.name), found)
    return found


def evaluate_scored(
    corpus: Corpus, judges: Sequence[str], *, folds: int = 4, seed: int = 42
) -> tuple[list[AgentFolds], list[dict[str, str]]]:
    """Evaluate those judges that can be; return their documents, and the others with the reason."""
    found, left_out = [], []
    for name in judges:
        judge = JudgedCorpus(corpus, name)
        if not corpus.store.exists(judge.key("scores.json")):
            left_out.append({"judge": name, "reason": "it has not scored this corpus."})
            continue
        try:
            found.append(evaluate_agent_folds(judge, folds=folds, seed=seed))
        except CertifyError as error:
            left_out.append({"judge": name, "reason": str(error)})
    return found, left_out


def stored_agent_folds(corpus: Corpus) -> list[AgentFolds]:
    """Return the evaluations of the artifacts and scores that are stored now."""
    found: list[AgentFolds] = []
    for name in fold_judges():
        if not corpus.store.exists(agent_folds_key(corpus.name, name)):
            continue
        document = corpus.store.read_json(agent_folds_key(corpus.name, name))
        judge = JudgedCorpus(corpus, name)
        try:
            current = judge.artifact
        except CertifyError:
            continue
        scores = judge.key("scores.parquet")
        if document.get("adapter_sha256") != current.adapter_sha256 or not corpus.store.exists(
            scores
        ):
            continue
        if document.get("scores_sha256") == corpus.store.sha256(scores):
            found.append(document)
    return found


def agent_folds_key(corpus: str, judge: str) -> str:
    """Return where the result of a judge is stored."""
    return f"comparison/{corpus}/agent_disjoint_{judge}.json"


def runs_of(judge: JudgedCorpus, table: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a table of labelled scores that may certify, in its order."""
    frame = judge.labelled_runs(judge.calibration_splits)
    return frame.set_index("trajectory_id").loc[table["trajectory_id"]].reset_index()


def runs_without(sft: pd.DataFrame, agents: Sequence[str]) -> pd.DataFrame | None:
    """Return the training runs of the other agents; None where they lack one of both outcomes."""
    known = sft[~sft["agent"].astype(str).isin(agents)]
    return known if known["outcome"].nunique() == 2 else None


class _Folds:
    """CAL scores of judges that did not see the agent of a run, gathered fold by fold."""

    def __init__(
        self,
        sft: pd.DataFrame,
        cal: pd.DataFrame,
        runs: pd.DataFrame,
        train: Callable[[pd.DataFrame, int], Judge],
        *,
        using: Renderer,
        matched: bool,
        seed: int,
    ) -> None:
        self._sft, self._cal, self._runs, self._train, self._seed = sft, cal, runs, train, seed
        self._using = using
        names = ("disjoint", "trained_on_as_many") if matched else ("disjoint",)
        self._scores = {name: np.full(len(cal), np.nan) for name in names}
        self._owner = np.full(len(cal), -1, dtype=np.int64)
        self.rows: list[AgentFold] = []
        self.left_out: list[SkippedFold] = []

    def fold(self, number: int, held: list[str]) -> None:
        """Train without the held-out agents and score their CAL runs, where both can be done."""
        inside = self._cal["agent"].astype(str).isin(held).to_numpy()
        known = runs_without(self._sft, held)
        if known is None or not inside.any():
            reason = (
                "the SFT runs of the others do not have both outcomes"
                if inside.any()
                else "no CAL run is theirs"
            )
            self.left_out.append({"agents": held, "reason": reason})
            return
        training = {"disjoint": known}
        if "trained_on_as_many" in self._scores:
            # fewer runs cost something too: as many, of all agents, tell the two apart
            places = np.random.default_rng([self._seed, number]).choice(
                len(self._sft), len(known), replace=False
            )
            training["trained_on_as_many"] = self._sft.iloc[np.sort(places)]
        read = self._runs[inside]
        rendered = render_frame(read, self._using)
        for name, runs in training.items():
            if runs["outcome"].nunique() == 2:
                model = self._train(runs, number)
                scored = score_table(model, read, self._using, rendered=rendered)
                self._scores[name][inside] = scored["score"].to_numpy(np.float64)
        self._owner[inside] = number
        self.rows.append(
            {
                "agents": held,
                "sft_runs": len(known),
                "cal_runs": int(inside.sum()),
                "auroc": self._auroc(self._scores["disjoint"], inside),
                "auroc_trained_on_all": self._auroc(self._trained_on_all, inside),
            }
        )

    @property
    def _trained_on_all(self) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = self._cal["score"].to_numpy(np.float64)
        return scores

    def _auroc(self, scores: NDArray[np.float64], inside: NDArray[np.bool_]) -> float | None:
        found = auroc(scores[inside], self._cal["outcome"].to_numpy(np.float64)[inside])
        return found if np.isfinite(found) else None

    def figures(self) -> UnseenFigures:
        """Return AUROC by judge on the rows that all scored, and the difference."""
        scores = {**self._scores, "trained_on_all": self._trained_on_all}
        kept = (self._owner >= 0) & np.isfinite(np.stack(list(scores.values()))).all(axis=0)
        outcomes = self._cal["outcome"].to_numpy(np.float64)[kept]
        resamples = task_resamples(name_codes(self._cal["task_id"].to_numpy(object)[kept]))
        agents = name_codes(self._cal["agent"].to_numpy(object)[kept])
        folds, within = (
            {judge: Ranking.of(values[kept], outcomes, group) for judge, values in scores.items()}
            for group in (self._owner[kept], agents)
        )
        unseen: dict[str, UnseenAuroc] = {
            judge: {
                "auroc": folds[judge].estimate(resamples),
                "within_agent": within[judge].estimate(resamples),
            }
            for judge in scores
        }
        auroc_difference, within_difference = (
            paired_difference(rankings["disjoint"], rankings["trained_on_all"], resamples)
            for rankings in (folds, within)
        )
        difference = {"auroc": auroc_difference, "within_agent": within_difference}
        found = {"rows": int(kept.sum()), **unseen, "difference": difference}
        return cast(UnseenFigures, found)


def paired_difference(one: Ranking, other: Ranking, resamples: NDArray[np.float64]) -> Interval:
    """Return the difference of AUROC of two judges on the same rows and resamples of tasks."""
    mine, theirs = (ranking.estimate(resamples[:0])["value"] for ranking in (one, other))
    if mine is None or theirs is None:
        return {"value": None, "low": None, "high": None}
    low: float | None = None
    high: float | None = None
    if len(resamples):
        low, high = percentile_interval(one.aurocs(resamples) - other.aurocs(resamples))
    return {"value": mine - theirs, "low": low, "high": high}


def _sentence(judge: str, figures: UnseenFigures) -> str:
    difference = figures["difference"]["auroc"]
    if difference["value"] is None:
        return f"{judge} cannot be read on unseen agents: no fold has CAL runs of both outcomes."
    new, old = (seen["auroc"]["value"] for seen in (figures["disjoint"], figures["trained_on_all"]))
    span = (
        ""
        if difference["low"] is None
        else f", 95 % {difference['low']:+.3f} to {difference['high']:+.3f}"
    )
    loses = difference["high"] is not None and difference["high"] < 0
    words = (
        "ranks runs of unseen agents worse" if loses else "is not shown to lose on unseen agents"
    )
    return (
        f"{judge} {words}: AUROC {new:.3f} against {old:.3f} when trained on all "
        f"({difference['value']:+.3f}{span})."
    )


def pretraining_caveat(judges: Sequence[str], agents: Sequence[str]) -> str:
    """Name the agents of a corpus that a judge's compact base model saw in its pretraining."""
    named = [name for name in judges if name in JUDGES and JUDGES[name].reads_compact]
    if not named:
        return ""
    # the agents of the embedded corpora ran the tasks of the pretraining
    seen = {str(name) for corpus in EMBEDDED for name in load_embedded(corpus)["agent"].unique()}
    both = sorted(set(agents) & seen)
    if not both:
        return ""
    return (
        f"The compact model below {', '.join(named)} is no stranger to these agents: {len(both)} "
        f"of the {len(set(agents))} ran tasks that it was pretrained on, without outcomes (of "
        f"{len(seen)} agents in all), so a fold keeps an agent's verdicts from it, not its runs."
    )
