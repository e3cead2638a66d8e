"""One writer at a time, across processes and hosts: leases in the data root."""

# A lease is a document that its holders renew and remove. One that was killed stops renewing, so
# that its place is free when the time has passed, and at once where the next one is on the same
# machine and sees that the process is gone. Clocks of hosts that share a data root must agree
# within a minute. One owner may hold a lease several times: the steps of a run, each a process, and
# what a block calls that holds it already.

from __future__ import annotations

import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.files import canonical_json, parse_json
from certify_assets.storage.store import Store

SCHEMA: Final = "certify_assets/lease/1"
TTL: Final = 120.0
#: who holds the leases that a process takes, where the command that started it does
OWNER_VARIABLE: Final = "CERTIFY_LEASE_OWNER"
_POLL_SECONDS = 2.0
_PATIENCE_SECONDS = 300.0
_LOG = logging.getLogger("certify_assets")
_OWNER: ContextVar[str] = ContextVar("owner of leases", default="")


class Clock:
    """The time of a lease; tests give their own."""

    def now(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


CLOCK: Final = Clock()


@dataclass(frozen=True)
class Holder:
    """A block of one process that holds a lease."""

    what: str
    host: str
    machine: str  # within which a pid names one process
    pid: int
    token: str
    acquired: float
    expires: float

    def alive(self, now: float) -> bool:
        """Whether it may still write: neither expired nor a process of this machine that ended."""
        return now < self.expires and (self.machine != _machine() or _runs(self.pid))


@dataclass(frozen=True)
class Held:
    """The stored document of a lease: its owner, who holds it at least once."""

    owner: str
    holders: tuple[Holder, ...]

    @classmethod
    def parse(cls, data: bytes | None) -> Held | None:
        """Read a stored document; None where nothing is stored that could be one."""
        try:
            document = parse_json((data or b"").decode("utf-8"))
            return cls(document["owner"], tuple(Holder(**item) for item in document["holders"]))
        except (ValueError, TypeError, KeyError):
            # a lease is stored whole, so this is none
            return None

    def to_bytes(self) -> bytes:
        """Return the document as it is stored."""
        return canonical_json({"schema": SCHEMA, **asdict(self)})

    def living(self, now: float, *, without: str = "") -> Held | None:
        """Return the lease with those who may still write; None if there is none."""
        rest = tuple(item for item in self.holders if item.token != without and item.alive(now))
        return replace(self, holders=rest) if rest else None

    def describe(self, name: str) -> str:
        """Say who is at work, where, since when and until when."""
        first = min(self.holders, key=lambda holder: holder.acquired)
        last = max(holder.expires for holder in self.holders)
        return (
            f"{self.owner} is at work on {name} ({first.what}) since {_moment(first.acquired)}, "
            f"as process {first.pid} on {first.host}; its lease ends at {_moment(last)} unless it "
            "is renewed"
        )


#: is called with who holds the lease and the seconds waited, at every look; raises to give up
Waiting = Callable[[Held, float], None]


class Lease:
    """The right to write something of a data root, such as a corpus."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        owner: str,
        what: str,
        clock: Clock = CLOCK,
        ttl: float = TTL,
    ) -> None:
        self.name, self.owner, self.what = name, owner, what
        self._backend, self._clock, self._ttl = store.backend, clock, ttl
        self._key = f"leases/{name}.json"
        self._token = uuid.uuid4().hex
        # whether the last holders are gone and did not give it back
        self._orphaned = False

    @contextmanager
    def hold(self, waiting: Waiting) -> Iterator[None]:
        """Hold the lease for a block, renewed by a thread; wait while another owner has it."""
        started = self._clock.now()
        while (other := self.take()) is not None:
            waited = self._clock.now() - started
            waiting(other, waited)
            self._clock.sleep(min(_POLL_SECONDS, 0.1 + waited))
        if self._orphaned:
            # who was killed left files that it had begun, and nobody else writes here
            self._backend.remove_parts(self.name)
        ended, lost = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=self._keep, args=(ended, lost), name=f"lease of {self.name}", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            # where storage fails now, the lease ends by its time; what it raises differs
            with suppress(Exception):
                if not self.leave():
                    lost.set()
        if lost.is_set():
            raise IntegrityError(
                f"{self.owner} lost its lease of {self.name} while it was at work ({self.what}): "
                "it could not be renewed in time, so another process may have written meanwhile; "
                "run this again."
            )

    def take(self) -> Held | None:
        """Take the lease; return None if it is held now, else who has it."""
        others: list[Held] = []

        def taken(data: bytes | None) -> bytes | None:
            now = self._clock.now()
            stored = Held.parse(data)
            held = stored and stored.living(now)
            self._orphaned = stored is not None and held is None
            if held is not None and held.owner != self.owner:
                others.append(held)
                return data
            holder = Holder(
                what=self.what,
                host=platform.node(),
                machine=_machine(),
                pid=os.getpid(),
                token=self._token,
                acquired=now,
                expires=now + self._ttl,
            )
            return Held(self.owner, (*(held.holders if held else ()), holder)).to_bytes()

        self._backend.change(self._key, taken)
        return others[0] if others else None

    def renew(self) -> bool:
        """Let the lease last for its time from now; return whether it was still held."""

        def renewed(held: Held) -> Held:
            until = self._clock.now() + self._ttl
            return replace(
                held,
                holders=tuple(
                    replace(holder, expires=until) if holder.token == self._token else holder
                    for holder in held.holders
                ),
            )

        return self._changed(renewed)

    def leave(self) -> bool:
        """Give the lease back, and remove it with its last holder; return whether it was held."""
        return self._changed(lambda held: held.living(self._clock.now(), without=self._token))

    def _changed(self, make: Callable[[Held], Held | None]) -> bool:
        mine: list[bool] = []

        def changed(data: bytes | None) -> bytes | None:
            mine.clear()
            held = Held.parse(data)
            # one that is late keeps the lease as long as nobody has taken it
            if held is None or all(holder.token != self._token for holder in held.holders):
                return data
            mine.append(True)
            made = make(held)
            return made.to_bytes() if made else None

        self._backend.change(self._key, changed)
        return bool(mine)

    def _keep(self, ended: threading.Event, lost: threading.Event) -> None:
        while not ended.wait(self._ttl / 3):
            # the next third tries again, until it is too late
            with suppress(Exception):
                if not self.renew():
                    lost.set()
                    return


@contextmanager
def holding(
    store: Store, name: str, *, what: str, waiting: Waiting | None = None, owner: str = ""
) -> Iterator[str]:
    """Hold a lease for a block and all that it calls; give the name of its owner.

    Where the block is part of one that holds leases, or its process of a command that does, that
    owner holds this one too. Without `waiting` another owner's end is awaited for five minutes.
    """
    before = _OWNER.get()
    mine = before or os.environ.get(OWNER_VARIABLE) or owner or f"command {uuid.uuid4().hex[:8]}"
    with Lease(store, name, owner=mine, what=what).hold(waiting or _patient(name)):
        _OWNER.set(mine)
        try:
            yield mine
        finally:
            _OWNER.set(before)


def refusing(name: str) -> Waiting:
    """Wait for nobody: say who holds the lease."""

    def refuse(held: Held, _: float) -> None:
        raise CertifyError(f"{held.describe(name)}. Wait for its end, or end it first.")

    return refuse


def _patient(name: str) -> Waiting:
    said: list[Held] = []

    def wait(held: Held, seconds: float) -> None:
        if seconds > _PATIENCE_SECONDS:
            raise CertifyError(
                f"{held.describe(name)}. Waited {seconds:.0f} seconds for it; call this again "
                "after its end."
            )
        if not said:
            _LOG.warning("%s. Waiting for its end.", held.describe(name))
            said.append(held)

    return wait


@cache
def _machine() -> str:
    """Return what distinguishes machines and containers, whatever their host names."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # two containers of one host may have its name, and see only their own processes
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return platform.node()


def _runs(pid: int) -> bool:
    if os.name != "posix":
        # there is no signal that only asks: its time decides
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # of another user
        return True
    return True


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
