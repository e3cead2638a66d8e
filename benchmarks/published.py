"""Published corpora, read by the package or, where it has no reader, converted to a table first."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from certify_assets.corpora.formats import import_corpus

#: by folder, the script of `benchmarks/corpora` that makes a table of it
CONVERTERS = {
    "agentclinic_whissle": "agentclinic",
    "intercode_bash": "intercode",
    "miniwob_demos": "miniwob_demos",
    "swebench_lite_acr": "autocoderover",
}


def read_published(folder: Path) -> pd.DataFrame | None:
    """Return the runs of a folder of archives; None where it has no archive."""
    archives = sorted(folder.glob("*.tar.gz"))
    if not archives:
        return None
    if folder.name not in CONVERTERS:
        return import_corpus(archives, name=folder.name).frame
    with tempfile.TemporaryDirectory() as work:
        table = Path(work) / "runs.jsonl"
        convert_published(folder.name, archives, table)
        return import_corpus(table, format="table", name=folder.name).frame


def convert_published(name: str, archives: list[Path], table: Path) -> None:
    """Write the runs of a corpus as a table, by its converter."""
    script = Path(__file__).parent / "corpora" / f"{CONVERTERS[name]}.py"
    command = [sys.executable, script, *archives, "--out", table]
    subprocess.run(command, check=True, capture_output=True)
