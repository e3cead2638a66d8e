"""Causal language models as judges: as they come (base), fine-tuned (sft), reinforced (grpo)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.arms import candidate_adapter, select_arm
from certify_assets.judges.configured import CausalEntry, TunedEntry
from certify_assets.judges.family import JudgeFamily, Progress, judge_family
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.reward import single_tokens
from certify_assets.judges.reading import COMPACT
from certify_assets.judges.record import JudgeRecord, save_files
from certify_assets.judges.reinforced import START, GrpoEntry, GrpoSpec, optimised_by
from certify_assets.judges.specs import CausalSpec, judges, platform_judges
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from certify_assets.corpora.rendering import Rendered
    from certify_assets.judges.base import Judge
    from certify_assets.judges.lm.judge import CausalJudge
    from certify_assets.judges.lm.sft import TrainedAdapter

_LORA_FILES = ("adapter_model.safetensors", "adapter_config.json")


class BaseSpec(CausalSpec):
    """A language model as it comes."""

    untrained = True
    training_splits = ()

    family: Literal["base"] = "base"


class SftSpec(CausalSpec):
    """A language model with LoRA, fine-tuned on verdicts."""

    retrainable = True

    family: Literal["sft"] = "sft"


class BaseEntry(CausalEntry):
    """A language model as it comes, as users write it."""

    family: Literal["base"]


class SftEntry(TunedEntry):
    """A fine-tuned language model, as users write it."""

    family: Literal["sft"]


class CausalFamily(JudgeFamily):
    """What the three causal families share: loading, scoring, fingerprints."""

    position = 10

    def load(
        self, judge: JudgedCorpus, *, expected_sha256: str, resume: bool, replay: bool
    ) -> CausalJudge:
        """Load the base model with the stored adapter."""
        from certify_assets.judges.lm.judge import CausalJudge, load_base

        spec, store = judge.spec, judge.store
        with store.as_folder(judge.key("adapter")) as folder:
            base, encoder = load_base(spec.model, spec.revision, judge.reading)
            loaded = CausalJudge.load(
                folder, base=base, encoder=encoder, name=judge.name, expected_sha256=expected_sha256
            )
        shards = store.scratch(judge.key("shards")) if resume else None
        return replace(loaded, shards=shards)

    def prepared(self, judge: JudgedCorpus, model: Judge, *, progress: Progress) -> Judge:
        """Report progress."""
        return replace(_causal(model), progress=progress)

    def fingerprint(self, judge: JudgedCorpus, record: JudgeRecord) -> str:
        """Hash as `CausalJudge.adapter_sha256`, with the LoRA files as they are stored."""
        folder = judge.key("adapter")
        files = {name: judge.store.sha256(f"{folder}/{name}") for name in judge.store.names(folder)}
        if not files:
            return ""
        document = judge.store.read_json(f"{folder}/judge.json")
        weights = {name: files.get(name, "") for name in _LORA_FILES}
        lora = sha256_bytes(canonical_json(weights)) if document["lora_sha256"] else ""
        if document["lora_sha256"] == lora:
            return files["judge.json"]
        return sha256_bytes(canonical_json({**document, "lora_sha256": lora}))

    def prompt_sha256(self, judge: JudgedCorpus, record: JudgeRecord) -> str:
        """Hash of the encoder that the adapter belongs to."""
        key = judge.key("adapter/judge.json")
        if not judge.store.exists(key):
            return ""
        return str(judge.store.read_json(key).get("encoder_sha256", ""))

    def cuts(self, judge: JudgedCorpus, model: Judge, rendered: Sequence[Rendered]) -> list[bool]:
        """Return which runs lose characters, or tokens of their prompt."""
        by_tokens = _causal(model).encoder.cuts([item.text for item in rendered])
        return [
            tokens or item.cut_chars > 0 for tokens, item in zip(by_tokens, rendered, strict=True)
        ]

    def describe(self, record: JudgeRecord) -> str:
        """Return the rows of SFT, and how many of them a cap left."""
        read = record.detail("training").get("rows", record.sft_trajectories)
        cut = f", of which a cap left {read}" if read < record.sft_trajectories else ""
        return super().describe(record) + cut

    def _record(
        self, judge: JudgedCorpus, model: CausalJudge, rows: pd.DataFrame, **details: Any
    ) -> JudgeRecord:
        save_files(judge.store, judge.key("adapter"), model)
        details = {"training": {}, "provenance": asdict(model.provenance()), **details}
        reading = replace(judge.spec.reading, tokens=model.encoder.budget_tokens)
        record = judge.record(model.adapter_sha256, rows)
        return replace(record, reads=reading.to_dict(), details=details)


@judge_family("base")
class BaseFamily(CausalFamily):
    """The base model; its record says what it is."""

    entry = BaseEntry
    judges = (
        BaseSpec(
            name="base",
            summary="The compact language model as it comes, read at the verdict's place.",
            model="compact",
            reading=COMPACT,
        ),
    )

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Record the base model."""
        return self._record(judge, _base(judge), judge.corpus.split("sft")[:0])

    def configure(self, entry: BaseEntry) -> BaseSpec:
        """Return the judge of an entry."""
        summary = f"{entry.model} as it comes, read at the verdict's place."
        return BaseSpec(**entry.specification(), summary=summary)

    def describe(self, record: JudgeRecord) -> str:
        """Return that nothing was trained."""
        return "none on this corpus: the base model as it comes"


@judge_family("sft")
class SftFamily(CausalFamily):
    """LoRA on verdicts of SFT; a killed training resumes where the data root is local."""

    entry = SftEntry
    judges = (
        SftSpec(
            name="sft",
            summary=(
                "The compact language model with LoRA, fine-tuned on verdicts of the SFT split."
            ),
            model="compact",
            reading=COMPACT,
        ),
    )

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Fine-tune on the labelled rows of SFT."""
        sft, start = judge.corpus.split("sft"), _base(judge)
        _require_single_tokens(judge, start)
        labelled = sft[sft["outcome"].notna()]
        with judge.store.workplace(judge.key("training")) as folder:
            place = folder / judge.training_run("adapter")
            model, training = _tuned(judge, start, labelled, place, report)
            return self._record(
                judge, model, sft, training=training.to_dict(), start_sha256=start.adapter_sha256
            )

    def configure(self, entry: SftEntry) -> SftSpec:
        """Return the judge of an entry."""
        summary = f"{entry.model} with LoRA, fine-tuned on verdicts of the SFT split."
        return SftSpec(**entry.specification(), summary=summary)

    def made(
        self, judge: JudgedCorpus, rows: pd.DataFrame, *, run: str, report: Report
    ) -> tuple[CausalJudge, Mapping[str, Any]]:
        """Fine-tune with checkpoints of the run, and store the adapter."""
        with judge.store.workplace(judge.key("training")) as folder:
            model, training = _tuned(judge, _base(judge), rows, folder / run, report)
            save_files(judge.store, judge.key("adapter"), model)
        return model, training.to_dict()

    def retrained(self, judge: JudgedCorpus, rows: pd.DataFrame, place: str) -> CausalJudge:
        """Fine-tune with checkpoints in a folder of its own."""
        with judge.store.workplace(judge.key(place)) as folder:
            return _tuned(judge, _base(judge), rows, folder / "adapter", silent)[0]


@judge_family("grpo")
class GrpoFamily(CausalFamily):
    """GRPO on RL from another judge; the arm and the step are chosen on CAL and paid for."""

    entry = GrpoEntry
    judges = (
        GrpoSpec(
            name="grpo",
            summary=(
                "The fine-tuned judge trained on by exact GRPO on the RL split; arm and step "
                "picked on CAL and paid for in the level."
            ),
            model="compact",
            reading=COMPACT,
            start="sft",
        ),
    )

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Train the arms that are missing and keep the one that certifies most."""
        sft, start = judge.corpus.split("sft"), _base(judge)
        single_tokens(start.language.verdicts)
        _require_start(judge)
        found = select_arm(judge, report=report)
        with candidate_adapter(judge, found.candidate) as folder:
            record = self._record(judge, start.with_adapter(folder), sft, **found.details)
        return replace(
            record, candidates=len(found.rows), selection=found.rows, selection_rule=found.rule
        )

    def describe(self, record: JudgeRecord) -> str:
        """Return the rows of SFT that its start read, and the prompts of RL that the arm took."""
        training = record.detail("training")
        said = super().describe(record)
        by = f"{training['rl_trajectories']} runs of RL by {optimised_by(training)}"
        chosen = str(record.details["chosen"])
        if chosen == START:
            return f"{said}; the start was kept, for no arm on {by} certified more"
        prompts = int(chosen.rpartition("_")[2]) * training["config"]["prompts_per_step"]
        return f"{said}, then {prompts} prompts of {by}"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return how it was optimised."""
        return {"optimiser": optimised_by(record.detail("training"))}

    def configure(self, entry: GrpoEntry) -> GrpoSpec:
        """Return the judge of an entry."""
        found = GrpoSpec(**entry.specification(), summary="")
        # refuses settings that cannot be trained with
        words = optimised_by(found.settings)
        summary = f"{found.start} trained on by {words}, on the RL split; arm and step picked on "
        return found.model_copy(update={"summary": f"{summary}CAL and paid for in the level."})

    def require_current(self, judge: JudgedCorpus, record: JudgeRecord) -> None:
        """Refuse arms that started from another judge."""
        start = judge.sibling(judge.spec.start)
        if start.artifact.adapter_sha256 != record.details["start_sha256"]:
            raise StaleCertificateError(
                f"the arms of {judge} on {judge.corpus} started from another {start} judge than "
                f"the stored one; materialize judges/{judge}/model again."
            )


def _require_single_tokens(judge: JudgedCorpus, start: CausalJudge) -> None:
    """Refuse a judge that others of judges.yaml are to reinforce and cannot, before it costs."""
    known = judges(judge.store.root).items()
    waiting = [name for name, spec in known if spec.family == "grpo" and spec.start == judge.name]
    # the platform's is no wish of the user's
    wanted = next((name for name in waiting if name not in platform_judges()), None)
    if wanted is None:
        return
    try:
        single_tokens(start.language.verdicts)
    except InputError as error:
        raise InputError(f"{wanted} is to start from {judge}, and {error}") from None


def _require_start(judge: JudgedCorpus) -> None:
    """Say what trains the judge that the arms start from, where it is not."""
    start = judge.sibling(judge.spec.start)
    if not start.is_trained:
        raise InputError(
            f"{judge} starts from {start}, which is not trained on {judge.corpus}; run `certify "
            f"judge train {judge.corpus} --judge {start}` first."
        )


def _base(judge: JudgedCorpus) -> CausalJudge:
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    spec = judge.spec
    return CausalJudge(judge.name, *load_base(spec.model, spec.revision, spec.reading))


def _tuned(
    judge: JudgedCorpus, start: CausalJudge, rows: pd.DataFrame, folder: Path, report: Report
) -> tuple[CausalJudge, TrainedAdapter]:
    """Fine-tune a language model as the judge's settings say."""
    from certify_assets.judges.lm.sft import fine_tuned

    spec = judge.spec
    return fine_tuned(
        start,
        rows,
        folder,
        model=spec.model,
        seed=spec.seed,
        report=report,
        recipe=spec.training,
    )


def _causal(model: Judge) -> CausalJudge:
    from certify_assets.judges.lm.judge import CausalJudge

    assert isinstance(model, CausalJudge)
    return model
