"""How a judge, and its certificates, do on runs of agents that they have never seen.

Folds over agents ask how the judge ranks: a fold is trained on the SFT runs of the other agents and
read on CAL runs of those held out. Figures are over pairs of one fold, because two folds have two
judges whose scores need not be on one scale; the judge trained on all agents is read on the same
pairs.

Every agent is also left out of the certificates, and of the training where this takes seconds. That
document is stored next to the certificates and bound to their hashes and to those of what they
depend on, so pages, checks and overviews read it, and it is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.agents import (
    FEWEST_AGENTS,
    AgentError,
    agent_shift,
    leave_one_agent_out,
)
from certify_assets.certificates.auroc import (
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
from certify_assets.files import rounded, stored_as
from certify_assets.judges.base import score_table
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import JUDGES
from certify_assets.operations.certifier import deciding_certificates

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Rendered

FoldsDocument = dict[str, Any]
#: what the document of folds is of
_BOUND: Final = ("adapter_sha256", "manifest_sha256", "scores_sha256")
#: training runs over all agents left out: about a minute of a lexical judge on runs of 6,000
#: characters; with more, the judge is not trained again
MOST_RUNS: Final = 20_000


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


def evaluate_agent_folds(judge: JudgedCorpus, *, folds: int = 4, seed: int = 42) -> FoldsDocument:
    """Train a judge without some agents and read it on them, fold by fold; store the document.

    Returns
    -------
    dict
        The folds, those that cannot be trained or read (``left_out``), and on the ``rows`` that all
        scored AUROC over pairs of one fold and of one agent: of the judge without the agents
        (``disjoint``), with as many runs of all agents (``trained_on_as_many``; not of a language
        model) and with all runs (``trained_on_all``); ``difference`` is the first minus the last.
    """
    spec = judge.spec
    if not spec.retrainable:
        raise InputError(
            f"{judge} is not trained on SFT alone; ask for one of {', '.join(fold_judges())}."
        )
    rows, hashes, _ = judge.calibration
    # the rows on which all judges are compared
    cal = rows[rows["split"] == "cal"].reset_index(drop=True)
    agents, outcomes = cal["agent"].astype(str), cal["outcome"].to_numpy(np.float64)
    sft = judge.corpus.split("sft")
    sft = sft[sft["outcome"].notna()]
    runs = runs_of(judge, cal)
    names = ["disjoint"] + ["trained_on_as_many"] * (not spec.uses_language_model)
    scores = {name: np.full(len(cal), np.nan) for name in names}
    scores["trained_on_all"] = cal["score"].to_numpy(np.float64)
    owner = np.full(len(cal), -1)
    made, left_out = list[FoldsDocument](), list[FoldsDocument]()
    for number, held in enumerate(agent_groups([*sft["agent"], *agents], folds, seed)):
        inside, known = agents.isin(held).to_numpy(), runs_without(sft, held)
        if known is None or not inside.any():
            reason = (
                "the SFT runs of the others do not have both outcomes"
                if inside.any()
                else "no CAL run is theirs"
            )
            left_out.append({"agents": held, "reason": reason})
            continue
        # fewer runs cost something too: as many, of all agents, tell the two apart
        places = np.random.default_rng([seed, number]).choice(len(sft), len(known), replace=False)
        read = runs[inside]
        rendered = render_frame(read, judge.renderer)
        for name, training in zip(names, (known, sft.iloc[np.sort(places)]), strict=False):
            if training["outcome"].nunique() == 2:
                place = f"agent_fold_{number}"
                scores[name][inside] = _retrained_scores(judge, training, place, read, rendered)
        owner[inside] = number
        unseen, seen = (
            auroc(scores[name][inside], outcomes[inside]) for name in ("disjoint", "trained_on_all")
        )
        made.append(
            {
                "agents": held,
                "sft_runs": len(known),
                "cal_runs": int(inside.sum()),
                "auroc": unseen if np.isfinite(unseen) else None,
                "auroc_trained_on_all": seen if np.isfinite(seen) else None,
            }
        )
    if not made:
        raise InputError(
            f"no fold over the agents of {judge.corpus} can be trained: "
            f"{left_out[0]['reason']}; import runs of more agents."
        )
    figures = _figures(cal, scores, owner)
    found: FoldsDocument = rounded(
        {
            "schema": "certify_assets/agent_disjoint/1",
            "corpus": judge.corpus.name,
            "judge": judge.name,
            "folds": made,
            "left_out": left_out,
            "seed": seed,
            **figures,
            "caveat": pretraining_caveat([judge.name], agents),
            "sentence": _sentence(judge.name, figures),
            **{name: hashes[name] for name in _BOUND},
        }
    )
    judge.store.write_json(agent_folds_key(judge.corpus.name, judge.name), found)
    return found


def _figures(
    cal: pd.DataFrame, scores: Mapping[str, NDArray[np.float64]], owner: NDArray[np.int64]
) -> FoldsDocument:
    """Return AUROC by judge on the rows that all scored, and the difference."""
    kept = (owner >= 0) & np.isfinite(np.stack(list(scores.values()))).all(axis=0)
    outcomes = cal["outcome"].to_numpy(np.float64)[kept]
    resamples = task_resamples(name_codes(cal["task_id"].to_numpy(object)[kept]))
    groups = {"auroc": owner[kept], "within_agent": name_codes(cal["agent"].to_numpy(object)[kept])}
    rankings = {
        judge: {what: Ranking.of(values[kept], outcomes, of) for what, of in groups.items()}
        for judge, values in scores.items()
    }
    return {
        "rows": int(kept.sum()),
        **{
            judge: {what: ranking.estimate(resamples) for what, ranking in ranked.items()}
            for judge, ranked in rankings.items()
        },
        "difference": {
            what: paired_difference(
                rankings["disjoint"][what], rankings["trained_on_all"][what], resamples
            )
            for what in groups
        },
    }


def evaluate_scored(
    corpus: Corpus, judges: Sequence[str], *, folds: int = 4, seed: int = 42
) -> tuple[list[FoldsDocument], list[dict[str, str]]]:
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


def stored_agent_folds(corpus: Corpus) -> list[FoldsDocument]:
    """Return the evaluations of the artifacts and scores that are stored now."""
    found: list[FoldsDocument] = []
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


def runs_of(judge: JudgedCorpus, table: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a table of labelled scores that may certify, in its order."""
    frame = judge.labelled_runs(judge.calibration_splits)
    return frame.set_index("trajectory_id").loc[table["trajectory_id"]].reset_index()


def runs_without(sft: pd.DataFrame, agents: Sequence[str]) -> pd.DataFrame | None:
    """Return the training runs of the other agents; None where they lack one of both outcomes."""
    known = sft[~sft["agent"].astype(str).isin(agents)]
    return known if known["outcome"].nunique() == 2 else None


def _retrained_scores(
    judge: JudgedCorpus,
    training: pd.DataFrame,
    place: str,
    runs: pd.DataFrame,
    rendered: Sequence[Rendered],
) -> NDArray[np.float64]:
    model = judge.family.retrained(judge, training, place)
    scored = score_table(model, runs, judge.renderer, rendered=rendered)
    return np.asarray(scored["score"], np.float64)


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


def _sentence(judge: str, figures: FoldsDocument) -> str:
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


@dataclass(frozen=True, kw_only=True)
class LeftOutAgents:
    """What the certificates of a judge say of agents that they, and it, have not seen."""

    corpus: str
    judge: str
    #: of the artifact, the splits, the scores and the runs that it is of
    hashes: Mapping[str, str]
    #: why the judge saw the agents that are left out; empty where it saw none of them
    seen: str
    #: by the hash of each certificate of the deciding procedure; empty where nothing is certified,
    #: and below three agents
    errors: Mapping[str, tuple[AgentError, ...]]
    #: code `agent_shift`, a sentence for each certificate that it is on
    findings: tuple[Mapping[str, str], ...]
    schema: Literal[1] = 1


def left_out_agents(judge: JudgedCorpus) -> LeftOutAgents:
    """Return the stored document of the present certificates, or make and store it."""
    found = stored_left_out_agents(judge)
    if found is not None:
        return found
    cal, hashes, _ = judge.calibration
    certificates = deciding_certificates(judge)
    agents = sorted({str(name) for name in cal["agent"]})
    unseen, seen = dict[str, NDArray[np.float64]](), ""
    if any(item.certified for item in certificates) and len(agents) >= FEWEST_AGENTS:
        unseen, seen = _unseen(judge, cal, agents)
    errors: dict[str, tuple[AgentError, ...]] = {}
    findings = []
    for item in sorted(certificates, key=lambda item: item.sha256):
        rows = leave_one_agent_out(item, *columns(cal), cal["agent"].to_numpy(), unseen=unseen)
        errors[item.sha256] = tuple(rows)
        if shift := agent_shift(rows, item.alpha):
            message = f"{item.side.capitalize()} at {item.alpha:g}: {shift}"
            findings.append({"code": "agent_shift", "message": message})
    found = LeftOutAgents(
        corpus=judge.corpus.name,
        judge=judge.name,
        hashes=hashes,
        seen=seen,
        errors=errors,
        findings=tuple(findings),
    )
    judge.store.write_json(judge.key("agents.json"), asdict(found))
    return found


def stored_left_out_agents(judge: JudgedCorpus) -> LeftOutAgents | None:
    """Return the stored document; None where there is none of the present certificates."""
    if not judge.store.exists(judge.key("agents.json")):
        return None
    try:
        found = stored_as(LeftOutAgents, judge.store.read_json(judge.key("agents.json")))
    except InputError:
        # made again from what it is of
        return None
    _, hashes, _ = judge.calibration
    known = {item.sha256 for item in deciding_certificates(judge)}
    return found if found.hashes == hashes and set(found.errors) == known else None


def _unseen(
    judge: JudgedCorpus, cal: pd.DataFrame, agents: list[str]
) -> tuple[dict[str, NDArray[np.float64]], str]:
    """Return scores of judges that were trained without each agent, and why some have none."""
    spec, corpus = judge.spec, judge.corpus
    if spec.needs_other_corpora:
        return {}, f"{judge} is trained on other corpora, which may have runs of them"
    if pretraining_caveat([judge.name], agents):
        return {}, f"the compact model below {judge} was pretrained on runs of some of them"
    frames = {split: corpus.split(split) for split in spec.training_splits}
    trained_on = {str(name) for frame in frames.values() for name in frame["agent"]}
    scores = cal["score"].to_numpy(np.float64)
    unseen = {agent: scores for agent in agents if agent not in trained_on}
    rest = [agent for agent in agents if agent in trained_on]
    if not rest:
        return unseen, ""
    if not (spec.retrainable and spec.quick):
        return unseen, f"{judge} takes longer than seconds to train"
    sft = frames["sft"][frames["sft"]["outcome"].notna()]
    if len(rest) * len(sft) > MOST_RUNS:
        return unseen, f"training {judge} without each of {len(rest)} agents takes too long"
    runs = runs_of(judge, cal)
    rendered = render_frame(runs, judge.renderer)
    alone = []
    for agent in rest:
        known = runs_without(sft, [agent])
        if known is None:
            alone.append(agent)
            continue
        unseen[agent] = _retrained_scores(judge, known, "left_out", runs, rendered)
    if not alone:
        return unseen, ""
    return unseen, f"without {', '.join(alone)} the training runs do not have both outcomes"
