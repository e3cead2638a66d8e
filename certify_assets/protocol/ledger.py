"""The TEST ledger: nobody reads the outcomes of a TEST split without leaving a line.

A *registration* fixes what will be read before it is read: the split manifest, seeds, grid, budgets and judges, as one hash. A *read*
carries the hash of the configuration that asks (registration, judge, adapter, scores, certificates). Reading again with the same hash is
a replay; a changed configuration under one registration after a result was seen is a violation that the ledger's check reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from certify_assets.errors import LedgerError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.protocol.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LedgerEntry", "ledger_entries", "ledger_violations", "read_test", "register"]


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger.

    Parameters
    ----------
    kind : str
        ``registration``, ``first`` (read), ``replay``, ``changed`` or ``unregistered``.
    corpus, judge : str
        `judge` is empty on a registration.
    registration, configuration : str
        SHA-256 of what was fixed beforehand and of what asks; `configuration` is empty on a registration.
    run_id : str
        The Dagster run, or ``cli``.
    time : str
        UTC, ISO 8601.
    """

    kind: str
    corpus: str
    judge: str
    registration: str
    configuration: str
    run_id: str
    time: str


def ledger_entries(store: Store, corpus: str) -> list[LedgerEntry]:
    """Return every line of a corpus's ledger, oldest first.

    Raises
    ------
    LedgerError
        If a line was altered so that it cannot be read.
    """
    key = f"ledger/{corpus}.jsonl"
    if not store.exists(key):
        return []
    entries = []
    for number, line in enumerate(store.read_bytes(key).decode("utf-8", "replace").splitlines(), 1):
        try:
            entries.append(LedgerEntry(**json.loads(line)))
        except (json.JSONDecodeError, TypeError):
            raise LedgerError(f"{store.locate(key)}, line {number} is not a ledger entry; restore the file from a backup.") from None
    return entries


def register(store: Store, corpus: str, plan: Mapping[str, Any], *, run_id: str) -> str:
    """Fix what will be read on TEST; return the registration's hash.

    Parameters
    ----------
    store : Store
        The data root.
    corpus : str
        The corpus.
    plan : mapping
        Manifest hash, seeds, grid, budgets, confidence and judges: a JSON object.
    run_id : str
        Who registers.

    Notes
    -----
    Registering the same plan again adds nothing. Another plan is another registration; both stay in the ledger.
    """
    registration = sha256_bytes(canonical_json(dict(plan)))
    known = any(entry.kind == "registration" and entry.registration == registration for entry in ledger_entries(store, corpus))
    if not known:
        store.write_json(f"ledger/{corpus}.registrations/{registration}.json", dict(plan))
        _append(store, LedgerEntry("registration", corpus, "", registration, "", run_id, _now()))
    return registration


def read_test(
    store: Store, corpus: str, *, judge: str, registration: str, configuration: Mapping[str, Any], run_id: str
) -> tuple[pd.DataFrame, LedgerEntry]:
    """Return the TEST split with its outcomes, and the ledger's line for this read.

    Raises
    ------
    LedgerError
        If the registration is not in the ledger. The attempt is recorded.
    """
    entries = ledger_entries(store, corpus)
    asked = sha256_bytes(canonical_json({"registration": registration, "judge": judge, **configuration}))
    kind = _kind(entries, judge, registration, asked)
    entry = LedgerEntry(kind, corpus, judge, registration, asked, run_id, _now())
    _append(store, entry)
    if kind == "unregistered":
        raise LedgerError(
            f"TEST of {corpus} was asked for under the registration {registration[:12]} that is not in the ledger; register first."
        )
    return store.read_table(f"corpora/{corpus}/splits/test.parquet"), entry


def ledger_violations(store: Store, corpus: str, judge: str | None = None) -> list[LedgerEntry]:
    """Return the reads that break the protocol: unregistered ones, and changed configurations under one registration."""
    entries = ledger_entries(store, corpus)
    return [entry for entry in entries if entry.kind in {"changed", "unregistered"} and judge in {None, entry.judge}]


def _kind(entries: list[LedgerEntry], judge: str, registration: str, asked: str) -> str:
    if not any(entry.kind == "registration" and entry.registration == registration for entry in entries):
        return "unregistered"
    reads = [e for e in entries if e.kind != "registration" and e.judge == judge and e.registration == registration]
    if not reads:
        return "first"
    return "replay" if any(entry.configuration == asked for entry in reads) else "changed"


def _append(store: Store, entry: LedgerEntry) -> None:
    store.append_line(f"ledger/{entry.corpus}.jsonl", json.dumps(asdict(entry), sort_keys=True))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
