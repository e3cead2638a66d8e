"""What the converters share: published files in, a table of runs as JSON Lines out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from certify_assets.corpora.formats.files import FileSet, Tally

Row = dict[str, Any]


class Steps:
    """The steps of a run: what the agent did, and what it saw until it did something else."""

    def __init__(self) -> None:
        self.pairs: list[list[str]] = []

    def act(self, text: str) -> None:
        """Begin a step."""
        self.pairs.append([text, ""])

    def see(self, text: str) -> None:
        """Add to what the latest step saw."""
        if not self.pairs:
            self.act("")
        seen = self.pairs[-1][1]
        self.pairs[-1][1] = f"{seen}\n{text}" if seen else text


def convert(
    rows: Callable[[FileSet], Iterator[Row]], suffixes: Iterable[str], description: str
) -> None:
    """Write the rows that a converter finds in files, folders and archives."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("paths", nargs="+", type=Path, help="files, folders or archives")
    parser.add_argument("--out", required=True, type=Path, help="table to write (.jsonl)")
    arguments = parser.parse_args()
    number = 0
    with arguments.out.open("w", encoding="utf-8") as out:
        for row in rows(FileSet(arguments.paths, suffixes, Tally())):
            out.write(json.dumps(row) + "\n")
            number += 1
    print(f"{arguments.out}: {number} runs; certify corpus import {arguments.out} --format table")
