"""Members of a zip that is one file of a source (Inspect's .eval logs), read within limits; their names are never used as paths."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from certify_assets.corpora.formats.files import BrokenFileError, Limits, SourceFile
from certify_assets.errors import InputError

__all__ = ["EvalArchive", "MemberError", "open_archive"]

_ZSTD = 93
_PIECE = 1 << 20
_LOCAL_HEADER = 30
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    struct.error,
)


class MemberError(InputError):
    """One member of the archive cannot be read."""


class EvalArchive:
    """The members of one open .eval file.

    Parameters
    ----------
    file : SourceFile
        For messages and the limit of a member's size.
    stream : binary stream
        The opened file; can be searched.
    archive : zipfile.ZipFile
        On that stream.
    """

    def __init__(self, file: SourceFile, stream: IO[bytes], archive: zipfile.ZipFile) -> None:
        self._file, self._stream, self._archive = file, stream, archive
        self._left = max(Limits().archive_bytes, file.limit)

    def names(self) -> list[str]:
        """Return the names of the members, in their order, each once."""
        return list(dict.fromkeys(self._archive.namelist()))

    def require_small(self) -> None:
        """Refuse an archive whose members say that they are larger than the limits, before another reader unpacks them.

        Raises
        ------
        InputError
            If one member, or all together, are larger.
        """
        sizes = [member.file_size for member in self._archive.infolist()]
        if max(sizes, default=0) > self._file.limit or sum(sizes) > self._left:
            raise self._too_large()

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises
        ------
        MemberError
            If it is damaged or is compressed in a way that cannot be read here.
        InputError
            If it, or all members read so far, are larger than the limits.
        """
        member, limit = self._archive.getinfo(name), self._file.limit
        try:
            data = (
                self._zstd(member, limit + 1)
                if member.compress_type == _ZSTD
                else self._plain(member, limit + 1)
            )
        except _DAMAGE as error:
            raise MemberError(
                f"{self._file.name} has the member {_shown(name)}, which cannot be read ({_words(error, member)})"
            ) from None
        self._left -= len(data)
        if len(data) > limit or self._left < 0:
            raise self._too_large()
        return data

    def _too_large(self) -> InputError:
        return InputError(
            f"{self._file.name} unpacks to more than the limit of {self._file.limit:,} bytes a member or {Limits().archive_bytes:,} in all; "
            "raise the option max_file_mb."
        )

    def _plain(self, member: zipfile.ZipInfo, count: int) -> bytes:
        with self._archive.open(member) as stream:
            return stream.read(count)

    def _zstd(self, member: zipfile.ZipInfo, count: int) -> bytes:
        """Unpack a zstd member, which zipfile cannot before Python 3.14; pyarrow brings the decoder."""
        import pyarrow as pa

        self._stream.seek(member.header_offset)
        name_size, extra_size = struct.unpack_from("<HH", self._stream.read(_LOCAL_HEADER), 26)
        self._stream.seek(member.header_offset + _LOCAL_HEADER + name_size + extra_size)
        packed = self._stream.read(min(member.compress_size, self._file.limit))
        with pa.CompressedInputStream(io.BytesIO(packed), "zstd") as stream:
            data = _read(stream, count)
        if len(data) < count and zlib.crc32(data) != member.CRC:
            raise zipfile.BadZipFile("Bad CRC-32")
        return data


@contextmanager
def open_archive(file: SourceFile) -> Iterator[EvalArchive]:
    """Open a .eval file.

    Raises
    ------
    BrokenFileError
        If it is no whole zip archive, as logs that are still being written may be.
    InputError
        If it has more members than an archive may have.
    """
    with file.open() as stream:
        try:
            archive = zipfile.ZipFile(stream)
        except _DAMAGE as error:
            words = str(error) or type(error).__name__
            raise BrokenFileError(
                f"{file.name} is not a whole zip archive ({words}); fetch it again, or wait for its end."
            ) from None
        with archive:
            if len(archive.infolist()) > Limits().archive_members:
                raise InputError(
                    f"{file.name} has more than {Limits().archive_members:,} members; split it."
                )
            yield EvalArchive(file, stream, archive)


def _read(stream: Any, count: int) -> bytes:
    """Read at most so many bytes in pieces: asked for all at once, the decoder makes room for all at once."""
    pieces: list[bytes] = []
    while count > 0 and (piece := bytes(stream.read(min(count, _PIECE)))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _shown(name: str) -> str:
    return ascii(name[:120])


def _words(error: Exception, member: zipfile.ZipInfo) -> str:
    if isinstance(error, NotImplementedError):
        return f"compression method {member.compress_type}; write the log again with inspect log convert"
    return str(error) or type(error).__name__
