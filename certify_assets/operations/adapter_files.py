"""The hash of an adapter, worked out from its files without loading a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.store import Store

__all__ = ["adapter_files_sha256"]


def adapter_files_sha256(store: Store, folder: str, document: Mapping[str, Any]) -> str:
    """Work the hash of an adapter out as its judge does: `LexicalJudge.adapter_sha256` and `CausalJudge.adapter_sha256`.

    Parameters
    ----------
    store : Store
    folder : str
        Key of the folder with the files.
    document : mapping
        The adapter document, which is all there is of a server's registration.

    Returns
    -------
    str
        Empty where there are no files.
    """
    files = {name: store.sha256(f"{folder}/{name}") for name in store.names(folder)}
    if not files:
        return str(document["adapter_sha256"]) if "settings_sha256" in document else ""
    judge = store.read_json(f"{folder}/judge.json")
    if "lora_sha256" not in judge:
        return sha256_bytes(
            canonical_json({name: files[name] for name in ("judge.json", "weights.safetensors")})
        )
    weights = {
        name: files.get(name, "") for name in ("adapter_model.safetensors", "adapter_config.json")
    }
    lora = sha256_bytes(canonical_json(weights)) if judge["lora_sha256"] else ""
    return (
        files["judge.json"]
        if judge["lora_sha256"] == lora
        else sha256_bytes(canonical_json({**judge, "lora_sha256": lora}))
    )
