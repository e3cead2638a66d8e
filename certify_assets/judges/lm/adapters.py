"""LoRA adapters of one base model: layers, files, and swaps that leave the base as it is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError, IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, read_json, sha256_bytes, sha256_file, write_atomic
from certify_assets.judges.lm.contract import LanguageModel

ADAPTER_SCHEMA = "certify_assets/lora_adapter/1"
_WEIGHTS = "adapter_model.safetensors"
_CONFIG = "adapter_config.json"
_DOCUMENT = "provenance.json"


def inner_model(model: Any) -> Any:
    """Return the causal language model inside a PEFT model, its active adapters in its layers."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def head_logits(model: Any, hidden: Any, tokens: Sequence[int] | None = None) -> Any:
    """Return the logits of hidden states in float32, of some tokens alone where they are named."""
    import torch

    head = model.get_output_embeddings()
    weight, bias = head.weight, head.bias
    if tokens is not None:
        weight, bias = weight[tokens], None if bias is None else bias[tokens]
    with torch.autocast(device_type=weight.device.type, enabled=False):
        return torch.nn.functional.linear(
            hidden.float(), weight.float(), None if bias is None else bias.float()
        )


def linear_targets(model: Any) -> tuple[str, ...]:
    """Name the linear layers of attention and MLP, whatever the architecture calls them."""
    import torch

    layers = getattr(model.get_decoder(), "layers", ())
    inside = {
        id(module)
        for layer in layers
        for module in layer.modules()
        if isinstance(module, torch.nn.Linear)
    }
    linear = {
        name: id(module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    wanted = {name for name, key in linear.items() if key in inside}
    if not wanted:
        raise InputError(
            f"{type(model).__name__} has no linear layers in its decoder; give a causal language "
            "model of transformers."
        )
    leaves = {name.rpartition(".")[2] for name in wanted}
    alone = {name for name in linear if name.rpartition(".")[2] in leaves} == wanted
    return tuple(sorted(leaves if alone else wanted))


def attach_lora(model: Any, *, rank: int, alpha: int, dropout: float, seed: int) -> Any:
    """Put a fresh adapter on the linear layers, in place; `unload()` takes it off again."""
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=list(linear_targets(model)),
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(seed)
        return get_peft_model(model, config)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence deprecations between the libraries, about which users can do nothing."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*gradient_checkpointing.* is deprecated", category=FutureWarning
        )
        yield


def trainable_parameters(model: Any) -> int:
    """Count the numbers that training may change."""
    return sum(value.numel() for value in model.parameters() if value.requires_grad)


def save_adapter(model: Any, folder: Path, document: Mapping[str, Any], *, source: str = "") -> str:
    """Write the adapter "default" of a PEFT model with its provenance; return its hash."""
    sha256 = write_weights(model, folder, source=source)
    written = {"schema": ADAPTER_SCHEMA, **document, "adapter_sha256": sha256}
    # the provenance comes last: a folder without it was cut short
    write_atomic(folder / _DOCUMENT, canonical_json(written))
    return sha256


def write_weights(model: Any, folder: Path, *, source: str = "") -> str:
    """Write the adapter "default" and its configuration, without provenance; return its hash."""
    import safetensors.torch
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, adapter_name="default", save_embedding_layers=False)
    weights = safetensors.torch.save(
        {name: value.detach().cpu().contiguous() for name, value in state.items()},
        metadata={"format": "pt"},
    )
    config = canonical_json(
        json.loads(json.dumps(model.peft_config["default"].to_dict(), default=_plain))
        | {"base_model_name_or_path": source, "inference_mode": True}
    )
    write_atomic(folder / _WEIGHTS, weights)
    write_atomic(folder / _CONFIG, config)
    return _hash(sha256_bytes(weights), sha256_bytes(config))


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """What the provenance of a stored adapter names: its hash and the base model."""

    sha256: str
    base: str
    base_revision: str


def read_adapter(folder: Path) -> StoredAdapter:
    """Read the provenance of an adapter and check that its files are the ones it names."""
    document = read_json(folder / _DOCUMENT)
    if not isinstance(document, dict) or document.get("schema") != ADAPTER_SCHEMA:
        raise InputError(
            f"{folder / _DOCUMENT} is not the provenance of an adapter; train the adapter with "
            "this package."
        )
    for name in (_WEIGHTS, _CONFIG):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} has no {name}; give the folder as it was saved, pickled weights are "
                "refused."
            )
    sha256 = _hash(sha256_file(folder / _WEIGHTS), sha256_file(folder / _CONFIG))
    if sha256 != document.get("adapter_sha256"):
        raise IntegrityError(
            f"the adapter in {folder} is not the one its provenance names; train it again or "
            "restore its files."
        )
    return StoredAdapter(sha256, str(document.get("base")), str(document.get("base_revision")))


def load_adapter(
    base: LanguageModel, folder: Path, *, trainable: bool = False
) -> tuple[LanguageModel, str]:
    """Put a stored adapter on a base model, in place; return the model and the adapter's hash."""
    from peft import PeftModel

    stored = read_adapter(folder)
    if stored.base_revision != base.revision:
        raise StaleCertificateError(
            f"the adapter in {folder} was trained on {stored.base} "
            f"{stored.base_revision[:12]}, not on {base.source} "
            f"{base.revision[:12]}; load that base model or train the adapter again."
        )
    with quiet():
        model = PeftModel.from_pretrained(base.model, str(folder), is_trainable=trainable)
    return replace(base, model=model if trainable else model.eval()), stored.sha256


@contextmanager
def native_inputs(model: Any) -> Iterator[None]:
    """Let autocast alone choose the type in which a float32 adapter multiplies."""
    # a float32 copy of every layer's input would be kept otherwise
    from peft.helpers import disable_input_dtype_casting

    from certify_assets.judges.lm.contract import Hardware

    with disable_input_dtype_casting(model, active=Hardware.of(model).half):
        yield


def _hash(weights: str, config: str) -> str:
    return sha256_bytes(canonical_json({_WEIGHTS: weights, _CONFIG: config}))


def _plain(value: Any) -> Any:
    """Return what JSON has no word for: a set as a list, anything else as text."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
