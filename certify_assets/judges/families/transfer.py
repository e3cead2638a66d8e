"""Transfer judges: the judges of a corpus and their recipes, trained on rows of other corpora."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from certify_assets.corpora.config import format_domain
from certify_assets.errors import InputError
from certify_assets.judges.configured import TunedEntry
from certify_assets.judges.families.lexical import train_lexical
from certify_assets.judges.judged import DerivedFamily, JudgedCorpus, judge_family
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.reading import COMPACT, LEXICAL, JudgeInput
from certify_assets.judges.record import JudgeRecord, save_files
from certify_assets.judges.specs import JudgeSpec
from certify_assets.judges.transfer import PoolRecord, TransferPool, gather_pool, require_sources
from certify_assets.work import Report

if TYPE_CHECKING:
    from certify_assets.judges.lexical import LexicalJudge
    from certify_assets.judges.lm.judge import CausalJudge


class TransferSpec(JudgeSpec):
    """A judge trained on the SFT splits of other corpora."""

    library = "scikitlearn"
    training_splits = ()
    needs_other_corpora = True

    family: Literal["transfer"] = "transfer"
    reading: JudgeInput = LEXICAL
    # whether every corpus of the same domain is left out
    strict: bool = False

    @property
    def kind(self) -> str:
        """Family of the recipe."""
        return "sft" if self.model else "lexical"

    @property
    def training(self) -> Recipe:
        """How a language model is trained: it reads a pool once where nothing else is written."""
        return self.recipe or known_model(self.model).recipe.pooled

    @property
    def calibration_splits(self) -> tuple[str, ...]:
        """CAL alone: its pool keeps apart from tasks of CAL and TEST, not from those of RL."""
        return ("cal",)

    def registration(self) -> object:
        """Return the recipe and the pool."""
        return {
            "family": self.kind,
            "model": self.model,
            "revision": self.revision,
            "pool": "transfer_strict" if self.strict else "transfer",
            **({} if self.recipe is None else {"recipe": self.recipe.to_dict()}),
        }


class TransferEntry(TunedEntry):
    """A language model fine-tuned on other corpora, as users write it."""

    family: Literal["transfer"]
    strict: bool = Field(default=False, description="without corpora of the same domain")

    def usual(self) -> Recipe:
        """How the model is trained on a pool where nothing is written of it."""
        return super().usual().pooled


@judge_family("transfer")
class TransferFamily(DerivedFamily):
    """The recipe of the lexical judge, or of the fine-tuned one, on a pool of other corpora."""

    position = 20
    entry = TransferEntry
    judges = (
        TransferSpec(
            name="lexical_transfer",
            summary="The lexical judge, trained on the SFT splits of every other corpus.",
        ),
        TransferSpec(
            name="lexical_transfer_strict",
            summary=(
                "The lexical judge, trained on the SFT splits of every corpus of another domain."
            ),
            strict=True,
        ),
        TransferSpec(
            name="transfer",
            summary=(
                "The compact language model, fine-tuned on the SFT splits of every other corpus."
            ),
            model="compact",
            reading=COMPACT,
        ),
        TransferSpec(
            name="transfer_strict",
            summary=(
                "The compact language model, fine-tuned on the SFT splits of every corpus of "
                "another domain."
            ),
            model="compact",
            reading=COMPACT,
            strict=True,
        ),
    )

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Train on the pool; refuse one without rows, and say why each corpus gives none."""
        pool = pool_of(judge)
        if pool.missing:
            raise InputError(pool.missing)
        spec = judge.spec
        model: LexicalJudge | CausalJudge
        training: Mapping[str, Any] = {}
        if spec.model:
            from certify_assets.judges.lm.sft import train_on_rows, training_run

            # other sources are another run: its checkpoints must not stand in the way of this one
            run = training_run(judge, pool.sha256[:12])
            model, trained = train_on_rows(
                judge,
                pool.frame,
                run=run,
                recipe=spec.training,
                report=report,
            )
            training = trained.to_dict()
        else:
            model = train_lexical(pool.frame, spec.reading, seed=spec.seed)
            save_files(judge.store, judge.key("adapter"), model)
        sources = pool.record.sources
        return replace(
            judge.record(model.adapter_sha256),
            sft_trajectories=len(pool.frame),
            sft_unlabelled=sum(source.dropped.get("no_label", 0) for source in sources),
            sft_tasks=sum(source.tasks for source in sources),
            success_weight=None if spec.model else 1.0,
            details={
                "provenance": asdict(model.provenance()),
                "training": training,
                "transfer": asdict(replace(pool.record, limits=_limits(pool.record, spec))),
            },
        )

    def configure(self, entry: TransferEntry) -> TransferSpec:
        """Return the judge of an entry."""
        summary = f"{entry.model}, fine-tuned on SFT splits of other corpora."
        return TransferSpec(**entry.specification(), strict=entry.strict, summary=summary)

    def describe(self, record: JudgeRecord) -> str:
        """Return the rows with the corpora they come from, and how many a cap left of them."""
        pool = PoolRecord.of(record)
        above = sum(source.dropped.get("above_share", 0) for source in pool.sources)
        read, tasks = record.sft_trajectories, f"{record.sft_tasks} SFT tasks of other corpora"
        runs = f"{read + above} runs, of which a cap left {read}" if above else f"{read} runs"
        return f"{runs} of {tasks}: {pool.describe()}"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return the sources, and what limits the claim of transfer."""
        pool = PoolRecord.of(record)
        limits = {"training_limits": "; ".join(pool.limits)} if pool.limits else {}
        return {"training_sources": pool.describe(), **limits}

    def require_current(self, judge: JudgedCorpus, record: JudgeRecord) -> None:
        """Refuse a record whose sources give other rows now."""
        require_sources(judge, PoolRecord.of(record))


def pool_of(judge: JudgedCorpus) -> TransferPool:
    """Gather what a transfer judge of a corpus is trained on."""
    spec = judge.spec
    assert isinstance(spec, TransferSpec)
    return gather_pool(judge.corpus, strict=spec.strict, runs=spec.training.runs, seed=spec.seed)


def no_sources(judge: JudgedCorpus) -> str:
    """Return why a transfer judge of a corpus cannot be trained; empty where it can."""
    try:
        return pool_of(judge).missing
    except InputError as error:
        return str(error)


def _limits(pool: PoolRecord, spec: JudgeSpec) -> list[str]:
    if pool.strict and spec.reads_compact and pool.domain == format_domain("embedded").name:
        return [
            "the compact base model was pretrained on MiniWoB++ runs, so this judge has read "
            f"{pool.domain} text before its fine-tuning"
        ]
    return []
