"""Locks between processes: held on an open file, and let go of by the system when it closes."""

from __future__ import annotations

_POLL_SECONDS = 0.005


def lock_file(handle: int, *, wait: bool = True) -> bool:
    """Lock an open file until it is closed, which a kill does too; return whether it is held."""
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=wait, poll_interval=_POLL_SECONDS)
