"""The inputs that fuzzing starts from: the readers' own, and those that it found earlier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["CORPUS", "found_inputs", "kept_inputs"]

#: a folder a reader, a file an input
CORPUS: Final = Path(__file__).with_name("corpus")


def found_inputs(name: str) -> list[Path]:
    """Return the inputs that fuzzing a reader found."""
    folder = CORPUS / name
    return sorted(folder.iterdir()) if folder.is_dir() else []


def kept_inputs(name: str) -> Iterator[bytes]:
    """Return all inputs of a reader."""
    from certify_assets_tests.fuzzing.readers import READERS

    yield from READERS[name].seeds()
    for path in found_inputs(name):
        yield path.read_bytes()
