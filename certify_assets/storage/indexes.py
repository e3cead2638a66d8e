"""Indexes: rows that follow from events, written with them and made again at any time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from certify_assets.storage.events import Event
    from certify_assets.storage.store import Store


def follow(store: Store, connection: sa.Connection, rows: Sequence[Event]) -> None:
    """Bring the indexes to the state after these events."""
