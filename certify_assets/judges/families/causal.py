"""Causal language models as judges: before fine-tuning (base), and after it (sft)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.configured import CausalEntry, TunedEntry
from certify_assets.judges.family import JudgeFamily, Progress
from certify_assets.judges.lm.adapters import CONFIG, WEIGHTS, hash_of
from certify_assets.judges.reading import COMPACT
from certify_assets.judges.record import JudgeRecord, save_files
from certify_assets.judges.spec import CausalSpec
from certify_assets.judges.specs import judge_family, judges, platform_judges, upstream
from certify_assets.judges.stored import StoredJudge
from certify_assets.work import Report

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from certify_assets.judges.base import Judge
    from certify_assets.judges.lm.adapters import Provenance
    from certify_assets.judges.lm.judge import CausalJudge


class BaseSpec(CausalSpec):
    """A language model as it comes, read at the verdict's place."""

    untrained = True
    training_splits = ()

    family: Literal["base"] = "base"


class SftSpec(CausalSpec):
    """A language model with LoRA, fine-tuned on verdicts of the SFT split."""

    family: Literal["sft"] = "sft"


class BaseEntry(CausalEntry):
    """A language model as it comes, as users write it."""

    family: Literal["base"]


class SftEntry(TunedEntry):
    """A fine-tuned language model, as users write it."""

    family: Literal["sft"]


class CausalFamily(JudgeFamily):
    """The common part of the causal families: loading, scoring, fingerprints."""

    position = 10

    def load(
        self, judge: StoredJudge, *, expected_sha256: str, resume: bool, replay: bool
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

    def prepared(self, judge: StoredJudge, model: Judge, *, progress: Progress) -> Judge:
        """Report progress."""
        return replace(_causal(model), progress=progress)

    def fingerprint(self, judge: StoredJudge, record: JudgeRecord) -> str:
        """Hash like `CausalJudge.adapter_sha256`, with the stored LoRA files."""
        folder, store = judge.key("adapter"), judge.store
        files = {name: store.sha256(f"{folder}/{name}") for name in store.names(folder)}
        if not files:
            return ""
        document = store.read_json(f"{folder}/judge.json")
        if document["lora_sha256"]:
            document["lora_sha256"] = hash_of(files.get(WEIGHTS, ""), files.get(CONFIG, ""))
        return sha256_bytes(canonical_json(document))

    def prompt_sha256(self, judge: StoredJudge, record: JudgeRecord) -> str:
        """Hash of the encoder that the adapter belongs to."""
        return str(judge.read("adapter/judge.json").get("encoder_sha256", ""))

    def describe(self, record: JudgeRecord) -> str:
        """Describe the rows of SFT, and how many remain after the cap."""
        read = record.detail("training").get("rows", record.sft_trajectories)
        cut = f", of which a cap left {read}" if read < record.sft_trajectories else ""
        return super().describe(record) + cut

    def _record(
        self, judge: StoredJudge, model: CausalJudge, rows: pd.DataFrame, **details: Any
    ) -> JudgeRecord:
        save_files(judge.store, judge.key("adapter"), model)
        reading = judge.spec.reading.replace(tokens=model.encoder.budget_tokens)
        about = {"training": {}, "provenance": asdict(model.provenance()), **details}
        return judge.record(model.adapter_sha256, rows, reads=reading, **about)


@judge_family("base")
class BaseFamily(CausalFamily):
    """The base model; its record identifies it."""

    entry = BaseEntry
    spec = BaseSpec
    judges = (BaseSpec(name="base", model="compact", reading=COMPACT),)

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Record the base model."""
        return self._record(judge, base_judge(judge), judge.corpus.split("sft")[:0])

    def describe(self, record: JudgeRecord) -> str:
        """Say that nothing was trained."""
        return "none on this corpus: the base model as it comes"


@judge_family("sft")
class SftFamily(CausalFamily):
    """LoRA on verdicts of SFT; an interrupted training resumes if the data root is local."""

    entry = SftEntry
    spec = SftSpec
    judges = (SftSpec(name="sft", model="compact", reading=COMPACT),)

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Fine-tune on the labelled rows of SFT."""
        sft, start = judge.corpus.split("sft"), base_judge(judge)
        _require_single_tokens(judge, start)
        labelled = sft[sft["outcome"].notna()]
        with judge.store.workplace(judge.key("training")) as folder:
            place = folder / judge.training_run("adapter")
            model, training = _tuned(judge, start, labelled, place, report)
            before = upstream(judge.spec)
            starts = {before: start.adapter_sha256} if before else {}
            return self._record(judge, model, sft, training=training, starts=starts)

    def made(
        self, judge: StoredJudge, rows: pd.DataFrame, *, run: str, report: Report
    ) -> tuple[CausalJudge, Mapping[str, Any]]:
        """Fine-tune with checkpoints of the run, and store the adapter."""
        with judge.store.workplace(judge.key("training")) as folder:
            model, training = _tuned(judge, base_judge(judge), rows, folder / run, report)
            save_files(judge.store, judge.key("adapter"), model)
        return model, training


def base_judge(judge: StoredJudge) -> CausalJudge:
    """Return the judge made of a language model before fine-tuning."""
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    spec = judge.spec
    return CausalJudge(judge.name, *load_base(spec.model, spec.revision, spec.reading))


def _tuned(
    judge: StoredJudge, start: CausalJudge, rows: pd.DataFrame, folder: Path, report: Report
) -> tuple[CausalJudge, Provenance]:
    spec = judge.spec
    return start.fine_tuned(rows, folder, recipe=spec.training, seed=spec.seed, report=report)


def _require_single_tokens(judge: StoredJudge, start: CausalJudge) -> None:
    """Refuse early a judge that others of judges.yaml start from but cannot reinforce."""
    from certify_assets.judges.lm.grpo import single_tokens

    for name, spec in judges(judge.store.root).items():
        # the platform's is no wish of the user's
        if spec.family != "grpo" or spec.start != judge.name or name in platform_judges():
            continue
        try:
            single_tokens(start.language.verdicts)
        except InputError as error:
            raise InputError(f"{name} is to start from {judge}, and {error}") from None


def _causal(model: Judge) -> CausalJudge:
    from certify_assets.judges.lm.judge import CausalJudge

    assert isinstance(model, CausalJudge)
    return model
