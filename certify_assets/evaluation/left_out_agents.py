"""Every agent left out of a judge's certificates, and of its training where this takes seconds.

The document is stored next to the certificates and bound to their hashes and to those of what they
depend on, so pages, checks and overviews read it, and it is made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from certify_assets.certificates.agents import (
    FEWEST_AGENTS,
    AgentError,
    agent_shift,
    leave_one_agent_out,
)
from certify_assets.certificates.certificate import Certificate
from certify_assets.corpora.rendering import render_frame
from certify_assets.errors import InputError
from certify_assets.evaluation.agent_folds import pretraining_caveat, runs_of, runs_without
from certify_assets.evaluation.certification import deciding_certificates
from certify_assets.files import stored_as
from certify_assets.judges.base import score_table
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

#: training runs over all agents left out: about a minute of a lexical judge on runs of 6,000
#: characters; with more, the judge is not trained again
MOST_RUNS: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class LeftOutAgents:
    """What the certificates of a judge say of agents that they, and it, have not seen."""

    SCHEMA: ClassVar[int] = 1

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

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        return {"schema": self.SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LeftOutAgents:
        """Read a stored document; an `InputError` says that it is none."""
        found = stored_as(cls, document)
        if document.get("schema") != cls.SCHEMA:
            raise InputError("it has another schema; make it again.")
        return found


def left_out_agents(judge: JudgedCorpus) -> LeftOutAgents:
    """Return the stored document of the present certificates, or make and store it."""
    found = stored_left_out_agents(judge)
    if found is None:
        cal, hashes, _ = judge.calibration
        found = _measured(judge, deciding_certificates(judge), cal, hashes)
        judge.store.write_json(judge.key("agents.json"), found.to_dict())
    return found


def stored_left_out_agents(judge: JudgedCorpus) -> LeftOutAgents | None:
    """Return the stored document; None where there is none of the present certificates."""
    if not judge.store.exists(judge.key("agents.json")):
        return None
    try:
        found = LeftOutAgents.from_dict(judge.store.read_json(judge.key("agents.json")))
    except InputError:
        # made again from what it is of
        return None
    _, hashes, _ = judge.calibration
    known = {item.sha256 for item in deciding_certificates(judge)}
    return found if found.hashes == hashes and set(found.errors) == known else None


def _measured(
    judge: JudgedCorpus,
    certificates: list[Certificate],
    cal: pd.DataFrame,
    hashes: Mapping[str, str],
) -> LeftOutAgents:
    agents = sorted({str(name) for name in cal["agent"]})
    needed = any(item.certified for item in certificates) and len(agents) >= FEWEST_AGENTS
    unseen: dict[str, NDArray[np.float64]] = {}
    seen = ""
    if needed:
        unseen, seen = _unseen(judge, cal, agents)
    errors: dict[str, tuple[AgentError, ...]] = {}
    findings = []
    for item in sorted(certificates, key=lambda item: item.sha256):
        rows = leave_one_agent_out(item, *columns(cal), cal["agent"].to_numpy(), unseen=unseen)
        errors[item.sha256] = tuple(rows)
        if shift := agent_shift(rows, item.alpha):
            message = f"{item.side.capitalize()} at {item.alpha:g}: {shift}"
            findings.append({"code": "agent_shift", "message": message})
    return LeftOutAgents(
        corpus=judge.corpus.name,
        judge=judge.name,
        hashes=dict(hashes),
        seen=seen,
        errors=errors,
        findings=tuple(findings),
    )


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
        model = judge.family.retrained(judge, known, "left_out")
        scored = score_table(model, runs, judge.renderer, rendered=rendered)
        unseen[agent] = scored["score"].to_numpy(np.float64)
    if not alone:
        return unseen, ""
    return unseen, f"without {', '.join(alone)} the training runs do not have both outcomes"
