"""The notebook for users of MLflow, run in a kernel against a real server."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from certify_assets_tests.corpora.mlflow_server import mlflow_server
from certify_assets_tests.paths import REPOSITORY

NOTEBOOK = REPOSITORY / "docs/examples/align_and_certify.ipynb"


@pytest.mark.slow
def test_the_notebook_aligns_certifies_and_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    book: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    stored = [_said(cell) for cell in book.cells]
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS", "true")
    monkeypatch.delenv("JUDGE_MODEL", raising=False)
    with mlflow_server(tmp_path / "mlflow") as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        client = NotebookClient(
            book,
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path)}},
        )
        client.execute()
    found = [_said(cell) for cell in book.cells]
    shown = [(before, now) for before, now in zip(stored, found, strict=True) if before]
    assert len(shown) == 5
    assert all(before in now for before, now in shown), shown


def _said(cell: Any) -> str:
    """Return the results of a cell, and what it printed."""
    texts = [
        output["data"].get("text/plain", "")
        if output["output_type"] == "execute_result"
        else output.get("text", "")
        for output in cell.get("outputs", ())
        if output.get("name") != "stderr"
    ]
    return "".join(texts).replace("\r", "").strip()
