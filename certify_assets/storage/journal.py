"""Journals of a corpus: entries in the chain of its events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.events import Draft, Event
from certify_assets.storage.snapshot import Snapshot
from certify_assets.storage.store import Store, chain_of

T = TypeVar("T")


def sorted_line(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def canonical_line(value: Any) -> str:
    return canonical_json(value).decode("utf-8").rstrip("\n")


class Line(NamedTuple):
    number: int
    document: dict[str, Any]
    sha256: str


@dataclass(frozen=True)
class LineFormat:
    """How a journal writes and chains its lines; stored journals fix it for good."""

    # field with the hash of the line before; "" where lines are not chained
    previous: str = "previous"
    # field with the number of the line; "" where lines have none
    number: str = ""
    # field with the line's own hash, of the canonical JSON of all its other fields; without it the
    # hash is that of the line's bytes
    seal: str = ""
    # what the first line names as the line before
    genesis: str = ""
    encode: Callable[[Any], str] = sorted_line
    # what a line is, and what a reader does about a damaged journal, in the words of errors
    entry: str = "an entry of this journal"
    remedy: str = "restore the file from a backup"
    error: type[IntegrityError] = IntegrityError

    def read(self, data: bytes, where: str) -> Iterator[Line]:
        """Verify the whole lines of a journal one after another."""
        head = self.genesis
        whole = data[: data.rfind(b"\n") + 1]
        for number, raw in enumerate(whole.splitlines(), 1):
            try:
                document = dict(parse_json(raw.decode("utf-8")))
            except (ValueError, TypeError, RecursionError):
                raise self.unreadable(where, number) from None
            follows = not self.previous or document.get(self.previous, "") == head
            counted = not self.number or document.get(self.number) == number
            if not counted or not follows:
                raise self.altered(where, number)
            head = self._sealed(document) if self.seal else sha256_bytes(raw)
            if self.seal and document.get(self.seal) != head:
                raise self.altered(where, number)
            yield Line(number, document, head)

    def line(self, document: Mapping[str, Any], number: int, head: str) -> tuple[str, Line]:
        """Return the text of the line that follows `head`, and the line."""
        entry = dict(document)
        if self.number:
            entry[self.number] = number
        if self.previous:
            entry[self.previous] = head
        if self.seal:
            entry[self.seal] = self._sealed(entry)
        text = self.encode(entry)
        digest = entry[self.seal] if self.seal else sha256_bytes(text.encode("utf-8"))
        return text, Line(number, entry, digest)

    def unreadable(self, where: str, number: int) -> IntegrityError:
        """Return the error of a line that cannot be read."""
        return self.error(f"{where}, line {number} is not {self.entry}; {self.remedy}.")

    def altered(self, where: str, number: int) -> IntegrityError:
        """Return the error of a line that does not follow the one before it."""
        return self.error(
            f"{where}, line {number} does not follow the line before it: the journal was "
            f"altered; {self.remedy}."
        )

    def _sealed(self, document: Mapping[str, Any]) -> str:
        body = {name: value for name, value in document.items() if name != self.seal}
        return sha256_bytes(canonical_json(body))


UNCHAINED = LineFormat(previous="")


@dataclass(frozen=True)
class Journal(Generic[T]):
    """Interim: a journal as events of one kind."""

    store: Store
    key: str
    parse: Callable[[dict[str, Any]], T]
    format: LineFormat = LineFormat()
    dump: Callable[[Any], Mapping[str, Any]] = asdict
    heads: str = ""
    due: Callable[[Sequence[T]], bool] = lambda _: True
    watched: bool = True

    @property
    def _kind(self) -> str:
        return "journal " + self.key.rpartition("/")[2]

    def read(self) -> list[T]:
        return [self._parsed(line.document) for line in self.lines()]

    def lines(self) -> list[Line]:
        return self._lines(self.store.now())

    def _lines(self, view: Snapshot) -> list[Line]:
        found = []
        previous = self.format.genesis
        for number, row in enumerate(
            view.rows(chain_of(self.key), self._kind, watched=self.watched), 1
        ):
            line = self._line(row, number, previous)
            previous = line.sha256
            found.append(line)
        return found

    def _line(self, row: Event, number: int, previous: str) -> Line:
        document = dict(parse_json(row.payload)["entry"])
        if self.format.number:
            document[self.format.number] = number
        if self.format.previous:
            document[self.format.previous] = previous
        if self.format.seal:
            document[self.format.seal] = row.sha256
        return Line(number, document, row.sha256)

    def anchor(self) -> None:
        pass

    def head(self) -> str:
        lines = self.lines()
        return lines[-1].sha256 if lines else self.format.genesis

    def append(self, *entries: T) -> list[T]:
        return self.extend(lambda _: entries)

    def append_unless(self, known: Callable[[T], bool], entry: T) -> T | None:
        added = self.extend(lambda stored: [] if any(map(known, stored)) else [entry])
        return added[0] if added else None

    def extend(self, make: Callable[[list[T]], Iterable[T]]) -> list[T]:
        corpus, before = chain_of(self.key), 0

        def work(view: Snapshot) -> None:
            nonlocal before
            lines = self._lines(view)
            before = len(lines)
            drafts = []
            for entry in make([self._parsed(line.document) for line in lines]):
                text = canonical_json({"entry": self.dump(entry)}).decode("utf-8").rstrip("\n")
                drafts.append(Draft(corpus, self._kind, "", text, ()))
            view._steps[0].drafts += drafts

        view = self.store.now()
        view.short(corpus, work)
        return [self._parsed(line.document) for line in self._lines(view)[before:]]

    def _parsed(self, document: dict[str, Any]) -> T:
        try:
            return self.parse(document)
        except (TypeError, ValueError, KeyError, AttributeError, InputError):
            raise self.format.error(
                f"{self.key} is not {self.format.entry}; {self.format.remedy}."
            ) from None


def heads_key(corpus: str) -> str:
    return f"ledger/{corpus}.heads.jsonl"
