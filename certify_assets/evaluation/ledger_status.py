"""Where every corpus stands with its TEST split: what was registered, who read it, and whether a rule was broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, LedgerError
from certify_assets.evaluation.ledger import LedgerEntry, ledger_entries, ledger_head
from certify_assets.storage.store import Store

__all__ = ["protocol_status"]

_KINDS = ("first", "replay", "changed", "unregistered")


def protocol_status(store: Store, corpora: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return one document a corpus, sorted by name.

    Parameters
    ----------
    store : Store
    corpora : sequence of str
        All registered ones where none is named.

    Returns
    -------
    list of dict
        ``registrations`` (hash, time, run, what was fixed), ``reads`` (kind, judge, version: the
        number of the registration among its reader's, time), ``readers`` (reads by kind, and
        results, of every judge or study), ``violations`` of the current registrations, ``head`` of
        the ledger, and ``fault``: the sentence where the ledger itself was altered, else None.

    Raises
    ------
    InputError
        If a named corpus is not registered.
    """
    known = registered_corpora(store)
    unknown = next((name for name in corpora if name not in known), None)
    if unknown is not None:
        raise InputError(
            f"there is no corpus {unknown!r} in {store.root}; there are {', '.join(known) or 'none'}."
        )
    return [_status(Corpus(store, corpus)) for corpus in sorted(corpora or known)]


def _status(corpus: Corpus) -> dict[str, Any]:
    try:
        entries = ledger_entries(corpus)
    except LedgerError as error:
        return {
            "corpus": corpus.name,
            "registrations": [],
            "reads": [],
            "readers": [],
            "violations": [],
            "head": "",
            "fault": str(error),
        }
    registered = [entry for entry in entries if entry.kind == "registration"]
    readers = sorted({entry.judge for entry in entries if entry.judge})
    return {
        "corpus": corpus.name,
        "registrations": [_registration(corpus.store, entry) for entry in registered],
        "reads": [
            {"kind": entry.kind, "judge": entry.judge, "version": version, "time": entry.time}
            for entry, version in _versions(entries)
        ],
        "readers": [_reader(entries, name) for name in readers],
        "violations": [
            {"kind": entry.kind, "judge": entry.judge, "time": entry.time}
            for entry in _violations(entries)
        ],
        "head": ledger_head(corpus),
        "fault": None,
    }


def _versions(entries: Sequence[LedgerEntry]) -> list[tuple[LedgerEntry, int | None]]:
    """Reads, each with the number of its registration among those of its reader, from 1."""
    seen: dict[str, list[str]] = {}
    found: list[tuple[LedgerEntry, int | None]] = []
    for entry in entries:
        if entry.kind in _KINDS:
            mine = seen.setdefault(entry.judge, [])
            if entry.kind != "unregistered" and entry.registration not in mine:
                mine.append(entry.registration)
            known = entry.registration in mine
            found.append((entry, mine.index(entry.registration) + 1 if known else None))
    return found


def _violations(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Reads that broke a rule of the registration that their reader works under now."""
    current = {
        entry.judge: entry.registration
        for entry in entries
        if entry.kind in _KINDS and entry.kind != "unregistered"
    }
    last = max((n for n, entry in enumerate(entries) if entry.kind == "registration"), default=-1)
    return [
        entry
        for number, entry in enumerate(entries)
        if (entry.kind == "changed" and entry.registration == current[entry.judge])
        # a read that was refused is history once something was registered after it
        or (entry.kind == "unregistered" and number > last)
    ]


def _registration(store: Store, entry: LedgerEntry) -> dict[str, Any]:
    key = f"ledger/{entry.corpus}.registrations/{entry.registration}.json"
    plan = store.read_json(key) if store.exists(key) else None
    return {
        "registration": entry.registration,
        "time": entry.time,
        "run_id": entry.run_id,
        "plan": plan,
    }


def _reader(entries: Sequence[LedgerEntry], judge: str) -> dict[str, Any]:
    mine = [entry for entry in entries if entry.judge == judge]
    counts = {kind: sum(entry.kind == kind for entry in mine) for kind in _KINDS}
    results = [entry for entry in mine if entry.kind == "result"]
    return {"judge": judge, **counts, "results": len(results), "last": mine[-1].time}
