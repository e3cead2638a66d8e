"""Fine-tuning of a base model on verdicts, as every family with a language model does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import save_files, workplace
from certify_assets.storage.progress import Advance, Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.lm.judge import CausalJudge
    from certify_assets.judges.lm.sft import TrainedAdapter


def fine_tuned(
    judge: CausalJudge,
    labelled: pd.DataFrame,
    folder: Path,
    *,
    model: str,
    seed: int,
    report: Report = silent,
    epochs: float = 2.0,
) -> tuple[CausalJudge, TrainedAdapter]:
    """Fine-tune a base model; a column `label_source` may name the source of the labels."""
    from certify_assets.judges.lm.sft import train_sft
    from certify_assets.judges.lm.sft_config import SftConfig, SftRow

    sources = (
        labelled["label_source"].map({"harvest": "harvest"}).fillna("sft")
        if "label_source" in labelled
        else ["sft"] * len(labelled)
    )
    prompts = judge.encoder.encode_frame(labelled)
    rows = [
        SftRow(prompt, int(outcome), str(source))
        for prompt, outcome, source in zip(prompts, labelled["outcome"], sources, strict=True)
    ]
    longest = judge.encoder.budget_tokens + max(
        len(judge.language.verdicts.success), len(judge.language.verdicts.fail)
    )
    config = (
        SftConfig.compact(epochs=epochs, max_tokens=longest) if model == "compact" else SftConfig()
    )
    trained = train_sft(
        judge.language,
        rows,
        folder,
        config=replace(config, seed=seed),
        progress=lambda step, steps, loss: report(Advance("sft", step, steps, loss)),
    )
    if trained is None:
        raise InputError(
            f"the training of {judge} stopped before its end; materialize judges/{judge}/model "
            "again."
        )
    return judge.with_adapter(trained.folder), trained


def train_on_rows(
    judged: JudgedCorpus,
    labelled: pd.DataFrame,
    *,
    run: str,
    epochs: float,
    report: Report = silent,
) -> tuple[CausalJudge, TrainedAdapter]:
    """Fine-tune a judge on given rows, with a run's own checkpoints, and store its adapter."""
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    base, encoder = load_base(judged.spec.model, judged.spec.revision)
    with workplace(judged.store, judged.key("training")) as folder:
        start = CausalJudge(judged.spec.name, base, encoder)
        judge, trained = fine_tuned(
            start,
            labelled,
            folder / run,
            model=judged.spec.model,
            seed=judged.spec.seed,
            report=report,
            epochs=epochs,
        )
        save_files(judged.store, judged.key("adapter"), judge)
    return judge, trained
