"""Who may label: links with tokens, kept in a file or not."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Mapping, Sequence
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
    """Tokens that let reviewers in.

    Each of `reviewers` has one. Without any there is one token, whose reviewer says who they are;
    it is theirs alone from the first form that they send. With a file tokens outlive the server.
    """

    def __init__(self, names: Sequence[str], *, file: Path | None = None) -> None:
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"the reviewer {twice!r} is named twice; name each of them once.")
        self._file = file
        self._kept = _read(file) if file is not None else {}
        wanted = names or list(self._kept) or [""]
        made = {name: self._kept.get(name) or secrets.token_urlsafe(32) for name in wanted}
        self._names = {token: name for name, token in made.items()}
        self._binding = threading.Lock()
        if set(made) - set(self._kept):
            self._keep(self._kept | made)

    @property
    def lasting(self) -> bool:
        """Whether the tokens outlive the server."""
        return self._file is not None

    @property
    def tokens(self) -> dict[str, str]:
        """Tokens by the names of their reviewers; one under "" for whom it is given."""
        return {name: token for token, name in self._names.items()}

    def known(self, token: str) -> str | None:
        """Return a token that was printed, None for another; all of them take the same time."""
        given, found = token.encode(), None
        for one in self._names:
            found = one if hmac.compare_digest(given, one.encode()) else found
        return found

    def owner(self, token: str) -> str:
        """Return whose link a token is; empty where nobody has used it."""
        return self._names[token]

    def bind(self, token: str, reviewer: str) -> bool:
        """Give a link to a reviewer; False where it is another's."""
        with self._binding:
            if not self._names[token]:
                if reviewer in self._names.values():
                    return False
                self._names[token] = reviewer
                kept = {name: one for name, one in self._kept.items() if one != token}
                self._keep(kept | {reviewer: token})
            return self._names[token] == reviewer

    def _keep(self, tokens: Mapping[str, str]) -> None:
        self._kept = dict(tokens)
        if self._file is not None:
            write_atomic(self._file, canonical_json({"tokens": self._kept}), private=True)


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
