"""What the certificates of a judge say of agents that they have not seen.

Every agent is left out of the certificates in turn, and of the training where this takes seconds.
The document is stored next to the certificates and bound to what it is of, so that pages, checks
and overviews read it, and it is made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.agents import (
    FEWEST_AGENTS,
    AgentError,
    agent_shift,
    leave_one_agent_out,
)
from certify_assets.documents import Document
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.model_files import Fold
from certify_assets.judges.record import columns
from certify_assets.operations.agent_folds import known_without, training_and
from certify_assets.operations.certifier import deciding_certificates
from certify_assets.words import WORDS

if TYPE_CHECKING:
    import pandas as pd

#: training runs over all agents left out: about a minute of a lexical judge on runs of 6,000
#: characters; with more, the judge is not trained again
MOST_RUNS: Final = 20_000


class LeftOutAgents(Document):
    """What the certificates of a judge say of agents that they, and it, have not seen."""

    TITLE = "evaluation of agents left out"
    SCHEMA = 1

    corpus: str
    judge: str
    #: of the artifact, the splits, the scores and the runs that it is of
    hashes: dict[str, str]
    #: why the judge saw the agents that are left out; empty where it saw none of them
    seen: str
    #: by the hash of each certificate of the deciding procedure; empty where nothing is certified,
    #: and below three agents
    errors: dict[str, tuple[AgentError, ...]]
    #: code `agent_shift`, a sentence for each certificate that it is on
    findings: tuple[dict[str, str], ...]


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
            message = f"{WORDS[item.side].capitalize()} at {item.alpha:g}: {shift}"
            findings.append({"code": "agent_shift", "message": message})
    found = LeftOutAgents(
        corpus=judge.corpus.name,
        judge=judge.name,
        hashes=hashes,
        seen=seen,
        errors=errors,
        findings=tuple(findings),
    )
    judge.store.write_json(judge.key("agents.json"), found.to_dict())
    return found


def stored_left_out_agents(judge: JudgedCorpus) -> LeftOutAgents | None:
    """Return the stored document; None where there is none of the present certificates."""
    try:
        found = LeftOutAgents.from_dict(judge.read("agents.json"))
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
    if spec.reads_compact:
        return {}, f"the compact model below {judge} may have seen their runs in its pretraining"
    frames = {split: corpus.split(split) for split in spec.training_splits}
    trained_on = {str(name) for frame in frames.values() for name in frame["agent"]}
    scores = cal["score"].to_numpy(np.float64)
    unseen = {agent: scores for agent in agents if agent not in trained_on}
    rest = [agent for agent in agents if agent in trained_on]
    if not rest:
        return unseen, ""
    if not (spec.retrainable and spec.quick):
        return unseen, f"{judge} takes longer than seconds to train"
    runs, sft = training_and(judge, cal)
    if len(rest) * sft > MOST_RUNS:
        return unseen, f"training {judge} without each of {len(rest)} agents takes too long"
    known = {agent: known_without(runs[:sft], [agent]) for agent in rest}
    folds = {
        agent: Fold(places, np.arange(sft, len(runs)))
        for agent, places in known.items()
        if places is not None
    }
    for agent, (_, found) in zip(
        folds, judge.family.held_out(judge, runs, [*folds.values()]), strict=True
    ):
        unseen[agent] = found.score
    alone = [agent for agent in rest if agent not in folds]
    if not alone:
        return unseen, ""
    return unseen, f"without {', '.join(alone)} the training runs do not have both outcomes"
