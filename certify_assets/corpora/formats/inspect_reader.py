"""The readers of Inspect AI logs: inspect-ai's own in a separate process, or this package's."""

from __future__ import annotations

import io
import json
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from certify_assets.corpora.formats.files import BrokenFileError, ReadLimits, SourceFile
from certify_assets.corpora.formats.records import Record
from certify_assets.errors import InputError
from certify_assets.processes import with_parent

if TYPE_CHECKING:
    from certify_assets.corpora.formats.inspect_worker import Answer, Question

# The library changes modules of its process and brings dependencies that need not agree with this
# package's, and what it reads is untrusted: it is never imported here. It runs isolated, in an
# empty folder, without the environment's secrets.
INSPECT_PYTHON = "CERTIFY_INSPECT_PYTHON"
READER_OPTION: Mapping[str, str] = {
    "reader": (
        "auto (the default: inspect-ai's own reader where it is installed, here or at "
        f"{INSPECT_PYTHON}), inspect_ai or own"
    )
}
_CHOICES = ("auto", "inspect_ai", "own")
# the first that reads members compressed with zstd
_OLDEST = (0, 3, 179)
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_ASK = "from importlib.metadata import version; print(version('inspect-ai'))"
_WORKER = Path(__file__).with_name("inspect_worker.py")
_KEPT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
_PATIENCE = 600.0
_PIECE = 1 << 16
_ZSTD = 93
_UNPACKED_PIECE = 1 << 20
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


@dataclass(frozen=True, slots=True)
class InspectPackage:
    """An installed inspect-ai: the interpreter that has it, and its version."""

    python: str
    version: str


def choose_reader(options: Mapping[str, Any]) -> InspectPackage | None:
    """Return the inspect-ai that reads the logs; None where the package's own reader does."""
    choice, named = options.get("reader", "auto"), os.environ.get(INSPECT_PYTHON)
    if choice not in _CHOICES:
        raise InputError(f"the option reader is {choice!r}; give auto, inspect_ai or own.")
    if choice == "own":
        return None
    if named:
        package = InspectPackage(named, _version_at(named))
        if not _recent(package.version):
            raise InputError(
                f"{INSPECT_PYTHON} names {named}, which has {_found(package.version)}; {_remedy()}"
            )
        return package
    here = _version_here()
    if _recent(here):
        return InspectPackage(sys.executable, here)
    if choice == "inspect_ai":
        raise InputError(
            f"the option reader asks for inspect-ai, but this interpreter has {_found(here)}; "
            f"{_remedy()}"
        )
    return None


def _recent(version: str) -> bool:
    match = _RELEASE.match(version)
    return match is not None and tuple(map(int, match.groups())) >= _OLDEST


def _found(version: str) -> str:
    return (
        f"inspect-ai {version}, which cannot read logs compressed with zstd"
        if version
        else "no inspect-ai"
    )


def _remedy() -> str:
    oldest = ".".join(map(str, _OLDEST))
    return (
        f"install inspect-ai {oldest} or later in a virtual environment and let {INSPECT_PYTHON} "
        "name its python, or give the option reader=own."
    )


def _version_here() -> str:
    try:
        return metadata.version("inspect-ai")
    except metadata.PackageNotFoundError:
        return ""


def _version_at(python: str) -> str:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=with_parent(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(
            f"{INSPECT_PYTHON} names {python}, which does not run ({type(error).__name__}); "
            f"{_remedy()}"
        ) from None
    return done.stdout.strip() if done.returncode == 0 else ""


@contextmanager
def open_reader(options: Mapping[str, Any]) -> Iterator[InspectProcess | None]:
    """Make inspect-ai's reader ready, as the options say; None for the package's own."""
    package = choose_reader(options)
    if package is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="certify-inspect-") as folder:
        reader = InspectProcess(package, Path(folder))
        try:
            yield reader
        finally:
            reader.close()


class InspectProcess:
    """inspect-ai's reader in a process of its own, restarted after a log that ended it."""

    def __init__(self, package: InspectPackage, folder: Path) -> None:
        self.package, self._folder = package, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""

    def records(
        self, file: SourceFile, samples: list[tuple[str, int]] | None
    ) -> Iterator[Record | str]:
        """Read a log: its header first, then its samples in the order given."""
        path = self._folder / f"log{file.suffix}"
        with file.open() as stream, path.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
        process = self._started(file.limit)
        try:
            self._ask(process, {"path": str(path), "samples": samples})
            while "end" not in (answer := self._answer(process, file)):
                yield answer.get("header") or answer.get("sample") or str(answer.get("problem"))
        except BaseException:
            # whatever is left of the answers must not be taken for those on the next log
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        process, self._process, self._pending = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _started(self, limit: int) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
            environment |= {
                "HOME": str(self._folder),
                "TMPDIR": str(self._folder),
                "LANG": "C.UTF-8",
            }
            with (self._folder / "stderr").open("wb") as errors:
                self._process = subprocess.Popen(
                    [self.package.python, "-I", "-B", str(_WORKER), str(limit)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._folder,
                    env=environment,
                    # between two logs the end of its input ends it, in the middle of one this
                    preexec_fn=with_parent(),
                )
            line = self._line(self._process)
            if line is None:
                self.close()
                raise InputError(
                    f"inspect-ai at {self.package.python} cannot be started "
                    f"({self._last_words()}); {_remedy()}"
                )
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], question: Question) -> None:
        try:
            _pipe(process.stdin).write(json.dumps(question).encode() + b"\n")
            _pipe(process.stdin).flush()
        except BrokenPipeError:
            # it has ended: that no answer comes says so
            return

    def _answer(self, process: subprocess.Popen[bytes], file: SourceFile) -> Answer:
        line = self._line(process)
        if line is None:
            raise BrokenFileError(
                f"{file.name} ended inspect-ai {self.package.version} ({self._last_words()}); "
                "fetch it again, or give the option reader=own."
            )
        answer: Answer = json.loads(line)
        if "too_large" in answer:
            raise InputError(
                f"{file.name} has a sample of {answer['too_large']:,} bytes, the limit is "
                f"{file.limit:,}; raise the option max_file_mb."
            )
        return answer

    def _line(self, process: subprocess.Popen[bytes]) -> bytes | None:
        pieces = [self._pending]
        while b"\n" not in pieces[-1]:
            ready, _, _ = select.select([_pipe(process.stdout)], [], [], _PATIENCE)
            piece = os.read(_pipe(process.stdout).fileno(), _PIECE) if ready else b""
            if not piece:
                return None
            pieces.append(piece)
        end, _, rest = pieces[-1].partition(b"\n")
        self._pending = rest
        return b"".join([*pieces[:-1], end])

    def _last_words(self) -> str:
        text = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace").strip()
        return ascii(text.splitlines()[-1][:200]) if text else "without a word"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without its pipes")
    return pipe


class MemberError(InputError):
    """One member of the archive cannot be read."""


class EvalArchive:
    """The members of one open .eval file."""

    def __init__(self, file: SourceFile, stream: IO[bytes], archive: zipfile.ZipFile) -> None:
        self._file, self._stream, self._archive = file, stream, archive
        self._left = max(ReadLimits().archive_bytes, file.limit)

    def names(self) -> list[str]:
        """Return the names of the members, in their order, each once."""
        return list(dict.fromkeys(self._archive.namelist()))

    def require_small(self) -> None:
        """Refuse an archive whose directory states sizes beyond the limits."""
        sizes = [member.file_size for member in self._archive.infolist()]
        if max(sizes, default=0) > self._file.limit or sum(sizes) > self._left:
            raise self._too_large()

    def read(self, name: str) -> bytes:
        """Return the content of a member."""
        member, limit = self._archive.getinfo(name), self._file.limit
        try:
            data = (
                self._zstd(member, limit + 1)
                if member.compress_type == _ZSTD
                else self._plain(member, limit + 1)
            )
        except _DAMAGE as error:
            raise MemberError(
                f"{self._file.name} has the member {_shown(name)}, which cannot be read "
                f"({_words(error, member)})"
            ) from None
        self._left -= len(data)
        if len(data) > limit or self._left < 0:
            raise self._too_large()
        return data

    def _too_large(self) -> InputError:
        return InputError(
            f"{self._file.name} unpacks to more than the limit of {self._file.limit:,} bytes a "
            f"member or {ReadLimits().archive_bytes:,} in all; "
            "raise the option max_file_mb."
        )

    def _plain(self, member: zipfile.ZipInfo, count: int) -> bytes:
        with self._archive.open(member) as stream:
            return stream.read(count)

    def _zstd(self, member: zipfile.ZipInfo, count: int) -> bytes:
        """Unpack a zstd member, which zipfile cannot before Python 3.14."""
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
    """Open a .eval file."""
    with file.open() as stream:
        try:
            archive = zipfile.ZipFile(stream)
        except _DAMAGE as error:
            words = str(error) or type(error).__name__
            raise BrokenFileError(
                f"{file.name} is not a whole zip archive ({words}); fetch it again, or wait "
                "for its end."
            ) from None
        with archive:
            if len(archive.infolist()) > ReadLimits().archive_members:
                raise InputError(
                    f"{file.name} has more than {ReadLimits().archive_members:,} members; split it."
                )
            yield EvalArchive(file, stream, archive)


def _read(stream: Any, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (piece := bytes(stream.read(min(count, _UNPACKED_PIECE)))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _shown(name: str) -> str:
    return ascii(name[:120])


def _words(error: Exception, member: zipfile.ZipInfo) -> str:
    if isinstance(error, NotImplementedError):
        return (
            f"compression method {member.compress_type}; write the log again with inspect log "
            "convert"
        )
    return str(error) or type(error).__name__
