"""Reading archives that others made: what the standard library raises on damage, and headers of tar that cannot fill memory.

The library reads long names and attributes of a member whole, of whatever size they say.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from typing import Any

__all__ = ["DAMAGE", "SmallHeader"]

#: what archives raise that are damaged, or made to be
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
    struct.error,
)

_LONGEST = 1 << 20
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class SmallHeader(tarfile.TarInfo):
    """A member's header whose extensions hold at most a megabyte; sparse files, whose maps have no such end, are refused.

    Notes
    -----
    Give it as ``tarfile.open(…, tarinfo=SmallHeader)``. What it refuses raises `tarfile.ReadError`, as a damaged archive does.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _EXTENSIONS and self.size > _LONGEST:
            raise tarfile.ReadError(
                f"a header of {self.size:,} bytes, of which {_LONGEST:,} are allowed"
            )
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_sparse()
        return super()._proc_member(archive)  # type: ignore[misc]

    def _refuse_sparse(self, *_: Any) -> None:
        raise tarfile.ReadError("a sparse file; write the archive without sparse files")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse
