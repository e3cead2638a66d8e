"""A link of a lineage: something stored, the hash by which another thing names it, and the hash that it has now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from certify_assets.errors import CertifyError
from certify_assets.storage.store import Store

__all__ = ["STATUSES", "Link", "compared", "file_link", "told"]

#: of a link: it has the hash by which it is named, another one, is not there, or is named by no hash
STATUSES: Final = ("holds", "differs", "missing", "told")


@dataclass(frozen=True)
class Link:
    """One link.

    Parameters
    ----------
    kind : str
        What it is: decision, batch, table, certificate, scores, adapter, harvest, manifest, trajectories, import, source, …
    name : str
        Key in the data root, or what else tells it apart.
    status : str
        One of `STATUSES`.
    expected, found : str
        SHA-256 by which it is named, and that it has now; empty where there is none.
    detail : str
        What else there is to say.
    must : bool
        Whether the lineage is broken where it does not hold.
    links : tuple of Link
        What it stands on.
    """

    kind: str
    name: str
    status: str
    expected: str = ""
    found: str = ""
    detail: str = ""
    must: bool = True
    links: tuple[Link, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether this very link does not hold and should."""
        return self.must and self.status in ("differs", "missing")

    def walk(self) -> Iterator[Link]:
        """Go through this link and all below it."""
        yield self
        for link in self.links:
            yield from link.walk()

    def to_dict(self) -> dict[str, Any]:
        """Return the link and all below it as a JSON object."""
        names = ("kind", "name", "status", "expected", "found", "detail", "must")
        return {
            **{name: getattr(self, name) for name in names},
            "links": [link.to_dict() for link in self.links],
        }


def compared(
    kind: str, name: str, expected: str, found: str, *, detail: str = "", links: Sequence[Link] = ()
) -> Link:
    """Return the link of something whose hash is known now; an empty one says that it is not there, where nothing names it that it is told."""
    if not expected:
        return Link(kind, name, "told", found=found, detail=detail, must=False, links=tuple(links))
    status = "missing" if not found else "holds" if found == expected else "differs"
    return Link(kind, name, status, expected, found, detail, links=tuple(links))


def file_link(
    store: Store,
    kind: str,
    key: str,
    expected: str,
    *,
    detail: str = "",
    links: Sequence[Link] = (),
) -> Link:
    """Return the link of a stored file by the hash of its bytes."""
    try:
        found = store.sha256(key) if store.exists(key) else ""
    except (CertifyError, OSError) as error:
        return replace(compared(kind, key, expected, "", links=links), detail=str(error))
    return compared(kind, key, expected, found, detail=detail, links=links)


def told(kind: str, name: str, detail: str = "", links: Sequence[Link] = ()) -> Link:
    """Return the link of something that nothing names by a hash."""
    return Link(kind, name, "told", detail=detail, must=False, links=tuple(links))
