"""How a judge ranks runs of agents that it has never seen: folds over agents.

A fold is trained on the SFT runs of the other agents and read on CAL runs of those held out.
Figures are over pairs of one fold, because two folds have two judges whose scores need not be on
one scale. The judge trained on all agents is read on the same pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import (
    Interval,
    Ranking,
    auroc,
    name_codes,
    percentile_interval,
    task_resamples,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import JsonObject
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import rounded
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.model_files import Fold
from certify_assets.judges.specs import JUDGES

if TYPE_CHECKING:
    import pandas as pd

#: what the document of folds is of
_BOUND: Final = ("adapter_sha256", "manifest_sha256", "scores_sha256")


def fold_judges() -> list[str]:
    """Return the judges that can be trained without some agents."""
    return [name for name, spec in JUDGES.items() if spec.retrainable]


def agent_groups(agents: Iterable[str], folds: int, seed: int) -> list[list[str]]:
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


def evaluate_agent_folds(judge: JudgedCorpus, *, folds: int = 4, seed: int = 42) -> JsonObject:
    """Train a judge without some agents and read it on them, fold by fold; store the document.

    Returns
    -------
    dict
        The folds, those that cannot be trained or read (``left_out``), and on the ``rows`` that
        both scored AUROC over pairs of one fold and of one agent: of the judge without the agents
        (``disjoint``) and with all runs (``trained_on_all``); ``difference`` is the first minus the
        second.
    """
    if not judge.spec.retrainable:
        raise InputError(
            f"{judge} is not trained on SFT alone; ask for one of {', '.join(fold_judges())}."
        )
    rows, hashes, _ = judge.calibration
    # the rows on which all judges are compared
    cal = rows[rows["split"] == "cal"].reset_index(drop=True)
    agents, outcomes = cal["agent"].astype(str), cal["outcome"].to_numpy(np.float64)
    runs, sft = training_and(judge, cal)
    every, unseen = cal["score"].to_numpy(np.float64), np.full(len(cal), np.nan)
    owner = np.full(len(cal), -1)
    made, left_out, dealt = list[JsonObject](), list[JsonObject](), list[Fold]()
    for held in agent_groups([*runs["agent"][:sft], *agents], folds, seed):
        known, inside = known_without(runs[:sft], held), np.flatnonzero(agents.isin(held))
        if known is None or not inside.size:
            reason = "no CAL run is theirs, or the SFT runs of the others lack an outcome"
            left_out.append({"agents": held, "reason": reason})
        else:
            dealt.append(Fold(known, sft + inside))
            made.append({"agents": held, "sft_runs": known.size, "cal_runs": inside.size})
    for number, (_, found) in enumerate(judge.family.held_out(judge, runs, dealt)):
        inside = dealt[number].held - sft
        unseen[inside], owner[inside] = found.score, number
        for name, scores in (("auroc", unseen), ("auroc_trained_on_all", every)):
            area = auroc(scores[inside], outcomes[inside])
            made[number][name] = area if np.isfinite(area) else None
    if not made:
        raise InputError(
            f"no fold over the agents of {judge.corpus} can be trained: "
            f"{left_out[0]['reason']}; import runs of more agents."
        )
    figures = _figures(cal, unseen, every, owner)
    document: JsonObject = rounded(
        {
            "schema": "certify_assets/agent_disjoint/1",
            "corpus": judge.corpus.name,
            "judge": judge.name,
            "folds": made,
            "left_out": left_out,
            "seed": seed,
            **figures,
            "sentence": _sentence(judge.name, figures),
            **{name: hashes[name] for name in _BOUND},
        }
    )
    judge.store.write_json(agent_folds_key(judge.corpus.name, judge.name), document)
    return document


def _figures(
    cal: pd.DataFrame,
    unseen: NDArray[np.float64],
    every: NDArray[np.float64],
    owner: NDArray[np.int64],
) -> JsonObject:
    """Return AUROC of both judges on the rows that both scored, and the difference."""
    kept = np.isfinite(unseen) & np.isfinite(every)
    outcomes = cal["outcome"].to_numpy(np.float64)[kept]
    resamples = task_resamples(name_codes(cal["task_id"].to_numpy(object)[kept]))
    groups = {"auroc": owner[kept], "within_agent": name_codes(cal["agent"].to_numpy(object)[kept])}
    new, old = (
        {what: Ranking.of(scores[kept], outcomes, of) for what, of in groups.items()}
        for scores in (unseen, every)
    )
    return {
        "rows": int(kept.sum()),
        "disjoint": {what: new[what].estimate(resamples) for what in groups},
        "trained_on_all": {what: old[what].estimate(resamples) for what in groups},
        "difference": {what: paired_difference(new[what], old[what], resamples) for what in groups},
    }


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


def _sentence(judge: str, figures: Mapping[str, Mapping[str, Interval]]) -> str:
    difference = figures["difference"]["auroc"]
    value, low, high = difference["value"], difference["low"], difference["high"]
    if value is None:
        return f"{judge} cannot be read on unseen agents: no fold has CAL runs of both outcomes."
    new, old = (figures[name]["auroc"]["value"] for name in ("disjoint", "trained_on_all"))
    span, words = "", "is not shown to lose on unseen agents"
    if low is not None and high is not None:
        span = f", 95 % {low:+.3f} to {high:+.3f}"
        words = "ranks runs of unseen agents worse" if high < 0 else words
    return (
        f"{judge} {words}: AUROC {new:.3f} against {old:.3f} when trained on all "
        f"({value:+.3f}{span})."
    )


def evaluate_scored(
    corpus: Corpus, judges: Sequence[str], *, folds: int = 4, seed: int = 42
) -> tuple[list[JsonObject], list[dict[str, str]]]:
    """Evaluate those judges that can be; return their documents, and the others with the reason."""
    found, left_out = [], []
    for name in judges:
        try:
            found.append(evaluate_agent_folds(JudgedCorpus(corpus, name), folds=folds, seed=seed))
        except CertifyError as error:
            left_out.append({"judge": name, "reason": str(error)})
    return found, left_out


def stored_agent_folds(corpus: Corpus) -> list[JsonObject]:
    """Return the evaluations of the artifacts and scores that are stored now."""
    found: list[JsonObject] = []
    for name in fold_judges():
        key = agent_folds_key(corpus.name, name)
        if corpus.store.exists(key):
            document = corpus.store.read_json(key)
            with suppress(CertifyError):
                _, hashes, _ = JudgedCorpus(corpus, name).calibration
                if all(document[bound] == hashes[bound] for bound in _BOUND):
                    found.append(document)
    return found


def agent_folds_key(corpus: str, judge: str) -> str:
    """Return where the result of a judge is stored."""
    return f"comparison/{corpus}/agent_disjoint_{judge}.json"


def training_and(judge: JudgedCorpus, table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the labelled runs of SFT, then those of a table of scores; and how many are of SFT."""
    import pandas as pd

    sft, runs = judge.corpus.split("sft"), judge.labelled_runs(judge.calibration_splits)
    runs = runs.set_index("trajectory_id", drop=False).loc[table["trajectory_id"]]
    sft = sft[sft["outcome"].notna()]
    return pd.concat([sft, runs], ignore_index=True), len(sft)


def known_without(sft: pd.DataFrame, agents: Sequence[str]) -> NDArray[np.int64] | None:
    """Return the places of the runs of the other agents; None where they lack an outcome."""
    known = np.flatnonzero(~sft["agent"].astype(str).isin(agents).to_numpy(bool))
    return known if sft["outcome"].iloc[known].nunique() == 2 else None
