"""Append-only journals: one JSON object a line, chained by hashes."""

# A line names the hash of the line before it, so a line that was changed, added or taken out is
# found by every reader. What is cut off at the end is found by those who stored a later head. A
# last line without its end is the trace of a kill in the middle of a write: nothing was confirmed,
# readers leave it out and the next append cuts it off.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.store import Store

T = TypeVar("T")


def sorted_line(value: Any) -> str:
    """Encode an object in ASCII, its keys sorted."""
    return json.dumps(value, sort_keys=True)


def canonical_line(value: Any) -> str:
    """Encode an object as canonical JSON, without the newline."""
    return canonical_json(value).decode("utf-8").rstrip("\n")


class Line(NamedTuple):
    """A verified line: its number from 1, its object, and its hash, which the next one names."""

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


#: Lines that nothing depends on but their own content.
UNCHAINED: Final = LineFormat(previous="")


@dataclass(frozen=True)
class Head:
    """The last line that a journal had once, as a second file keeps it."""

    journal: str  # storage key
    lines: int
    sha256: str


@dataclass(frozen=True)
class Journal(Generic[T]):
    """A journal in a data root."""

    store: Store
    key: str
    parse: Callable[[dict[str, Any]], T]
    format: LineFormat = LineFormat()
    # the object of an entry; the journal fills in number and hash
    dump: Callable[[Any], Mapping[str, Any]] = asdict
    # key of the journal of heads, kept apart: without it a journal that is cut off or put back from
    # an older copy is a valid one
    heads: str = ""
    # whether the entries that no head names yet need one. A journal of many small lines has a head
    # for several of them, and who decides from it calls `anchor` first
    due: Callable[[Sequence[T]], bool] = lambda _: True

    def read(self) -> list[T]:
        """Return every entry, oldest first, after verifying the chain; none without a file."""
        return self._entries(self.lines())

    def lines(self) -> list[Line]:
        """Return the verified lines."""
        heads = self._heads()
        data = self.store.read_bytes(self.key) if self.store.exists(self.key) else b""
        return self._complete(self._lines(data), heads)

    def anchor(self) -> None:
        """Keep the last line as a head, unless one names it; refuse the journal as `read` does."""
        lines = self.lines()
        if lines:
            last = Head(self.key, len(lines), lines[-1].sha256)
            heads_journal(self.store, self.heads).append_unless(lambda head: head == last, last)

    def head(self) -> str:
        """Return the hash of the last line; what the first line names where there is none."""
        return self._head(self.lines())

    def append(self, *entries: T) -> list[T]:
        """Append entries and return them as they are stored."""
        return self.extend(lambda _: entries)

    def append_unless(self, known: Callable[[T], bool], entry: T) -> T | None:
        """Append an entry unless one like it is stored; return the appended one."""
        added = self.extend(lambda stored: [] if any(map(known, stored)) else [entry])
        return added[0] if added else None

    def extend(self, make: Callable[[list[T]], Iterable[T]]) -> list[T]:
        """Append what `make` returns for the stored entries; return it as it is stored.

        No other process appends between the two: `make` may be called again for more entries.
        """
        added: list[T] = []
        known, last = self._heads(), [Head(self.key, 0, "")]
        named, unnamed = max((item.lines for item in known), default=0), list[T]()

        def texts(old: bytes) -> str | None:
            # an object store asks again where another writer was faster
            added.clear()
            lines = self._complete(self._lines(old), known)
            head, new, entries = self._head(lines), [], self._entries(lines)
            last[0] = Head(self.key, len(lines), head)
            for number, entry in enumerate(make(list(entries)), len(lines) + 1):
                text, line = self.format.line(self.dump(entry), number, head)
                head = line.sha256
                last[0] = Head(self.key, number, head)
                new.append(text)
                added.extend(self._entries([line]))
            unnamed[:] = [*entries, *added][named:]
            return "\n".join(new) or None

        self.store.append_line(self.key, texts)
        if self.heads and unnamed and self.due(unnamed):
            # a kill before this leaves an earlier head, which the journal has as well, and the next
            # call brings this one, whether or not it has something to add
            heads_journal(self.store, self.heads).append(last[0])
        return added

    def _heads(self) -> list[Head]:
        if not self.heads:
            return []
        stored = heads_journal(self.store, self.heads).read()
        return [head for head in stored if head.journal == self.key]

    def _complete(self, lines: list[Line], heads: Iterable[Head]) -> list[Line]:
        for head in heads:
            if head.lines > len(lines) or lines[head.lines - 1].sha256 != head.sha256:
                raise self.format.error(
                    f"{self.store.locate(self.key)} has not line {head.lines} that "
                    f"{self.store.locate(self.heads)} names: lines were cut off or an "
                    f"older copy was put back; {self.format.remedy}."
                )
        return lines

    def _lines(self, data: bytes) -> list[Line]:
        return list(self.format.read(data, self.store.locate(self.key)))

    def _head(self, lines: list[Line]) -> str:
        return lines[-1].sha256 if lines else self.format.genesis

    def _entries(self, lines: Iterable[Line]) -> list[T]:
        found = []
        for line in lines:
            try:
                found.append(self.parse(dict(line.document)))
            except (TypeError, ValueError, KeyError, AttributeError, InputError):
                where = self.store.locate(self.key)
                raise self.format.unreadable(where, line.number) from None
        return found


def heads_key(corpus: str) -> str:
    """Return the key of the heads of journals that must not be rewound, kept with the ledger."""
    return f"ledger/{corpus}.heads.jsonl"


def heads_journal(store: Store, key: str) -> Journal[Head]:
    """Return a journal of heads of other journals."""
    return Journal(store, key, _head_of, LineFormat(entry="a head of a journal"))


def _head_of(document: dict[str, Any]) -> Head:
    return Head(**{name: document[name] for name in ("journal", "lines", "sha256")})
