"""Where tests find what lies outside the package."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_data(*parts: str) -> Path:
    """Return a path below the folder of published agent runs, or skip the test where that folder is absent."""
    path = (REPOSITORY / ".." / "shared" / "data").resolve().joinpath(*parts)
    if not path.exists():
        pytest.skip(f"published agent runs are not here: ../shared/data/{'/'.join(parts)}")
    return path
