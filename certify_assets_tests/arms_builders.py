"""A small corpus with a judge to start from, and a judge of the family grpo with one step an arm."""

import tempfile
from dataclasses import replace
from pathlib import Path

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.reading import COMPACT
from certify_assets.judges.record import JudgeRecord, save_files
from certify_assets.judges.specs import JUDGES
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs

__all__ = ["CORPUS", "TINY", "chosen_arm", "small_corpus", "start_judge"]

CORPUS = "small"
TINY = JUDGES["grpo"].model_copy(update={"steps": (1,)})


def chosen_arm(folder: Path, *, tasks: int) -> Store:
    """Make a root where the arms are trained and one is chosen; the judge's specification must be ``TINY``."""
    store = small_corpus(folder, tasks=tasks)
    start_judge(store)
    judged(store, CORPUS, TINY.name).train()
    return store


def small_corpus(folder: Path, *, tasks: int) -> Store:
    """Register a corpus of one attempt a task and split it."""
    store = Store(str(folder / "root"))
    register_runs(
        store, CORPUS, write_runs(folder / "runs.jsonl", tasks=tasks, attempts=1, seed=0), rl=True
    )
    Corpus(store, CORPUS).prepare_splits()
    return store


def start_judge(store: Store, *, seed: int = 0, epochs: float = 0.0) -> None:
    """Store the judge that arms start from: an adapter that does nothing yet, or with epochs a trained one, which takes ten seconds.

    A base that has seen no verdict names none in a sample, so TRL has nothing to learn from without them.
    """
    from certify_assets.judges.lm.adapters import attach_lora, save_adapter
    from certify_assets.judges.lm.judge import CausalJudge, load_base
    from certify_assets.judges.lm.models import known_model

    start = CausalJudge("sft", *load_base("compact"))
    with tempfile.TemporaryDirectory() as folder:
        if epochs:
            rows = Corpus(store, CORPUS).split("sft")
            place, recipe = Path(folder), replace(known_model("compact").recipe, epochs=epochs)
            judge, _ = start.fine_tuned(rows, place, recipe=recipe, seed=42)
        else:
            base, _ = load_base("compact")
            adapter = attach_lora(base.model, rank=2, alpha=4, dropout=0.0, seed=seed)
            document = {"base": base.source, "base_revision": base.revision}
            save_adapter(adapter, Path(folder), document, source=base.source)
            judge = start.with_adapter(Path(folder))
        save_files(store, f"judges/sft/{CORPUS}/adapter", judge)
    manifest = Corpus(store, CORPUS).manifest
    record = JudgeRecord(
        judge="sft",
        corpus=CORPUS,
        adapter_sha256=judge.adapter_sha256,
        manifest_sha256=manifest.sha256,
        renderer_sha256=COMPACT.renderer.sha256,
        reads=COMPACT,
        seed=42,
    )
    store.write_json(f"judges/sft/{CORPUS}/adapter.json", record.to_dict())
