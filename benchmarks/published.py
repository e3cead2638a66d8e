"""What benchmarks on real runs share: the corpora, and lexical scores out of fold.

    python benchmarks/published.py FILE.csv.gz

writes corpus, repository, commit, path and SHA-256 of every published file that they read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from certify_assets.corpora.embedded import EMBEDDED, load_embedded
from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.judges.families.lexical import LexicalJudge

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
#: folders of published runs
PUBLISHED = (
    "agentclinic_whissle",
    "intercode_bash",
    "multi_swe_bench_java",
    "swebench_lite_acr",
    "taubench_retail",
    "tau2_native",
    "terminal_bench_core",
)
FOLDS = 3
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


def labelled_runs(name: str, data: Path) -> pd.DataFrame | str:
    """Read the labelled runs of a corpus; a sentence where it is not there."""
    frame = load_embedded(name) if name in EMBEDDED else read_published(data / name)
    if frame is None:
        return f"{name}: skipped, {data / name} has no archive"
    return frame[frame["outcome"].notna()].reset_index(drop=True)


def corpora_parser(about: str) -> argparse.ArgumentParser:
    """Return a parser with the options that choose corpora."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    return parser


def labelled_corpora(names: Sequence[str] | None, data: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Read the labelled runs of corpora, by default of all; print which are not there."""
    for name in names or (*EMBEDDED, *PUBLISHED):
        frame = labelled_runs(name, data)
        if isinstance(frame, str):
            print(frame)
        else:
            yield name, frame


def out_of_fold(frame: pd.DataFrame, left_out: tuple[str, ...] = ("",)) -> NDArray[np.float64]:
    """Return a row of lexical scores for every agent left out, "" for none.

    The judge of a run saw no run of its task, and none of the agent that is left out.
    """
    outcome, agent = frame["outcome"].to_numpy(np.int64), frame["agent"].to_numpy(str)
    texts = [rendered.text for rendered in render_frame(frame, Renderer())]
    tasks, code = np.unique(frame["task_id"].to_numpy(str), return_inverse=True)
    fold = (np.random.default_rng(0).permutation(tasks.size) % FOLDS)[code]
    scores = np.empty((len(left_out), len(texts)))
    for row, name in enumerate(left_out):
        for number in range(FOLDS):
            known = np.flatnonzero((fold != number) & (agent != name))
            held = np.flatnonzero(fold == number)
            judge = LexicalJudge.train([texts[place] for place in known], outcome[known])
            scores[row, held] = judge.score([texts[place] for place in held]).score
    return scores


def published_files(data: Path) -> Iterator[dict[str, str]]:
    """Yield every published file with where it comes from."""
    for corpus in PUBLISHED:
        for source in json.loads((data / corpus / "SOURCE.json").read_text("utf-8")):
            archive = data / corpus / source.get("archive", "")
            if not archive.is_file():
                continue
            about = {"corpus": corpus, "repository": source["repo"], "commit": source["commit"]}
            with tarfile.open(archive) as opened:
                for member in sorted(opened.getmembers(), key=lambda member: member.name):
                    if file := opened.extractfile(member) if member.isfile() else None:
                        digest = hashlib.sha256(file.read()).hexdigest()
                        yield {**about, "path": member.name, "sha256": digest}


if __name__ == "__main__":
    pd.DataFrame(published_files(DATA)).to_csv(
        sys.argv[1], index=False, compression={"method": "gzip", "mtime": 0}
    )
