"""What every step with a judge needs: the renderer, texts, and adapters in the data root."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.transfer import require_sources
from certify_assets.storage.snapshot import remembered
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.judges.endpoint.judging import BilledJudge
    from certify_assets.judges.lexical import LexicalJudge
    from certify_assets.judges.lm.judge import CausalJudge

__all__ = [
    "columns",
    "current_adapter",
    "load_adapter",
    "renderer",
    "save_adapter",
    "stored_adapter",
    "stored_folder",
    "texts",
    "workplace",
]


@remembered
def current_adapter(judge: JudgedCorpus) -> dict[str, Any]:
    """Return the adapter document, refusing one that was trained under another manifest or renderer than the stored ones, or on other sources.

    Raises
    ------
    StaleCertificateError
    """
    _refuse_closed(judge)
    adapter: dict[str, Any] = judge.store.read_json(judge.key("adapter.json"))
    manifest = judge.corpus.manifest
    for name, value in (
        ("manifest_sha256", manifest.sha256),
        ("renderer_sha256", renderer().sha256),
    ):
        if adapter[name] != value:
            raise StaleCertificateError(
                f"the adapter of {judge} on {judge.corpus} was trained under another {name.removesuffix('_sha256')} than the stored one; "
                f"materialize judges/{judge}/model again."
            )
    if "transfer" in adapter:
        require_sources(judge, adapter["transfer"])
    spec = judge.spec
    start = spec.start
    if (
        "arms" in adapter
        and current_adapter(judge.beside(start))["adapter_sha256"] != adapter["start_sha256"]
    ):
        raise StaleCertificateError(
            f"the arms of {judge} on {judge.corpus} started from another {start} judge than the stored one; materialize judges/{judge}/model again."
        )
    harvest = adapter.get("harvest")
    if (
        harvest is not None
        and current_adapter(judge.beside(harvest["start"]))["adapter_sha256"]
        != harvest["start_adapter_sha256"]
    ):
        raise StaleCertificateError(
            f"the harvest of {judge} on {judge.corpus} was let through by another {harvest['start']} judge than the stored one; "
            f"materialize judges/{judge}/model again."
        )
    if spec.endpoint is not None:
        from certify_assets.judges.endpoint.judging import require_same_settings

        require_same_settings(adapter, spec)
    return adapter


def _refuse_closed(judge: JudgedCorpus) -> None:
    """Refuse what an earlier opening of a harvest's gate left: scores and certificates of a judge that is no more."""
    folder = judge.key()
    if not judge.store.exists(f"{folder}/adapter.json") and judge.store.exists(
        f"{folder}/harvest.json"
    ):
        reason = judge.store.read_json(f"{folder}/harvest.json")["reason"]
        raise StaleCertificateError(
            f"the gate of {judge} on {judge.corpus} is closed now, so there is no such judge: {reason}"
        )


def renderer() -> Renderer:
    """Return the one renderer of the platform."""
    from certify_assets.corpora.rendering import Renderer

    return Renderer()


def texts(frame: pd.DataFrame, using: Renderer) -> list[str]:
    """Render trajectories as the judge reads them."""
    from certify_assets.corpora.rendering import render_frame

    return [item.text for item in render_frame(frame, using)]


def columns(
    table: pd.DataFrame,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return scores, outcomes and tasks of a labelled score table."""
    return (
        table["score"].to_numpy(np.float64),
        table["outcome"].to_numpy(np.int8),
        table["task_id"].to_numpy(object),
    )


def save_adapter(store: Store, prefix: str, judge: LexicalJudge | CausalJudge) -> None:
    """Store an adapter's files below a key."""
    with tempfile.TemporaryDirectory() as folder:
        judge.save(Path(folder))
        for path in sorted(Path(folder).iterdir()):
            store.write_bytes(f"{prefix}/{path.name}", path.read_bytes())


def load_adapter(
    judge: JudgedCorpus, *, expected_sha256: str, resume: bool = False, replay: bool = False
) -> LexicalJudge | CausalJudge | BilledJudge:
    """Load a judge as it is stored; refuse another than the expected one.

    Parameters
    ----------
    resume : bool
        Let a language model take up the scores that a killed run left; without it every score is computed again.
    replay : bool
        Let an endpoint judge repeat its kept answers, without a request.
    """
    spec = judge.spec
    if spec.endpoint is not None:
        from certify_assets.judges.endpoint.judging import load_endpoint

        return load_endpoint(JudgedCorpus.of(judge.corpus, spec), replay=replay)
    from certify_assets.judges.lexical import LexicalJudge

    with stored_adapter(judge) as folder:
        if not spec.model:
            return LexicalJudge.load(folder, expected_sha256=expected_sha256)
        from certify_assets.judges.lm.judge import CausalJudge, load_base

        base, encoder = load_base(spec.model, spec.revision)
        loaded = CausalJudge.load(
            folder, base=base, encoder=encoder, name=judge.name, expected_sha256=expected_sha256
        )
    return replace(
        loaded,
        shards=judge.store.local_path(judge.key("shards"))
        if resume and judge.store.is_local
        else None,
    )


@contextmanager
def stored_adapter(judge: JudgedCorpus) -> Iterator[Path]:
    """Give the stored files of an adapter as a folder."""
    with stored_folder(judge.store, judge.key("adapter")) as folder:
        yield folder


@contextmanager
def stored_folder(store: Store, prefix: str) -> Iterator[Path]:
    """Give a copy of the files directly below a key as a folder."""
    with tempfile.TemporaryDirectory() as folder:
        for name in store.names(prefix):
            (Path(folder) / name).write_bytes(store.read_bytes(f"{prefix}/{name}"))
        yield Path(folder)


@contextmanager
def workplace(store: Store, prefix: str) -> Iterator[Path]:
    """Give a folder for checkpoints: one that stays, where the data root is a folder."""
    if store.is_local:
        folder = store.local_path(prefix)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
