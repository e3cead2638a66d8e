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
    "HARVEST_JUDGES",
    "JUDGES",
    "LANGUAGE_JUDGES",
    "OPTIMISERS",
    "PROCEDURES",
    "QUICK_JUDGES",
    "SIDES",
    "TRANSFER_JUDGES",
    "JudgeSpec",
    "judge_before",
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
OPTIMISERS = ("exact", "trl")
#: family of the judges that users add
ENDPOINT = "endpoint"
# groups of other assets, which jobs select by, and the leak controls of a comparison
_TAKEN = (
    "corpora",
    "embedded",
    "monitoring",
    "study",
    "comparison",
    "models",
    "length_only",
    "step_count",
    "agent_only",
    "operation",
)


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
    family : {"lexical", "base", "sft", "grpo", "harvest", "endpoint"}
        How it is made; all but the first read a language model, a harvest where it names one.
    model : str
        Base model: "compact", a folder, or the name of a hub repository.
    revision : str or None
        Commit of the repository.
    start : str
        Judge whose adapter the training starts from; for a harvest, the judge whose certificate gates it.
    pool : {"", "transfer", "transfer_strict"}
        Whose SFT splits it is trained on: the corpus's own, those of every other corpus, or of every other domain.
    alpha, gate
        Of a harvest: budget of wrong pseudo-labels, and the procedure that certifies half A.
    optimiser : {"exact", "trl"}
        Of the family grpo: the expected gradient, or TRL's sampled one.
    steps : tuple of int
        Of the family grpo: numbers of optimizer steps that are candidates, the last being the end of the training; empty for those that suit
        the model.
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
    alpha: float = 0.2
    gate: str = "guarded_taskboot"
    optimiser: str = "exact"
    steps: tuple[int, ...] = ()

    endpoint: EndpointConfig | None = None

    def __post_init__(self) -> None:
        if self.optimiser not in OPTIMISERS:
            raise InputError(
                f"the optimiser of {self.name} is {self.optimiser!r}; give one of {', '.join(OPTIMISERS)}."
            )
        if list(self.steps) != sorted({step for step in self.steps if step > 0}):
            raise InputError(
                f"the steps of {self.name} are {self.steps}; give whole numbers from 1, each once and in order."
            )

    @property
    def chooses(self) -> bool:
        """Whether it is picked among candidates on CAL."""
        return len(self.success_weights) > 1 or self.family == "grpo"

    @property
    def training_splits(self) -> tuple[str, ...]:
        """Splits of the corpus whose runs, with their labels or with pseudo-labels, it is trained on."""
        if self.pool or self.family in {"base", ENDPOINT}:
            return ()
        return ("sft", "rl") if self.family in {"grpo", "harvest"} else ("sft",)

    def registration(self) -> object:
        """Return what is registered before TEST is read."""
        if self.pool:
            return {
                "family": self.family,
                "model": self.model,
                "revision": self.revision,
                "pool": self.pool,
            }
        if self.family == "lexical":
            return list(self.success_weights)
        if self.endpoint is not None:
            return {"family": self.family, "settings_sha256": self.endpoint.sha256}
        common: dict[str, object] = {
            "family": self.family,
            "model": self.model,
            "revision": self.revision,
            "start": self.start,
        }
        if self.family == "grpo":
            common |= {"optimiser": self.optimiser, "steps": list(self.steps)}
        return common | (
            {"alpha": self.alpha, "gate": self.gate} if self.family == "harvest" else {}
        )


def _rounds(name: str, start: str, model: str, words: str) -> tuple[JudgeSpec, JudgeSpec]:
    """Two rounds of CertHarvest; halves of CAL are small, so the budget of pseudo-labels is the larger one."""
    text = f"{words}, trained from its base on SFT and the runs that {{}} certifies as failures on half A of CAL; certified on half B."
    first = JudgeSpec(
        f"{name}_1", (1.0,), text.format(start), family="harvest", model=model, start=start
    )
    return first, JudgeSpec(
        f"{name}_2",
        (1.0,),
        text.format(first.name),
        family="harvest",
        model=model,
        start=first.name,
    )


JUDGES = {
    spec.name: spec
    for spec in (
        JudgeSpec("lexical", (1.0,), "TF-IDF and logistic regression, trained on the SFT split."),
        JudgeSpec(
            "lexical_weighted",
            (1.0, 3.0, 10.0, 30.0),
            "The lexical judge with a weight on successes, picked on CAL by certified reject coverage and paid for in the level.",
        ),
        JudgeSpec(
            "base",
            (1.0,),
            "The compact language model as it comes, read at the verdict's place.",
            family="base",
            model="compact",
        ),
        JudgeSpec(
            "sft",
            (1.0,),
            "The compact language model with LoRA, fine-tuned on verdicts of the SFT split.",
            family="sft",
            model="compact",
        ),
        JudgeSpec(
            "grpo",
            (1.0,),
            "The fine-tuned judge trained on by exact GRPO on the RL split; arm and step picked on CAL and paid for in the level.",
            family="grpo",
            model="compact",
            start="sft",
        ),
        JudgeSpec(
            "lexical_transfer",
            (1.0,),
            "The lexical judge, trained on the SFT splits of every other corpus.",
            pool="transfer",
        ),
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
        *_rounds("lexical_harvest", "lexical", "", "The lexical judge"),
        *_rounds("harvest", "sft", "compact", "The compact language model"),
    )
}

#: rounds of CertHarvest: jobs of their own
HARVEST_JUDGES = tuple(name for name, spec in JUDGES.items() if spec.family == "harvest")


#: judges that need seconds: what every corpus gets
QUICK_JUDGES = tuple(
    name for name, spec in JUDGES.items() if spec.family == "lexical" and not spec.pool
)

#: judges that train or read a language model: minutes on two cores where the others need seconds
LANGUAGE_JUDGES = tuple(
    name
    for name, spec in JUDGES.items()
    if spec.family not in {"lexical", "harvest"} and not spec.pool
)

#: judges that need other corpora in the data root
TRANSFER_JUDGES = tuple(name for name, spec in JUDGES.items() if spec.pool)


def judges(root: str | None = None) -> dict[str, JudgeSpec]:
    """Return every judge: those of the platform, then those that the user's document adds; a broken document adds none.

    Parameters
    ----------
    root : str, optional
        The data root; this process's by default.
    """
    from certify_assets.judges.configured import configured_judges

    found = configured_judges(root, taken=(*JUDGES, *_TAKEN)).judges
    return JUDGES | {name: _endpoint_spec(name, config) for name, config in found.items()}


def judge_problems(root: str | None = None) -> tuple[str, ...]:
    """Return a sentence on each judge of the user's document that cannot be used."""
    from certify_assets.judges.configured import configured_judges

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
        raise InputError(
            " ".join(
                [
                    f"there is no judge {name!r}; name one of {', '.join(known)}.",
                    *judge_problems(root),
                ]
            )
        )
    return known[name]


def judge_before(spec: JudgeSpec) -> str:
    """Return the judge that comes before another: the one that its training starts from, else the base judge of its model; "" for none."""
    if spec.start or not spec.model or spec.family in {"base", ENDPOINT}:
        return spec.start
    same = (
        name
        for name, other in JUDGES.items()
        if other.family == "base" and (other.model, other.revision) == (spec.model, spec.revision)
    )
    return next(same, "")


def _endpoint_spec(name: str, config: EndpointConfig) -> JudgeSpec:
    how = {"logprob": "read at its first token", "cot": "asked for a probability in words"}.get(
        config.asking.mode, f"asked {config.asking.votes} times for a vote"
    )
    summary = f"{config.server.model} behind {config.server.plain_url}, {how}; nothing is trained."
    return JudgeSpec(
        name,
        (1.0,),
        summary,
        family=ENDPOINT,
        model=config.server.model,
        revision=config.server.revision,
        endpoint=config,
    )
