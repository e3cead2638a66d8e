"""The compact model of the platform: build it, verify what ships, find shared tasks."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.corpora.splits import plan_splits
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import (
    canonical_json,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_json_atomic,
)
from certify_assets.judges.lm.checkpoint import CHECKPOINT
from certify_assets.judges.lm.compact.pretrain import Example, Progress, pretrain
from certify_assets.judges.lm.compact.settings import (
    END,
    RUNS_FILE,
    CompactProvenance,
    CompactSettings,
    pretraining_runs,
    train_tokenizer,
)
from certify_assets.judges.lm.prompt import AuditorPrompt, PromptEncoder
from certify_assets.storage.progress import Advance, Report, silent
from certify_assets.storage.store import Store

_PROVENANCE = "provenance.json"
_WEIGHTS = "model.safetensors"
_CURVE_POINTS = 50
_SUFFIXES = (".json", ".jinja", ".safetensors")


@dataclass(frozen=True)
class Shipped:
    """What the folder of the compact model holds."""

    folder: Path
    provenance: CompactProvenance
    revision: str  # hash of all files, the one that scores and adapters carry
    files: dict[str, str]  # SHA-256 of every file but the provenance
    parameters: int

    @property
    def faults(self) -> tuple[str, ...]:
        """What is not as its provenance says, one sentence each."""
        recorded = self.provenance.files
        names = sorted(
            name for name in {*recorded, *self.files} if recorded.get(name) != self.files.get(name)
        )
        found = [
            f"{name} of the compact model is not the file that its provenance names; install the "
            "package again."
            for name in names
        ]
        if self.parameters != self.provenance.parameters:
            found.append(
                f"the compact model has {self.parameters:,} parameters, its provenance says "
                f"{self.provenance.parameters:,}."
            )
        return tuple(found)


def shipped(folder: Path | None = None) -> Shipped:
    """Read the compact model's folder: hashes and a count, no weights are loaded."""
    from certify_assets.judges.lm.compact import compact_model_path
    from certify_assets.judges.lm.contract import weights_sha256

    place = folder or compact_model_path()
    if not (place / _WEIGHTS).is_file():
        raise InputError(
            f"{place} has no {_WEIGHTS}; install the package again, or build the model with its "
            "asset."
        )
    provenance = CompactProvenance.read(place / _PROVENANCE)
    files = {
        path.name: sha256_file(path)
        for path in sorted(place.iterdir())
        if path.is_file() and path.name != _PROVENANCE and path.name[0] != "."
    }
    return Shipped(place, provenance, weights_sha256(place), files, _count(place / _WEIGHTS))


def require_shipped(folder: Path | None = None) -> Shipped:
    """Return the compact model's description, refusing one that is not as its provenance says."""
    found = shipped(folder)
    if found.faults:
        raise IntegrityError(found.faults[0])
    return found


def tasks_in_common(store: Store) -> dict[str, tuple[str, ...]]:
    """Return the tasks outside SFT that the compact model was pretrained on, by corpus."""
    # an embedded corpus that was not split in the data root has the splits it would get
    found = {}
    for corpus in (Corpus(store, name) for name in registered_corpora(store)):
        if corpus.has("splits/manifest.json"):
            manifest = corpus.stored_manifest
        elif corpus.name in EMBEDDED:
            manifest = plan_splits(corpus.config, load_embedded(corpus.name)["task_id"].unique())
        else:
            continue
        common = set(PRETRAINING_TASKS) & manifest.assignment.keys() - {*manifest.tasks["sft"]}
        if common:
            found[corpus.name] = tuple(sorted(common))
    return found


def rebuild(
    store: Store, *, limit: int | None = None, report: Report = silent
) -> tuple[Shipped, dict[str, bool]]:
    """Pretrain the compact model again in the data root; a killed call resumes."""
    folder = store.local_path("models/compact")
    build_compact(
        folder,
        limit=limit,
        progress=lambda item: report(Advance("pretraining", item.step, item.steps, item.loss)),
    )
    built = shipped(folder)
    return built, {
        name: built.files.get(name) == digest for name, digest in shipped().files.items()
    }


def _count(path: Path) -> int:
    """Count the numbers in a safetensors file by its header alone."""
    with path.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
    return sum(
        math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"
    )


@dataclass(frozen=True, slots=True)
class Built:
    """Where the model is, its parameters and its last losses."""

    folder: Path
    parameters: int
    last: Progress


def build_compact(
    folder: Path,
    settings: CompactSettings | None = None,
    *,
    runs: Path = RUNS_FILE,
    limit: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Built:
    """Learn the tokenizer, pretrain the model, and write both with their provenance."""
    # equal settings and runs give the same bytes with the same versions of torch and the same kind
    # of processor; an interrupted call resumes from its last checkpoint
    settings = settings or CompactSettings()
    frame = pretraining_runs(runs)
    if limit is not None:
        frame = frame.iloc[:: max(1, len(frame) // limit)].head(limit)
    texts = [item.text for item in render_frame(frame, Renderer())]
    tokenizer = train_tokenizer(texts, AuditorPrompt(), size=settings.vocabulary)
    encoder = PromptEncoder(tokenizer, budget_tokens=settings.context)
    examples = pretraining_examples(encoder, texts)
    folder.mkdir(parents=True, exist_ok=True)
    end = int(tokenizer.convert_tokens_to_ids(END))
    model, curve = pretrain(
        examples,
        settings,
        pad=int(tokenizer.pad_token_id),
        end=end,
        folder=folder,
        progress=progress,
    )
    _write_model(folder, model, tokenizer)
    parameters = sum(value.numel() for value in model.parameters())
    points = (*curve[:: max(1, len(curve) // _CURVE_POINTS)], curve[-1])
    record = CompactProvenance(
        settings=asdict(settings),
        prompt=asdict(encoder.prompt),
        renderer_sha256=encoder.renderer.sha256,
        pretraining_tasks=list(PRETRAINING_TASKS),
        steps=len(curve),
        loss_curve=[{"step": item.step, "loss": round(item.loss, 4)} for item in points],
        versions={
            name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors")
        },
        parameters=parameters,
        runs=len(frame),
        tokens=sum(len(example.ids) for example in examples),
        texts_sha256=sha256_bytes(canonical_json(texts)),
        runs_file_sha256=sha256_file(runs),
        files={
            path.name: sha256_file(path)
            for path in sorted(folder.iterdir())
            if path.suffix in _SUFFIXES and path.name != _PROVENANCE
        },
    )
    write_json_atomic(folder / _PROVENANCE, asdict(record))
    return Built(folder, parameters, curve[-1])


def pretraining_examples(encoder: PromptEncoder, texts: Sequence[str]) -> list[Example]:
    """Return the rows of the pretraining: each ends where the auditor's question begins."""
    before, after = len(encoder.prefix_ids), len(encoder.suffix_ids)
    return [Example(prompt.ids[:-after], before) for prompt in encoder.encode_texts(texts)]


def _write_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write weights and tokenizer."""
    # bfloat16, which float32 reads back exactly; tied weights once
    import torch
    from safetensors.torch import save

    tensors = {
        name: value.detach().to(torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    write_atomic(folder / _WEIGHTS, save(tensors, metadata={"format": "pt"}))
    config = model.config.to_dict() | {"architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16"}
    write_atomic(
        folder / "config.json", json.dumps(config, indent=2, sort_keys=True).encode("utf-8") + b"\n"
    )
    tokenizer.save_pretrained(str(folder))
    (folder / CHECKPOINT).unlink(missing_ok=True)
