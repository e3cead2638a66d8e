"""Judges reinforced by GRPO: arms are trained on RL, and one is chosen on CAL at a divided δ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import score_table
from certify_assets.judges.configured import Entry, NamedEntry, Seed
from certify_assets.judges.families.causal import CausalFamily, base_judge
from certify_assets.judges.family import certify_candidates
from certify_assets.judges.lm.grpo import GrpoConfig, GrpoRun, single_tokens
from certify_assets.judges.lm.reward import ARMS, Arm, arm_of
from certify_assets.judges.reading import COMPACT
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.spec import CausalSpec, JudgeSpec
from certify_assets.judges.specs import judge_family
from certify_assets.judges.stored import StoredJudge
from certify_assets.work import Advance, Report, reported

if TYPE_CHECKING:
    import pandas as pd

#: name of the judge that every arm starts from, which is a candidate itself
START = "start"
_LARGEST_COST, _MOST_STEPS, _MOST_PER_STEP = 1e6, 10**6, 10**4
# how a certificate words the choice
_RULE = (
    "the largest certified coverage on CAL among {count} candidates ({names}), each certified at "
    "delta over their number; start on a tie (at alpha {alpha:g})"
)


class RewardEntry(Entry):
    """The costs of errors in the reward of GRPO; a right verdict earns 1."""

    lam: float = Field(
        default=1.0,
        alias="lambda",
        ge=0,
        le=_LARGEST_COST,
        description="calling a failure a success",
    )
    mu: float = Field(
        default=1.0, ge=0, le=_LARGEST_COST, description="calling a success a failure"
    )


class GrpoEntry(NamedEntry):
    """A judge of the family sft that GRPO trains on; it reads what that judge reads."""

    family: Literal["grpo"]
    start: str = Field(default="sft", description="judge of the family sft that it starts from")
    optimiser: Literal["exact", "trl"] = Field(
        default="exact", description="exact (the expected gradient) or trl (TRL's, with samples)"
    )
    rewards: list[RewardEntry] | None = Field(
        default=None,
        min_length=1,
        description="candidates; by default accuracy, mu 3, mu 5 and lambda 5",
    )
    steps: list[Annotated[int, Field(ge=1, le=_MOST_STEPS)]] | None = Field(
        default=None, description="numbers of steps that are candidates; the last ends the training"
    )
    samples: int = Field(default=8, ge=2, le=_MOST_PER_STEP, description="completions of a prompt")
    prompts_per_step: int = Field(default=6, ge=1, le=_MOST_PER_STEP)
    learning_rate: float | None = Field(default=None, gt=0, le=1)
    seed: Seed = 42

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        given = self.model_dump(exclude={"rewards"}, exclude_none=True)
        if self.rewards is None:
            return given
        return {**given, "rewards": [arm_of(reward.lam, reward.mu) for reward in self.rewards]}


class GrpoSpec(CausalSpec):
    """A fine-tuned judge trained on by GRPO on the RL split.

    Arm and step are picked on CAL and paid for in the level.
    """

    training_splits = ("sft", "rl")

    family: Literal["grpo"] = "grpo"
    # the expected gradient, or TRL's sampled one
    optimiser: Literal["exact", "trl"] = "exact"
    # the candidates, the last being the end of the training; empty for those that suit the model
    steps: tuple[int, ...] = ()
    rewards: tuple[Arm, ...] = tuple(ARMS.values())
    # completions of a prompt; the exact optimiser draws none and takes the factor (n − 1)/n of them
    samples: int = 8
    prompts_per_step: int = 6
    # None for the one that suits the model
    learning_rate: float | None = None

    def model_post_init(self, context: object, /) -> None:
        """Refuse steps out of order, and a repeated reward."""
        if list(self.steps) != sorted(set(self.steps)):
            raise InputError(
                f"the steps of {self.name} are {self.steps}; "
                "give whole numbers from 1, each once and in order."
            )
        names = [arm.name for arm in self.rewards]
        if len(set(names)) < len(names):
            raise InputError(
                f"the rewards of {self.name} are {', '.join(names)}; give each pair of lambda and "
                "mu once."
            )

    @property
    def config(self) -> GrpoConfig:
        """The paper's settings, with rate and steps that suit the model."""
        recipe = self.training
        steps, usual = self.steps or recipe.grpo_steps, recipe.grpo_learning_rate
        sampled = self.optimiser == "trl"
        # a sampled step takes twenty times as long as an exact one
        often = 5 if sampled else recipe.checkpoint_steps
        return GrpoConfig(
            sampled=sampled,
            learning_rate=usual if self.learning_rate is None else self.learning_rate,
            steps=steps[-1],
            evaluate_at=steps,
            prompts_per_step=self.prompts_per_step,
            samples=self.samples,
            save_every=min(often, steps[-1]),
            seed=self.seed,
        )

    @property
    def candidates(self) -> int:
        """The start, and every arm after each number of steps."""
        return 1 + len(self.rewards) * len(self.config.evaluate_at)

    def resolved(self, known: Mapping[str, JudgeSpec]) -> GrpoSpec:
        """Take the model and its reading from the judge that it starts from."""
        before = known.get(self.start)
        if before is None or before.family != "sft":
            tuned = [name for name, spec in known.items() if spec.family == "sft"]
            raise InputError(
                f"start is {self.start!r}, and GRPO starts from a judge of the family sft; name "
                f"one of {', '.join(tuned)}, or write it above."
            )
        taken = {name: getattr(before, name) for name in ("model", "revision", "reading")}
        return self.model_copy(update=taken)

    @property
    def settings(self) -> dict[str, Any]:
        """The training settings of its arms, as in its record."""
        return {
            "optimiser": self.optimiser,
            "config": {
                **asdict(self.config),
                "evaluate_at": list(self.config.evaluate_at),
                "global_batch": self.prompts_per_step * self.samples,
            },
            "arms": {arm.name: arm.costs() for arm in self.rewards},
        }


@judge_family("grpo")
class GrpoFamily(CausalFamily):
    """GRPO on RL from another judge; the arm and the step are chosen on CAL at a divided δ."""

    entry = GrpoEntry
    spec = GrpoSpec
    judges = (GrpoSpec(name="grpo", model="compact", reading=COMPACT, start="sft"),)

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Train every arm, and keep the start or the arm and step that certify most on CAL."""
        spec, start, rl = _spec(judge), judge.sibling(judge.spec.start), judge.labelled_runs(["rl"])
        single_tokens(base_judge(judge).language.verdicts)
        if not start.is_trained:
            raise InputError(
                f"{judge} starts from {start}, which is not trained on {judge.corpus}; run "
                f"`certify judge train {judge.corpus} --judge {start}` first."
            )
        if rl.empty:
            raise InputError(
                f"{judge.corpus} has no RL split, so nothing can be reinforced; import it with "
                f"--set rl=true, or leave {judge} out."
            )
        before, curves = start.artifact, {}
        with (
            judge.store.workplace(judge.key("training")) as folder,
            start.artifact_files() as adapter,
        ):
            place = folder / _run(judge, before)
            adapters = {START: adapter}
            for arm in spec.rewards:
                curves[arm.name] = _reinforce(
                    judge, arm, rl, start=adapter, folder=place / arm.name, report=report
                )
                for step in spec.config.evaluate_at:
                    adapters[f"{arm.name}_{step}"] = place / arm.name / f"step_{step}"
            tables = {
                name: _calibration_scores(judge, name, at, folder / "shards", report)
                for name, at in adapters.items()
            }
            rows = certify_candidates(tables, judge.corpus.config)
            chosen = max(rows, key=lambda row: (row["coverage"], row["name"] == START))["name"]
            # of SFT, which its start read, where its record says so
            read = {
                name: rows for name, rows in before.detail("training").items() if name == "rows"
            }
            names = ", ".join(tables)
            return self._record(
                judge,
                base_judge(judge).with_adapter(adapters[chosen]),
                judge.corpus.split("sft"),
                chosen=chosen,
                training={
                    **spec.settings,
                    "loss_curves": curves,
                    "rl_trajectories": len(rl),
                    **read,
                },
                starts={spec.start: before.adapter_sha256},
                candidates=len(rows),
                selection=tuple(rows),
                selection_rule=_RULE.format(count=len(rows), names=names, alpha=rows[0]["alpha"]),
            )

    def describe(self, record: JudgeRecord) -> str:
        """Describe the SFT rows that its start read, and the RL prompts that the arm used."""
        training = record.detail("training")
        said = super().describe(record)
        by = f"{training['rl_trajectories']} runs of RL by {optimised_by(training)}"
        chosen = str(record.details["chosen"])
        if chosen == START:
            return f"{said}; the start was kept, for no arm on {by} certified more"
        prompts = int(chosen.rpartition("_")[2]) * training["config"]["prompts_per_step"]
        return f"{said}, then {prompts} prompts of {by}"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return the optimiser."""
        return {"optimiser": optimised_by(record.detail("training"))}


def optimised_by(training: Mapping[str, Any]) -> str:
    """Describe the optimiser of a record's training, with its samples."""
    samples = training["config"]["samples"]
    if training["optimiser"] == "trl":
        return f"GRPO of TRL, {samples} samples a prompt"
    return f"exact GRPO, the expectation over {samples} samples a prompt"


def _spec(judge: StoredJudge) -> GrpoSpec:
    spec = judge.spec
    assert isinstance(spec, GrpoSpec)
    return spec


def _run(judge: StoredJudge, before: JudgeRecord) -> str:
    """Name the folder of the arms by everything they depend on, so that others do not interfere."""
    corpus, spec = judge.corpus, _spec(judge)
    depends = [corpus.trajectories_sha256, corpus.manifest.sha256, before.adapter_sha256]
    about = [*depends, spec.settings, spec.reading.model_dump(), spec.model, spec.revision]
    return sha256_bytes(canonical_json(about))[:12]


def _reinforce(
    judge: StoredJudge,
    arm: Arm,
    rl: pd.DataFrame,
    *,
    start: Path,
    folder: Path,
    report: Report,
) -> list[dict[str, float]]:
    """Train an arm, or resume it, and keep its adapter after each number of steps."""
    from certify_assets.judges.lm.adapters import load_adapter, save_adapter

    base = base_judge(judge)
    language, _ = load_adapter(base.language, start, trainable=True)
    about = {
        "base": language.source,
        "base_revision": language.revision,
        "arm": arm.name,
        "start": judge.spec.start,
    }

    def keep(step: int) -> None:
        document = {**about, "steps": step}
        save_adapter(language.model, folder / f"step_{step}", document, source=language.source)

    prompts, outcomes = base.encoder.encode_frame(rl), [int(outcome) for outcome in rl["outcome"]]
    log = GrpoRun(language, prompts, outcomes, arm, _spec(judge).config).train(
        folder / "checkpoints",
        evaluate=keep,
        progress=lambda step, steps, loss: report(Advance(f"grpo {arm.name}", step, steps, loss)),
    )
    return [{"step": entry["step"], "loss": entry["loss"]} for entry in log]


def _calibration_scores(
    judge: StoredJudge, name: str, adapter: Path, shards: Path, report: Report
) -> pd.DataFrame:
    """Score the labelled runs of CAL with a candidate."""
    model = replace(
        base_judge(judge).with_adapter(adapter),
        shards=shards,
        progress=reported(report, f"scoring cal with {name}"),
    )
    return score_table(model, judge.labelled_runs(["cal"]), judge.spec.reading.renderer)
