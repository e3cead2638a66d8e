"""Who may label: a link with a token for every reviewer, kept in a file or not."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, Field

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, write_atomic

#: a browser may keep a cookie for 400 days, not longer
KEPT_SECONDS: Final = 400 * 24 * 3600


class _Kept(BaseModel):
    """A file of links: tokens by the names of their reviewers."""

    tokens: dict[str, Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-]{32,128}$")]]


class Links:
    """Tokens that let reviewers in: one for each name, or those of a file where none is given.

    With a file tokens outlive the server.
    """

    def __init__(self, names: Sequence[str], *, file: Path | None = None) -> None:
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"the reviewer {twice!r} is named twice; name each of them once.")
        kept = {} if file is None else _read(file)
        wanted = names or list(kept)
        if not wanted:
            raise InputError("no reviewer is named; give each of them a link with --reviewer NAME.")
        #: by the names of their reviewers
        self.tokens = {name: kept.get(name) or secrets.token_urlsafe(32) for name in wanted}
        #: whether the tokens outlive the server
        self.lasting = file is not None
        if file is not None and self.tokens.keys() - kept:
            document = canonical_json({"tokens": kept | self.tokens})
            write_atomic(file, document, private=True)

    def reviewer(self, token: str) -> str | None:
        """Return whose token it is, None for another; all of them take the same time."""
        given, found = token.encode(), None
        for name, one in self.tokens.items():
            found = name if hmac.compare_digest(given, one.encode()) else found
        return found


def _read(file: Path) -> dict[str, str]:
    """Read the tokens of a file by their reviewers; none where it is not there yet."""
    if not file.exists():
        return {}
    if not file.is_file():
        raise InputError(f"{file} is no file, so it cannot keep links; give one, or a new name.")
    if file.stat().st_mode & 0o077:
        raise InputError(f"{file} can be read by others, who could label; chmod 600 {file}.")
    try:
        tokens = _Kept.model_validate_json(file.read_bytes()).tokens
        if len(set(tokens.values())) < len(tokens):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{file} is no file of review links; give another one, or delete it, and reviewers get "
            "new links."
        ) from None
    return tokens
