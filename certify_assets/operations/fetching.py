"""New runs from elsewhere: files of an fsspec URL are copied into a folder that goes away, within limits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from certify_assets.errors import InputError, MissingToolError

__all__ = ["FILES", "TOTAL_BYTES", "local_copies", "shown_url"]

#: most files, and bytes in all, that one call copies
FILES = 100_000
TOTAL_BYTES = 8 << 30


@contextmanager
def local_copies(places: Sequence[str]) -> Iterator[list[Path]]:
    """Give files and folders of this machine for paths and URLs, those of URLs as copies while the block lasts.

    Raises
    ------
    InputError
        If a URL cannot be read, holds nothing or too much, or names a file that would lie elsewhere.
    MissingToolError
        If the package of a URL's scheme is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="certify-incoming-") as folder:
        yield [
            _copied(place, Path(folder) / str(number)) if "://" in place else Path(place)
            for number, place in enumerate(places)
        ]


def shown_url(place: str) -> str:
    """Return a path or URL as it may be written down: without name, password and query of a URL."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _copied(url: str, folder: Path) -> Path:
    shown = shown_url(url)
    filesystem, root = _opened(url, shown)
    try:
        single = bool(filesystem.isfile(root))
        sizes = (
            {root: filesystem.size(root)}
            if single
            else {
                str(name): info.get("size")
                for name, info in filesystem.find(root, detail=True).items()
            }
        )
        _refuse_too_much(sizes, shown)
        root = str(root).rstrip("/")
        label = PurePosixPath(root).name or "runs"
        for name in sorted(sizes):
            target = folder / label if single else folder / label / _inside(name, root, shown)
            target.parent.mkdir(parents=True, exist_ok=True)
            filesystem.get_file(name, str(target))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{shown} cannot be read ({type(error).__name__}); check the address and the right to read it."
        ) from None
    return folder / label


def _opened(url: str, shown: str) -> tuple[Any, str]:
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingToolError(
            f"{shown} needs a package that is not installed ({error})."
        ) from None
    except (ValueError, OSError) as error:
        raise InputError(
            f"{shown} cannot be opened ({type(error).__name__}); give a path or a URL that fsspec knows."
        ) from None
    return filesystem, root


def _refuse_too_much(sizes: dict[str, Any], shown: str) -> None:
    if not sizes:
        raise InputError(f"there is no file in {shown}; check the address.")
    total = sum(int(size or 0) for size in sizes.values())
    if len(sizes) > FILES or total > TOTAL_BYTES:
        raise InputError(
            f"{shown} holds {len(sizes):,} files of {total:,} bytes; at most {FILES:,} files of {TOTAL_BYTES:,} bytes are copied at once, so give less."
        )


def _inside(name: str, root: str, shown: str) -> Path:
    """Return where a file lies below its root; its name is whatever the other side says."""
    relative = PurePosixPath(name.removeprefix(root).lstrip("/"))
    if relative.is_absolute() or not relative.parts or ".." in relative.parts or "\0" in name:
        raise InputError(
            f"{shown} names a file {name!a} that would lie outside of it; it is not read."
        )
    return Path(*relative.parts)
