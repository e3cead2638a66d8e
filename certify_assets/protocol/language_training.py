"""Training of the language-model judges: the base model as it is, LoRA on verdicts of SFT, and exact GRPO on RL from there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.protocol.corpus_steps import open_split
from certify_assets.protocol.judge_specs import ALPHAS, DELTA, GRID, JudgeSpec
from certify_assets.protocol.judging import columns, current_adapter, renderer, save_adapter, stored_adapter
from certify_assets.protocol.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.lm.grpo_config import GrpoConfig
    from certify_assets.judges.lm.judge import CausalJudge
    from certify_assets.protocol.selection import Selection

__all__ = ["fine_tuned", "train_language_judge", "workplace"]

_START = "start"


def train_language_judge(store: Store, corpus: str, spec: JudgeSpec) -> dict[str, Any]:
    """Make a language-model judge, store it and return its document; a killed training goes on where the data root is local."""
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    sft, manifest = open_split(store, corpus, "sft")
    labelled = sft[sft["outcome"].notna()]
    base, encoder = load_base(spec.model, spec.revision)
    judge = CausalJudge(spec.name, base, encoder)
    document: dict[str, Any] = {"selection": [], "selection_rule": "", "candidates": 1, "training": {}}
    with workplace(store, corpus, spec.name) as folder:
        if spec.family == "sft":
            judge, document["training"] = fine_tuned(judge, labelled, folder, spec)
        elif spec.family == "grpo":
            judge, found = _reinforced(store, corpus, spec, judge, folder)
            document |= found
        save_adapter(store, f"judges/{spec.name}/{corpus}/adapter", judge)
    whole = {
        "judge": spec.name,
        "corpus": corpus,
        "adapter_sha256": judge.adapter_sha256,
        "success_weight": 1.0,
        **_trained_on(sft if spec.family != "base" else sft[:0]),
        "manifest_sha256": manifest.sha256,
        "renderer_sha256": renderer().sha256,
        "provenance": judge.provenance().to_dict(),
        "seed": spec.seed,
        **document,
    }
    store.write_json(f"judges/{spec.name}/{corpus}/adapter.json", whole)
    return whole


def _trained_on(sft: pd.DataFrame) -> dict[str, int]:
    labelled = sft[sft["outcome"].notna()]
    return {
        "sft_trajectories": len(labelled),
        "sft_unlabelled": len(sft) - len(labelled),
        "sft_tasks": int(labelled["task_id"].nunique()),
    }


@contextmanager
def workplace(store: Store, corpus: str, judge: str, name: str = "training") -> Iterator[Path]:
    """Give a folder for checkpoints: one that stays, where the data root is a folder."""
    if store.is_local:
        folder = store.local_path(f"judges/{judge}/{corpus}/{name}")
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def fine_tuned(judge: CausalJudge, labelled: pd.DataFrame, folder: Path, spec: JudgeSpec) -> tuple[CausalJudge, dict[str, Any]]:
    """Fine-tune a judge on labelled runs; return it with what its adapter's document says."""
    from certify_assets.judges.lm.sft import SftConfig, SftRow, train_sft

    rows = [SftRow(prompt, int(outcome)) for prompt, outcome in zip(judge.encoder.encode_frame(labelled), labelled["outcome"], strict=True)]
    longest = judge.encoder.budget_tokens + max(len(judge.language.verdicts.success), len(judge.language.verdicts.fail))
    config = SftConfig.compact(epochs=2.0, max_tokens=longest) if spec.model == "compact" else SftConfig()
    trained = train_sft(judge.language, rows, folder / "adapter", config=replace(config, seed=spec.seed))
    if trained is None:
        raise InputError(f"the training of {spec.name} stopped before its end; materialize {spec.name}/adapter again.")
    return judge.with_adapter(trained.folder), trained.document


def _reinforced(store: Store, corpus: str, spec: JudgeSpec, judge: CausalJudge, folder: Path) -> tuple[CausalJudge, dict[str, Any]]:
    """Train every arm from the fine-tuned judge; keep the arm and step that certify most on CAL, or the start where none beats it."""
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lm.judge import CausalJudge, load_base
    from certify_assets.judges.lm.rewards import ARMS

    rl, _ = open_split(store, corpus, "rl")
    rl = rl[rl["outcome"].notna()]
    if rl.empty:
        raise InputError(f"{corpus} has no RL split, so nothing can be reinforced; import it with --rl, or leave {spec.name} out.")
    before = current_adapter(store, corpus, spec.start)
    config = _grpo_config(spec)
    with stored_adapter(store, corpus, spec.start) as start:
        adapters = {_START: _copied(start, folder / _START)}
    for name in ARMS:
        adapters |= _arm(spec, name, adapters[_START], rl, (folder / name, config))
    cal, _ = open_split(store, corpus, "cal")
    cal = cal[cal["outcome"].notna()]
    tables = {}
    for name, path in adapters.items():
        base, encoder = load_base(spec.model, spec.revision)
        candidate = replace(CausalJudge(spec.name, base, encoder).with_adapter(path), shards=folder / "shards")
        tables[name] = score_table(candidate, cal, renderer())
    selection, alpha = _selection(tables)
    rows = [{"name": row.name, "alpha": alpha, "coverage": row.coverage, "uncorrected": row.uncorrected} for row in selection.rows]
    return judge.with_adapter(adapters[selection.chosen]), {
        "selection": rows,
        "selection_rule": f"{selection.certificate.selection} (at alpha {alpha:g})",
        "candidates": len(adapters),
        "chosen": selection.chosen,
        "training": {"config": config.to_dict(), "arms": {name: asdict(arm) for name, arm in ARMS.items()}, "rl_trajectories": len(rl)},
        "start_sha256": before["adapter_sha256"],
    }


def _arm(spec: JudgeSpec, name: str, start: Path, rl: pd.DataFrame, run: tuple[Path, GrpoConfig]) -> dict[str, Path]:
    """Train one arm; return the adapters of the steps that are candidates."""
    from certify_assets.judges.lm.adapters import save_adapter as write_adapter
    from certify_assets.judges.lm.exact_grpo import train_exact
    from certify_assets.judges.lm.judge import load_base
    from certify_assets.judges.lm.rewards import arm_named

    folder, config = run
    base, encoder = load_base(spec.model, spec.revision)
    language = replace(base, model=_trainable(base.model, start))
    about = {"base": base.source, "base_revision": base.revision, "arm": name, "start": start.name}
    places = {step: folder / f"step_{step}" for step in config.evaluate_at}

    def keep(step: int) -> None:
        write_adapter(language.model, places[step], {**about, "steps": step}, source=base.source)

    prompts, outcomes = encoder.encode_frame(rl), [int(outcome) for outcome in rl["outcome"]]
    train_exact(language, prompts, outcomes, arm=arm_named(name), config=config, folder=folder / "checkpoint", evaluate=keep)
    return {f"{name}_{step}": place for step, place in places.items()}


def _trainable(model: Any, folder: Path) -> Any:
    from peft import PeftModel

    from certify_assets.judges.lm.adapters import quiet

    with quiet():
        return PeftModel.from_pretrained(model, str(folder), is_trainable=True)


def _copied(source: Path, target: Path) -> Path:
    from certify_assets.files import write_atomic

    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(path for path in source.iterdir() if path.is_file()):
        write_atomic(target / path.name, path.read_bytes())
    return target


def _grpo_config(spec: JudgeSpec) -> GrpoConfig:
    """The paper's settings; the compact model has its own rate and fewer steps, of which the middle and the last are candidates."""
    from certify_assets.judges.lm.grpo_config import COMPACT_LEARNING_RATE, GrpoConfig

    if spec.model == "compact":
        return GrpoConfig(learning_rate=COMPACT_LEARNING_RATE, steps=60, seed=spec.seed, evaluate_at=(30, 60), save_every=30)
    return GrpoConfig(seed=spec.seed, evaluate_at=(75, 150))


def _selection(tables: dict[str, pd.DataFrame]) -> tuple[Selection, float]:
    """Choose at the smaller budget, or at the larger one where no candidate certifies anything at the smaller."""
    from certify_assets.certificates import Settings
    from certify_assets.protocol.selection import select

    _, outcomes, tasks = columns(tables[_START])
    scores = {name: table["score"].to_numpy(float) for name, table in tables.items()}
    for alpha in ALPHAS:
        found = select(scores, outcomes, tasks, settings=Settings(alpha=alpha, delta=DELTA, grid=GRID), baseline=_START)
        if any(row.coverage > 0 for row in found.rows):
            break
    return found, alpha
