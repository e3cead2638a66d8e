"""Files behind URLs: listings of them, and copies within limits."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.files import sha256_bytes

#: most files, and bytes in all, that one call copies
FILES: Final = 100_000
TOTAL_BYTES: Final = 8 << 30
# what file systems say of a file that changes with its content, each by its own name
_STAMPS: Final = (
    *("size", "e_tag", "ETag", "etag", "version"),
    *("mtime", "LastModified", "Last-Modified", "created"),
)
_WEB: Final = re.compile(r"https?://[^\s<>\"']{1,2000}")
#: file systems of this package, next to those that fsspec knows
_OWN: Final = dict.fromkeys(
    ("mlflow", "mlflow+http", "mlflow+https", "mlflow+sqlite"),
    "certify_assets.corpora.formats.mlflow_server.MlflowExperiment",
)


def is_web_address(text: object) -> bool:
    """Whether a text is an address that a browser opens without running anything."""
    return isinstance(text, str) and _WEB.fullmatch(text) is not None


def is_url(place: str | Path) -> bool:
    """Whether a location is a URL, not a local path."""
    return "://" in str(place)


def absolute(place: str) -> str:
    """Return a URL unchanged, and a path as an absolute path."""
    return place if is_url(place) else str(Path(place).absolute())


def shown_url(place: str) -> str:
    """Return a path or URL for logs: a URL without name, password and query."""
    if not is_url(place):
        return place
    parts = urlsplit(place)
    # urlunsplit makes scheme://tmp/file of scheme:////tmp/file
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def file_system(url: str, **options: object) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path on it."""
    shown = shown_url(url)
    try:
        import fsspec

        for scheme, implementation in _OWN.items():
            fsspec.register_implementation(scheme, implementation)
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise MissingToolError(
            f"{shown} needs a package that is not installed ({error}); object stores need "
            "certify_assets[s3] or certify_assets[gcs]."
        ) from None
    except (ValueError, OSError) as error:
        raise InputError(
            f"{shown} cannot be opened ({type(error).__name__}); give a path or a URL that "
            "fsspec knows."
        ) from None
    return system, str(path).rstrip("/")


@contextmanager
def local_copies(places: Sequence[str]) -> Iterator[list[Path]]:
    """Yield local paths for paths and URLs; URLs are copied for as long as the block lasts.

    Messages about a copy name its URL.
    """
    with tempfile.TemporaryDirectory(prefix="certify-incoming-") as folder:
        found = {
            place: RemoteFiles.of(place).copied(Path(folder) / str(number))
            for number, place in enumerate(places)
            if is_url(place)
        }
        try:
            yield [found.get(place, Path(place)) for place in places]
        except InputError as error:
            sentence = str(error)
            for place, root in found.items():
                sentence = sentence.replace(str(root), shown_url(place))
            raise type(error)(sentence) from None


@dataclass(frozen=True)
class RemoteFiles:
    """The files behind a URL, by their paths below it; "" is the URL itself, if it is a file."""

    shown: str  # the URL without secrets
    system: Any
    root: str
    about: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, url: str) -> RemoteFiles:
        """List the files behind a URL; raise an InputError if they cannot be listed."""
        shown, (system, root) = shown_url(url), file_system(url)
        with _asking(shown):
            system.invalidate_cache()
            if system.isfile(root):
                return cls(shown, system, root, {"": system.info(root)})
            about = system.find(root, detail=True)
        inside = {str(name).removeprefix(root).lstrip("/"): info for name, info in about.items()}
        for name in inside:
            # the other side chose it
            if ".." in name.split("/") or "\0" in name or not name:
                raise InputError(
                    f"{shown} names a file {name!a} that lies outside; it is not read."
                )
        return cls(shown, system, root, inside)

    def stamps(self) -> dict[str, str]:
        """Return a stamp of every file that changes with its content; no file is read."""
        return {
            place: sha256_bytes(repr([str(info.get(name)) for name in _STAMPS]).encode("utf-8"))
            for place, info in self.about.items()
        }

    def copied(self, folder: Path) -> Path:
        """Copy the file or folder into a folder, within limits; return the copy."""
        if not self.about:
            raise InputError(
                f"{self.shown} has no file, or its server does not answer. Check the address."
            )
        target, copied = folder / (PurePosixPath(self.root).name or "runs"), 0
        for place in self.about:
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with _asking(self.shown):
                self.system.get_file(f"{self.root}/{place}".rstrip("/"), str(path))
            # not every service says how large its files are
            copied += path.stat().st_size
            if len(self.about) > FILES or copied > TOTAL_BYTES:
                raise InputError(
                    f"{self.shown} holds more than {FILES:,} files or {TOTAL_BYTES:,} bytes; give "
                    "less."
                )
        return target


@contextmanager
def _asking(shown: str) -> Iterator[None]:
    try:
        yield
    except (CertifyError, ImportError):
        raise
    # packages of object stores have errors of their own, such as that of missing credentials
    except Exception as error:
        # what a server answers may repeat an address that is signed
        raise InputError(
            f"{shown} cannot be read ({type(error).__name__}); check the address and the right to "
            "read it."
        ) from None
