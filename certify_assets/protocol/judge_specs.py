"""Which judges the platform runs: one line each. Every judge gets the same chain of assets and the same certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.judges.endpoint.config import EndpointConfig

__all__ = [
    "ALPHAS",
    "DELTA",
    "ENDPOINT",
    "GRID",
    "JUDGES",
    "LANGUAGE_JUDGES",
    "PROCEDURES",
    "SIDES",
    "TRANSFER_JUDGES",
    "JudgeSpec",
    "judge_problems",
    "judge_spec",
    "judges",
]

ALPHAS = (0.1, 0.2)
DELTA = 0.05
GRID = 40
SIDES = ("reject", "release")
# the first one decides; the others stand beside it on the page
PROCEDURES = ("guarded_taskboot", "taskboot", "naive")
#: family of the judges that users add
ENDPOINT = "endpoint"
# groups of other assets
_TAKEN = ("corpora", "embedded", "monitoring", "study")


@dataclass(frozen=True)
class JudgeSpec:
    """A judge and its candidates.

    Parameters
    ----------
    name : str
        Key prefix and group of its assets.
    success_weights : tuple of float
        Weights on successes in training. More than one: the weight is picked on CAL by certified coverage, and every certificate of
        this judge is computed at a level divided by their number.
    summary : str
        One sentence for the asset page.
    seed : int
        Seed of the training.
    family : {"lexical", "base", "sft", "grpo"}
        How it is made; all but the first read a language model.
    model : str
        Base model: "compact", a folder, or the name of a hub repository.
    revision : str or None
        Commit of the repository.
    start : str
        Judge whose adapter the training starts from.
    pool : {"", "transfer", "transfer_strict"}
        Whose SFT splits it is trained on: the corpus's own, those of every other corpus, or of every other domain.
    endpoint : EndpointConfig or None
        Server and question of a judge of family "endpoint".
    """

    name: str
    success_weights: tuple[float, ...]
    summary: str
    seed: int = 42
    family: str = "lexical"
    model: str = ""
    revision: str | None = None
    start: str = ""
    pool: str = ""
    endpoint: EndpointConfig | None = None

    @property
    def chooses(self) -> bool:
        """Whether it is picked among candidates on CAL."""
        return len(self.success_weights) > 1 or self.family == "grpo"

    def registration(self) -> object:
        """Return what is registered before TEST is read."""
        if self.pool:
            return {"family": self.family, "model": self.model, "revision": self.revision, "pool": self.pool}
        if self.family == "lexical":
            return list(self.success_weights)
        if self.endpoint is not None:
            return {"family": self.family, "settings_sha256": self.endpoint.sha256}
        return {"family": self.family, "model": self.model, "revision": self.revision, "start": self.start}


JUDGES = {
    spec.name: spec
    for spec in (
        JudgeSpec("lexical", (1.0,), "TF-IDF and logistic regression, trained on the SFT split."),
        JudgeSpec(
            "lexical_weighted",
            (1.0, 3.0, 10.0, 30.0),
            "The lexical judge with a weight on successes, picked on CAL by certified reject coverage and paid for in the level.",
        ),
        JudgeSpec("base", (1.0,), "The compact language model as it comes, read at the verdict's place.", family="base", model="compact"),
        JudgeSpec(
            "sft", (1.0,), "The compact language model with LoRA, fine-tuned on verdicts of the SFT split.", family="sft", model="compact"
        ),
        JudgeSpec(
            "grpo",
            (1.0,),
            "The fine-tuned judge trained on by exact GRPO on the RL split; arm and step picked on CAL and paid for in the level.",
            family="grpo",
            model="compact",
            start="sft",
        ),
        JudgeSpec("lexical_transfer", (1.0,), "The lexical judge, trained on the SFT splits of every other corpus.", pool="transfer"),
        JudgeSpec(
            "lexical_transfer_strict",
            (1.0,),
            "The lexical judge, trained on the SFT splits of every corpus of another domain.",
            pool="transfer_strict",
        ),
        JudgeSpec(
            "transfer",
            (1.0,),
            "The compact language model, fine-tuned on the SFT splits of every other corpus.",
            family="sft",
            model="compact",
            pool="transfer",
        ),
        JudgeSpec(
            "transfer_strict",
            (1.0,),
            "The compact language model, fine-tuned on the SFT splits of every corpus of another domain.",
            family="sft",
            model="compact",
            pool="transfer_strict",
        ),
    )
}


#: judges that train or read a language model: minutes on two cores where the others need seconds
LANGUAGE_JUDGES = tuple(name for name, spec in JUDGES.items() if spec.family != "lexical" and not spec.pool)

#: judges that need other corpora in the data root
TRANSFER_JUDGES = tuple(name for name, spec in JUDGES.items() if spec.pool)


def judges(root: str | None = None) -> dict[str, JudgeSpec]:
    """Return every judge: those of the platform, then those that the user's document adds; a broken document adds none.

    Parameters
    ----------
    root : str, optional
        The data root; this process's by default.
    """
    from certify_assets.protocol.configured import configured_judges

    found = configured_judges(root, taken=(*JUDGES, *_TAKEN)).judges
    return JUDGES | {name: _endpoint_spec(name, config) for name, config in found.items()}


def judge_problems(root: str | None = None) -> tuple[str, ...]:
    """Return a sentence on each judge of the user's document that cannot be used."""
    from certify_assets.protocol.configured import configured_judges

    return configured_judges(root, taken=(*JUDGES, *_TAKEN)).problems


def judge_spec(name: str, root: str | None = None) -> JudgeSpec:
    """Return a judge's specification.

    Raises
    ------
    InputError
        If there is no such judge; the sentence lists those that exist, and what is wrong with the user's document.
    """
    # without the user's document, where it is not needed
    if name in JUDGES:
        return JUDGES[name]
    known = judges(root)
    if name not in known:
        raise InputError(" ".join([f"there is no judge {name!r}; name one of {', '.join(known)}.", *judge_problems(root)]))
    return known[name]


def _endpoint_spec(name: str, config: EndpointConfig) -> JudgeSpec:
    how = {"logprob": "read at its first token", "cot": "asked for a probability in words"}.get(
        config.asking.mode, f"asked {config.asking.votes} times for a vote"
    )
    summary = f"{config.server.model} behind {config.server.plain_url}, {how}; nothing is trained."
    return JudgeSpec(name, (1.0,), summary, family=ENDPOINT, model=config.server.model, revision=config.server.revision, endpoint=config)
