"""Build the compact model in a folder: tokenizer, weights and provenance."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from certify_assets.corpora.embedded import PRETRAINING_TASKS
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.files import (
    canonical_json,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_json_atomic,
)
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

PROVENANCE_FILE = "provenance.json"

_CURVE_POINTS = 50
_SUFFIXES = (".json", ".jinja", ".safetensors")


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
    prompt: AuditorPrompt | None = None,
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
    tokenizer = train_tokenizer(texts, prompt or AuditorPrompt(), size=settings.vocabulary)
    encoder = PromptEncoder(tokenizer, prompt or AuditorPrompt(), Renderer(), settings.context)
    examples = _examples(encoder, texts, frame["outcome"].astype(int).tolist())
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
        loss_curve=[
            {
                "step": item.step,
                "loss": round(item.loss, 4),
                "verdict_loss": round(item.verdict_loss, 4),
            }
            for item in points
        ],
        versions={
            name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors")
        },
        parameters=parameters,
        runs=len(frame),
        successes=int(frame["outcome"].sum()),
        tokens=sum(len(example.ids) for example in examples),
        texts_sha256=sha256_bytes(canonical_json(texts)),
        runs_file_sha256=sha256_file(runs),
        files={
            path.name: sha256_file(path)
            for path in sorted(folder.iterdir())
            if path.suffix in _SUFFIXES and path.name != PROVENANCE_FILE
        },
    )
    write_json_atomic(folder / PROVENANCE_FILE, asdict(record))
    return Built(folder, parameters, curve[-1])


def _examples(
    encoder: PromptEncoder, texts: Sequence[str], outcomes: Sequence[int]
) -> list[Example]:
    end = int(encoder.tokenizer.convert_tokens_to_ids(END))
    before, after = len(encoder.prefix_ids), len(encoder.suffix_ids)
    verdicts = (encoder.verdicts.fail, encoder.verdicts.success)
    return [
        Example((*prompt.ids, *verdicts[outcome], end), (before, len(prompt.ids) - after))
        for prompt, outcome in zip(encoder.encode_texts(texts), outcomes, strict=True)
    ]


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
    write_atomic(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    config = model.config.to_dict() | {"architectures": ["Qwen3ForCausalLM"], "dtype": "bfloat16"}
    write_atomic(
        folder / "config.json", json.dumps(config, indent=2, sort_keys=True).encode("utf-8") + b"\n"
    )
    tokenizer.save_pretrained(str(folder))
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
