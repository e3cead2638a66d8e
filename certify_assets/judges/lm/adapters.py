"""LoRA adapters of one base model: their layers, their files, and the unchanged head."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from certify_assets.errors import StaleCertificateError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.lm.language_model import LanguageModel

ADAPTER_SCHEMA = "certify_assets/lora_adapter/1"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PROVENANCE = "provenance.json"


#: what an adapter depends on, as it is stored next to it
Provenance = dict[str, Any]


def inner_model(model: Any) -> Any:
    """Return the causal language model inside a PEFT model, its active adapters in its layers."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def head_logits(model: Any, hidden: Any) -> Any:
    """Return the logits of hidden states in float32."""
    import torch

    head = model.get_output_embeddings()
    bias = None if head.bias is None else head.bias.float()
    with torch.autocast(device_type=head.weight.device.type, enabled=False):
        return torch.nn.functional.linear(hidden.float(), head.weight.float(), bias)


def attach_lora(model: Any, *, rank: int, alpha: int, dropout: float, seed: int) -> Any:
    """Put a new adapter on every linear layer but the head, in place; `unload()` removes it."""
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules="all-linear",
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence deprecation warnings between libraries, which users cannot fix."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*gradient_checkpointing.* is deprecated", category=FutureWarning
        )
        yield


def trainable_parameters(model: Any) -> int:
    """Count the trainable parameters."""
    return sum(value.numel() for value in model.parameters() if value.requires_grad)


def adapter_weights(model: Any) -> bytes:
    """Return the adapter of a PEFT model as a safetensors file."""
    import safetensors.torch
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, adapter_name="default", save_embedding_layers=False)
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    return safetensors.torch.save(tensors, metadata={"format": "pt"})


def write_weights(model: Any, folder: Path, *, source: str = "") -> str:
    """Write the adapter of a PEFT model and its configuration; return their hash."""
    weights = adapter_weights(model)
    # PEFT would write its sets in no order
    settings = json.loads(json.dumps(model.peft_config["default"].to_dict(), default=_plain))
    config = canonical_json(settings | {"base_model_name_or_path": source, "inference_mode": True})
    write_atomic(folder / WEIGHTS, weights)
    write_atomic(folder / CONFIG, config)
    return hash_of(sha256_bytes(weights), sha256_bytes(config))


def save_adapter(
    model: Any, folder: Path, document: Mapping[str, Any], *, source: str
) -> Provenance:
    """Write the adapter of a PEFT model with its provenance, and return that with its hash."""
    sha256 = write_weights(model, folder, source=source)
    written = {**document, "schema": ADAPTER_SCHEMA, "adapter_sha256": sha256}
    # the provenance comes last: a folder without it was cut short
    write_atomic(folder / PROVENANCE, canonical_json(written))
    return written


def load_adapter(
    base: LanguageModel, folder: Path, *, trainable: bool = False
) -> tuple[LanguageModel, str]:
    """Put a stored adapter on a base model, in place; return the model and the adapter's hash."""
    from peft import PeftModel

    stored = read_json(folder / PROVENANCE)
    if stored["base_revision"] != base.revision:
        raise StaleCertificateError(
            f"the adapter in {folder} was trained on {stored['base']} "
            f"{stored['base_revision'][:12]}, not on {base.source} {base.revision[:12]}; load that "
            "base model or train the adapter again."
        )
    with quiet():
        model = PeftModel.from_pretrained(base.model, str(folder), is_trainable=trainable)
    return replace(base, model=model if trainable else model.eval()), stored["adapter_sha256"]


def hash_of(weights: str, config: str) -> str:
    """Return the hash of an adapter from those of its two files."""
    return sha256_bytes(canonical_json({WEIGHTS: weights, CONFIG: config}))


def _plain(value: Any) -> Any:
    """Return values unknown to JSON: a set as a list, anything else as text."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
