"""The readers as functions of bytes, each with the inputs that it starts from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certify_assets.cli.documents import load_certificates
from certify_assets.corpora.config import load_config
from certify_assets.corpora.formats import import_corpus
from certify_assets.errors import CertifyError
from certify_assets.evaluation.score_table import ColumnNames, read_labels, read_score_table
from certify_assets.judges.specs import FILE, judge_problems, judges
from certify_assets.operations.notification_config import FILE as NOTIFICATIONS
from certify_assets.operations.notification_config import read_notifications
from certify_assets.operations.review_criteria import read_criteria
from certify_assets.storage.journal import kept_lines
from certify_assets.storage.store import Store
from certify_assets_tests.corpora.formats import load_formats

__all__ = ["CORPUS", "READERS", "Reader", "kept_inputs"]

#: what fuzzing found: a folder a reader, a file an input
CORPUS: Final = Path(__file__).with_name("corpus")

#: in memory where there is such a place: each input is a file or a folder
_MEMORY = Path("/dev/shm")
_TABLES = (".csv", ".tsv", ".jsonl", ".json", ".xlsx", ".parquet", ".arrow")


@dataclass(frozen=True)
class Reader:
    """A reader: what it does with bytes, and inputs that it takes."""

    read: Callable[[bytes], object]
    seeds: Callable[[], Iterator[bytes]]

    def __call__(self, data: bytes) -> None:
        """Read bytes; what is refused is refused in words."""
        try:
            self.read(data)
        except CertifyError as error:
            assert str(error).strip(), "a refusal without a word"


@contextmanager
def _folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def _sources() -> Mapping[str, list[tuple[str, bytes]]]:
    """Return the files of the hand-made source of every format."""
    found = {}
    with _folder() as folder:
        for form in load_formats():
            root = folder / form.name
            form.write(root, None)
            files = sorted(path for path in root.rglob("*") if path.is_file())
            found[form.name] = [(str(path.relative_to(root)), path.read_bytes()) for path in files]
    return found


def _source_reader(name: str, files: list[tuple[str, bytes]]) -> Reader:
    """Return the reader of a format: the first byte says which file of its source is replaced."""

    def read(data: bytes) -> None:
        changed = data[0] % len(files) if data else 0
        with _folder() as folder:
            for number, (path, content) in enumerate(files):
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data[1:] if number == changed else content)
            import_corpus(folder, name="fuzzed", format="auto" if data[:1] > b"\x7f" else name)

    def seeds() -> Iterator[bytes]:
        for number, (_, content) in enumerate(files[:128]):
            if len(content) < 20_000:
                yield bytes([number]) + content

    return Reader(read, seeds)


def _file_reader(read: Callable[[Path], object], endings: Mapping[str, bytes]) -> Reader:
    """Return a reader of one file: the first byte chooses its ending."""
    names = [*endings]

    def read_file(data: bytes) -> None:
        ending = names[data[0] % len(names)] if data else names[0]
        with _folder() as folder:
            path = folder / f"given{ending}"
            path.write_bytes(data[1:])
            read(path)

    return Reader(
        read_file,
        lambda: (bytes([number]) + data for number, data in enumerate(endings.values())),
    )


def _settings_reader(name: str, read: Callable[[Store], object], seed: bytes) -> Reader:
    """Return a reader of a document of a data root."""

    def read_document(data: bytes) -> None:
        with _folder() as folder:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
            read(Store(str(folder)))

    return Reader(read_document, lambda: iter([seed]))


def _tables() -> dict[str, bytes]:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "trajectory_id": ["a/1", "a/2", "b/1"],
            "task_id": ["a", "a", "b"],
            "score": [0.5, -1.25, 3.0],
            "outcome": [1, 0, 1],
        }
    )
    found = {}
    with _folder() as folder:
        for ending in _TABLES:
            path = folder / f"table{ending}"
            if ending in (".csv", ".tsv"):
                frame.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
            elif ending in (".jsonl", ".json"):
                frame.to_json(path, orient="records", lines=ending == ".jsonl")
            elif ending == ".xlsx":
                frame.to_excel(path, index=False)
            elif ending == ".parquet":
                frame.to_parquet(path)
            else:
                frame.to_feather(path, compression="uncompressed")
            found[ending] = path.read_bytes()
    return found


def _certificates() -> dict[str, bytes]:
    from certify_assets.certificates import certify

    tasks = [number // 2 for number in range(80)]
    scores = [(number * 37) % 80 / 80 for number in range(80)]
    outcomes = [int(score > 0.5) for score in scores]
    made = certify(scores, outcomes, tasks, side="reject", procedure="taskboot")
    both = json.dumps({"certificates": [made.to_dict()]}).encode()
    return {".json": made.to_json(), ".JSON": both}


_JUDGES = b"""judges:
  - {name: mine, url: 'http://127.0.0.1:1/v1', model: m}
  - {name: own, family: lexical, reading: {chars: whole}}
"""
_NOTIFIED = b"""targets:
  - {name: team, webhook: 'https://example.org/hook', events: [alarm], timeout: 5}
  - {name: program, command: ['true'], attempts: 3, wait: 2}
  - {name: chat, apprise: CERTIFY_CHAT_URL}
"""
_CRITERIA = {
    ".md": b"Passed where the order arrived.",
    ".json": b'{"a": "b"}',
    ".csv": b"task_id,criterion\na,b\n",
}


def _known_judges(store: Store) -> object:
    return judges(store.root), judge_problems(store.root)


def _readers() -> dict[str, Reader]:
    tables = _tables()
    plain = {name: data for name, data in tables.items() if name in (".csv", ".tsv", ".jsonl")}
    return {
        "scores": _file_reader(read_score_table, tables),
        "new_scores": _file_reader(lambda path: read_score_table(path, outcomes=False), plain),
        "labels": _file_reader(lambda path: read_labels(path, ColumnNames()), plain),
        "criteria": _file_reader(read_criteria, _CRITERIA),
        "certificate": _file_reader(load_certificates, _certificates()),
        "corpus": _settings_reader(
            "corpora/c/corpus.json",
            lambda store: load_config(store, "c"),
            b'{"name": "c", "alphas": [0.1, 0.2], "leak_thresholds": {"steps": 0.9}}',
        ),
        "judges": _settings_reader(FILE, _known_judges, _JUDGES),
        "notifications": _settings_reader(NOTIFICATIONS, read_notifications, _NOTIFIED),
        "journal": Reader(
            lambda data: [*kept_lines(data)], lambda: iter([b'{"a": 1}\n{"a": 2}\n'])
        ),
        **{f"runs_{name}": _source_reader(name, files) for name, files in _sources().items()},
    }


#: every reader by its name; made once
READERS: Mapping[str, Reader] = _readers()


def kept_inputs(name: str) -> Iterator[bytes]:
    """Return the inputs that a reader starts from, and those that fuzzing it found."""
    yield from READERS[name].seeds()
    for path in sorted((CORPUS / name).glob("*")):
        yield path.read_bytes()
