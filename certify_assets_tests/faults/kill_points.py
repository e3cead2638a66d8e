"""kill -9 over every command that writes: `python -m certify_assets_tests.faults.kill_points`.

Each attempt is a process that is forked from one that has imported everything. It gets a copy of a
prepared folder, always in the same place and at the same time of day, and is killed before one of
its writes (a file made, its content on the disk, a rename, a removal, half a line of a journal, a
commit of a database, a request that changes an object), or at a random moment. What it left is
then read by commands that only read, and the call is made again: it must end with the bytes of a
call that nothing disturbed.
"""

import argparse
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

__all__ = ["CONDITIONS", "Driver", "Point", "main"]

#: what each condition adds to a kill, and its share of the points
CONDITIONS = {"alone": 12, "load": 2, "disk full": 2, "clock jumps": 2, "object store": 4}
_NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
_JUMPS = (0, 86_400, -86_400 * 400, 3_600, -7_200, 86_400 * 3_000, -60)
_S3 = "s3://certify/attempt"
#: what is of the moment: leases, seconds, and the databases of Dagster and MLflow
_APART = ("leases", "dagster", "mlflow", "tracking")
_MEASURED = ("timings.json", "comparison.html", "page.html", "index.html")
_OF_CORPORA = ("corpora", "judges", "operations", "comparison")
#: ids of MLflow and of Dagster's runs
_ID = re.compile(
    rb"(?<![0-9a-f])([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![0-9a-f])"
)
_VERSION = re.compile(rb'("model_version": )"?\d+"?|version \d+')
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?|\d{4}-\d\d-\d\d")
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_SECONDS = re.compile(rb"\d+(\.\d+)? (ms|s|seconds|days)\b")
#: of a bill what depends on how many answers a killed call had kept
_BILLED = re.compile(rb'"(requests|retries|cache_hits|cost_now|seconds)": [-+.e\d]+')
_LEDGER = re.compile(r"root/ledger/[^/.]+\.jsonl")
_LEDGER_HEAD = re.compile(rb'"ledger_head": "[0-9a-f]{64}"')
#: how long children of a killed process may take to notice
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int  # negative: the signal
    said: str
    seconds: float
    made: Any = None


@dataclass
class Point:
    """One kill, and what came of it."""

    case: str
    condition: str
    place: str
    killed: bool = False
    #: documents that are neither whole nor old nor new
    torn: list[str] = field(default_factory=list)
    #: documents that are whole, and neither the old nor the new one
    between: list[str] = field(default_factory=list)
    #: what a reader said that is neither what it says of the old state nor of the new one
    mixed: list[str] = field(default_factory=list)
    #: the same where each step of the call is a state that readers may see
    steps: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    #: processes of the call that were there seconds after it was killed
    outlived: list[str] = field(default_factory=list)
    #: after the call was made again
    lost: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    #: hidden files, which nothing reads, where no next call may remove them
    parts: list[str] = field(default_factory=list)
    failed: str = ""
    twice: bool = False
    cpu: float = 0.0

    @property
    def faults(self) -> int:
        found = (self.torn, self.mixed, self.outlived, self.lost, self.differing, self.leftovers)
        return sum(map(len, found)) + bool(self.failed)


class Doom:
    """Counts the writes of a process, and ends it before one of them."""

    def __init__(self, folder: str, at: int | None) -> None:
        self.folder, self.at, self.count = folder, at, 0

    def install(self) -> None:
        """Look at every write from now on; this cannot be undone."""
        from sqlalchemy import event
        from sqlalchemy.engine import Engine

        from certify_assets.storage import backends, objects

        sys.addaudithook(self._audit)
        fsync, write_all = os.fsync, backends._write_all

        def synced(handle: int) -> None:
            self.hit()
            fsync(handle)

        def torn(stream: Any, data: bytes) -> None:
            self.hit(lambda: write_all(stream, data[: len(data) // 2]))
            write_all(stream, data)

        os.fsync, backends._write_all = synced, torn
        for name in ("commit", "rollback"):
            event.listen(Engine, name, lambda _: self.hit())
        for name in ("_store", "delete", "copy"):
            _before(objects.ObjectBackend, name, self.hit)

    def hit(self, last: Callable[[], object] = lambda: None) -> None:
        """Count a write that is about to happen, or die."""
        self.count += 1
        if self.count == self.at:
            self.at = None
            last()
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = given
            if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                return
        elif event in ("os.rename", "os.link", "os.symlink"):
            path = given[1]
        elif event in ("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "subprocess.Popen"):
            path = given[0]
        else:
            return
        if event == "subprocess.Popen" or (
            isinstance(path, str | os.PathLike) and self._ours(path)
        ):
            self.hit()

    def _ours(self, path: str | os.PathLike[str]) -> bool:
        name = os.fspath(path)
        return isinstance(name, str) and (
            not Path(name).is_absolute() or name.startswith(self.folder)
        )


def _before(kind: type, name: str, do: Callable[[], None]) -> None:
    call = getattr(kind, name)

    def called(self: object, *given: Any, **more: Any) -> Any:
        do()
        return call(self, *given, **more)

    setattr(kind, name, called)


class _ClockType(type):
    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, datetime)


def set_clock(jumping: bool) -> None:
    """Let it be one moment in everything of the package, or another one at every look."""
    jumps = cycle(_JUMPS if jumping else (0,))

    class Clock(datetime, metaclass=_ClockType):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return _NOW + timedelta(seconds=next(jumps))

    from certify_assets.storage.lease import Clock as LeaseClock

    for name, module in list(sys.modules.items()):
        if name.startswith("certify_assets.") and getattr(module, "datetime", None) is datetime:
            module.datetime = Clock  # type: ignore[attr-defined]
    if jumping:
        LeaseClock.now = lambda _: time.time() + next(jumps)  # type: ignore[method-assign]


def import_everything(*more: str) -> None:
    """Import what commands import late, in the process that others are forked from."""
    import importlib
    import pkgutil

    import certify_assets

    for name in more:
        importlib.import_module(name)

    apart = ("__main__", "inspect_", "gpu", "notebook")
    for module in pkgutil.walk_packages(certify_assets.__path__, "certify_assets."):
        if not any(word in module.name for word in apart):
            importlib.import_module(module.name)
    importlib.import_module("certify_assets_tests.faults.kill_cases")


class Driver:
    """Makes attempts in a folder, and keeps what came of them in a log."""

    def __init__(self, scratch: Path, *, seed: int, log: Path | None = None) -> None:
        self.scratch, self.log = scratch.absolute(), log
        self.place = self.scratch / "attempt"
        self.draw = random.Random(seed)
        self.remote = self.jumping = False
        self._known: dict[tuple[str, str], _Reference] = {}
        (self.scratch / "worlds").mkdir(parents=True, exist_ok=True)

    # -- processes

    def fork(
        self, work: Callable[[], Any], *, seconds: float = 900, after: float | None = None
    ) -> Ended:
        """Run something in a process of its own, killed after some seconds if it is said so."""
        (self.scratch / "made").unlink(missing_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            self._be(work)
        code = None
        while code is None:
            time.sleep(0.002)
            ended, status = os.waitpid(child, os.WNOHANG)
            passed = time.monotonic() - begun
            if ended:
                code = os.waitstatus_to_exitcode(status)
            elif passed > seconds or (after is not None and passed > after):
                os.kill(child, signal.SIGKILL)
        said = (self.scratch / "said").read_text("utf-8", "replace")
        made = self.scratch / "made"
        return Ended(
            code,
            said,
            time.monotonic() - begun,
            pickle.loads(made.read_bytes()) if made.exists() else None,  # noqa: S301
        )

    def _be(self, work: Callable[[], Any]) -> None:
        code = 70
        try:
            os.setsid()
            said = os.open(self.scratch / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.chdir(self.place)
            os.environ["CERTIFY_ROOT"] = _S3 if self.remote else str(self.place / "root")
            if self.remote:
                os.environ["DAGSTER_HOME"] = str(self.place / "dagster")
                (self.place / "dagster").mkdir(exist_ok=True)
            set_clock(self.jumping)
            made = work()
            (self.scratch / "made").write_bytes(pickle.dumps(made))
            code = made if isinstance(made, int) else 0
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    # -- worlds

    def lay(self, world: str) -> None:
        """Put a copy of a world in its place, and make the world where there is none yet."""
        from certify_assets_tests.faults.kill_cases import BASES, WORLDS

        kept = self.scratch / "worlds" / world
        if not kept.exists():
            remote, self.remote = self.remote, False
            jumping, self.jumping = self.jumping, False
            if world in BASES:
                self.lay(BASES[world])
            else:
                self._clear()
            ended = self.fork(WORLDS[world])
            assert ended.code == 0, ended.said
            shutil.copytree(self.place, kept, symlinks=True)
            self.remote, self.jumping = remote, jumping
        self._clear()
        shutil.copytree(kept, self.place, symlinks=True, dirs_exist_ok=True)
        if self.remote:
            ended = self.fork(_upload)
            assert ended.code == 0, ended.said

    def _clear(self) -> None:
        self.place.mkdir(exist_ok=True)
        for path in self.place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def files(self) -> dict[str, bytes]:
        """Return every file of the place, those of an object store too."""
        found = {
            path.relative_to(self.place).as_posix(): path.read_bytes()
            for path in sorted(self.place.rglob("*"))
            if path.is_file()
        }
        if self.remote:
            ended = self.fork(_download)
            assert ended.code == 0, ended.said
            found |= ended.made
        return found

    # -- points

    def reference(self, case: Any) -> "_Reference":
        """Return what an undisturbed call makes, and how many writes it has."""
        place = "remote" if self.remote else "local"
        if (case.name, place) in self._known:
            return self._known[case.name, place]
        jumping, self.jumping = self.jumping, False
        self.lay(case.world)
        found = _Reference(old=documents(self.files()))
        found.said_old = self._read(case)
        ended = self.fork(lambda: self._call(case, None))
        assert ended.code in case.codes, f"{case.name}: {ended.code} {ended.said[-2000:]}"
        found.seconds = ended.seconds
        new = self.files()
        found.new, found.hidden = documents(new), _hidden(new)
        found.said_new = self._read(case)
        ended = self.fork(lambda: self._call(case, None))
        found.codes = (*case.codes, ended.code)
        found.again = documents(self.files())
        # the first call counted for itself; a second place counts in a fresh copy
        self.lay(case.world)
        doom = Doom(str(self.place), None)
        ended = self.fork(lambda: self._counted(case, doom))
        found.writes = int(ended.made)
        self._known[case.name, place], self.jumping = found, jumping
        return found

    def _call(self, case: Any, at: int | None) -> int:
        if at is not None:
            Doom(str(self.place), at).install()
        return int(case.run())

    def _counted(self, case: Any, doom: Doom) -> int:
        doom.install()
        case.run()
        count = doom.count
        (self.scratch / "made").write_bytes(pickle.dumps(count))
        os._exit(0)

    def _read(self, case: Any) -> dict[str, tuple[int, str]]:
        from certify_assets_tests.faults.kill_cases import certify

        def read() -> dict[str, tuple[int, str]]:
            found = {}
            for words in case.readers:
                if self.remote and " root/" in words:
                    continue
                mark = os.lseek(1, 0, os.SEEK_CUR)
                code = certify(words)
                sys.stdout.flush()
                sys.stderr.flush()
                with Path("../said").open("rb") as stream:
                    stream.seek(mark)
                    found[words] = (code, _said(stream.read()))
            return found

        ended = self.fork(read)
        if ended.made is None:
            return {"a reader": (ended.code, ended.said[-1500:])}
        return dict(ended.made)

    def point(self, case: Any, condition: str, share: float, kind: str) -> Point:
        """Kill a call at a share of its writes or its time, and look at what came of it."""
        self.remote, self.jumping = condition == "object store", condition == "clock jumps"
        known = self.reference(case)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        at = 1 + int(share * known.writes)
        after = share * known.seconds
        found = Point(
            case.name,
            condition,
            f"write {at} of {known.writes}" if kind == "write" else f"{share:.0%} of its time",
        )
        self.lay(case.world)
        with self._under(condition):
            if kind == "write":
                ended = self.fork(lambda: self._call(case, at))
            else:
                ended = self.fork(lambda: self._call(case, None), after=after)
        found.killed = ended.code == -signal.SIGKILL
        found.outlived = self._outlived()
        if "Traceback" in ended.said:
            found.failed = ended.said[-1500:]
        self.jumping = False
        self._look(case, known, found)
        self._again(case, known, found)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        self._keep(found)
        return found

    def _outlived(self) -> list[str]:
        """Wait for what a killed call started; name and end what does not end by itself."""
        from certify_assets_tests.services import processes_in

        until = time.monotonic() + _PATIENCE_S
        while (left := processes_in(self.place)) and time.monotonic() < until:
            time.sleep(0.1)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return list(left.values())

    def _look(self, case: Any, known: "_Reference", found: Point) -> None:
        """Judge what a kill left, and what readers say of it."""
        left = self.files()
        found.torn = [name for name, data in left.items() if not is_whole(name, data)]
        for name, data in documents(left).items():
            if data not in (known.old.get(name), known.new.get(name), known.again.get(name)):
                found.between.append(name)
        found.between += [f"-{name}" for name in set(known.old) & set(known.new) - set(left)]
        for words, said in self._read(case).items():
            expected = known.said_old.get(words), known.said_new.get(words)
            if "Traceback" in said[1] or said[0] not in (0, 1, 2, 3):
                found.failed = f"{words}: {said[1][-1500:]}"
            elif said[0] == 2 and (2, said[1]) not in expected:
                found.stopped.append(f"{words}: {said[1][-300:]}")
            elif said not in expected and not _same(said, expected, self.jumping):
                kept = found.steps if case.steps else found.mixed
                kept.append(f"{words}: {said[1][-3000:]}")

    def _again(self, case: Any, known: "_Reference", found: Point) -> None:
        """Make the call again, and compare what is there then with an undisturbed one."""
        ended = self.fork(lambda: self._call(case, None))
        files = self.files()
        now = documents(files)
        wanted = {"once": known.new, "twice": known.again}
        off = {
            name: _differing(now, documents_, case, found.condition)
            for name, documents_ in wanted.items()
        }
        found.twice = bool(off["once"]) and not off["twice"]
        best = min(off.values(), key=len)
        found.lost = [name for name in best if name not in now]
        found.differing = [name for name in best if name in now]
        for name in sorted(_hidden(files) - known.hidden):
            # of the folders of a corpus the next holder of its lease removes them
            ours = name.startswith("root/") and name.split("/")[1] in _OF_CORPORA
            (found.leftovers if ours else found.parts).append(name)
        if "Traceback" in ended.said or ended.code not in known.codes:
            found.failed = f"again, code {ended.code}: {ended.said[-1500:]}"

    @contextmanager
    def _under(self, condition: str) -> Iterator[None]:
        if condition == "load":
            busy = [_busy() for _ in range(2)]
            try:
                yield
            finally:
                for child in busy:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        elif condition == "disk full":
            room = self.draw.choice((0, 4, 16, 64, 256))
            with _full(self.place, room):
                yield
        else:
            yield

    def _keep(self, found: Point) -> None:
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**asdict(found), "faults": found.faults}) + "\n")


@dataclass
class _Reference:
    """What an undisturbed call does."""

    old: dict[str, bytes] = field(default_factory=dict)
    new: dict[str, bytes] = field(default_factory=dict)
    again: dict[str, bytes] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    said_old: dict[str, tuple[int, str]] = field(default_factory=dict)
    said_new: dict[str, tuple[int, str]] = field(default_factory=dict)
    writes: int = 0
    seconds: float = 0.0
    codes: tuple[int, ...] = ()


def documents(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what is no matter of the moment, without the ids that MLflow gives."""
    found = {}
    for name, data in files.items():
        parts = name.split("/")
        hidden = any(part.startswith(".") for part in parts)
        if hidden or {*parts} & {*_APART} or parts[-1] in _MEASURED:
            continue
        found[name] = data
        if name.endswith((".json", ".jsonl", ".html", ".csv", ".txt")):
            found[name] = _VERSION.sub(b"VERSION", _ID.sub(b"ID", data))
        if parts[-1] == "episodes.jsonl":
            # as browsers come to their end
            found[name] = b"".join(sorted(found[name].splitlines(keepends=True)))
        if parts[-1] == "scores.json":
            found[name] = _BILLED.sub(b"OF THE MOMENT", found[name])
    return found


def is_whole(name: str, data: bytes) -> bool:
    """Whether a file that a kill left is one that a reader takes."""
    if "/dagster/" in name or "/mlflow/" in name or Path(name).name.startswith("."):
        return True
    try:
        if name.endswith(".json"):
            return (not data and "/leases/" in name) or bool(json.loads(data) is not None)
        if name.endswith(".jsonl"):
            # a torn last line is none: every reader leaves it out
            for line in data[: data.rfind(b"\n") + 1].splitlines():
                json.loads(line)
        if name.endswith(".html"):
            return data.rstrip().endswith(b"</html>")
        if name.endswith(".parquet"):
            return data[:4] == data[-4:] == b"PAR1"
        if name.endswith(".safetensors"):
            size = int.from_bytes(data[:8], "little")
            json.loads(data[8 : 8 + size])
    except ValueError:
        return False
    return bool(data) or not name.endswith(".csv")


def _hidden(files: Mapping[str, bytes]) -> set[str]:
    """Return what should not stay: parts of files."""
    return {
        name
        for name in files
        if "/mlflow/" not in name and "/dagster/" not in name
        # a lease whose holder is gone is nobody's, and no leftover
        if name.endswith(".part")
    }


def _differing(
    now: Mapping[str, bytes], wanted: Mapping[str, bytes], case: Any, condition: str
) -> list[str]:
    if not case.determined:
        return sorted({*now} ^ {*wanted})
    loose = condition == "clock jumps" or case.materializes

    def plain(name: str, data: bytes) -> bytes:
        data = _of_first_reads(name, data) if case.reads_test else data
        return _loose(data) if loose else data

    return sorted(
        name
        for name in {*now} | {*wanted}
        # what a comparison measures is of the moment
        if not (case.materializes and name.endswith("/comparison.json"))
        if name not in now
        or name not in wanted
        or plain(name, now[name]) != plain(name, wanted[name])
    )


def _of_first_reads(name: str, data: bytes) -> bytes:
    """Return a document without what reading TEST once more adds: replays, and the chain."""
    if name.endswith(".heads.jsonl"):
        return b""
    if not _LEDGER.fullmatch(name):
        return _LEDGER_HEAD.sub(b"HEAD", data)
    lines = [json.loads(line) for line in data.splitlines()]
    kept = {
        json.dumps({key: value for key, value in line.items() if key not in ("time", "previous")})
        for line in lines
        if line["kind"] != "replay"
    }
    return "\n".join(sorted(kept)).encode()


def _loose(data: bytes) -> bytes:
    return _SECONDS.sub(b"S", _HASH.sub(b"H", _MOMENT.sub(b"T", data)))


def _said(data: bytes) -> str:
    return _SECONDS.sub(b"S", _VERSION.sub(b"VERSION", _ID.sub(b"ID", data))).decode(
        "utf-8", "replace"
    )


def _same(
    said: tuple[int, str], expected: tuple[tuple[int, str] | None, ...], jumping: bool
) -> bool:
    return any(
        item is not None
        and item[0] == said[0]
        and _loose(item[1].encode()) == _loose(said[1].encode())
        for item in expected
    )


def _busy() -> int:
    child = os.fork()
    if child == 0:
        while True:
            sum(range(10_000))
    return child


@contextmanager
def _full(place: Path, room: int) -> Iterator[None]:
    """Let a folder be a disk with so many kilobytes left, and a larger one afterwards."""
    # the content moves to a small file system of its own, in the namespace of this process
    kept = place.with_name("moved")
    shutil.copytree(place, kept, symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", place], check=True)
    try:
        shutil.copytree(kept, place, symlinks=True, dirs_exist_ok=True)
        filler = place / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        os.truncate(filler, max(0, filler.stat().st_size - 1024 * room))
        yield
        filler.unlink()
        shutil.rmtree(kept)
        shutil.copytree(place, kept, symlinks=True)
    finally:
        subprocess.run(["umount", "-l", place], check=True)
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(kept, place, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(kept)


def _upload() -> None:
    """Put the data root of the place into the object store, and nothing else."""
    import obstore
    from obstore.store import from_url

    store = from_url(_S3)
    for part in obstore.list(store):
        for item in part:
            store.delete(item["path"])
    root = Path("root")
    for path in root.rglob("*"):
        if path.is_file() and path.relative_to(root).parts[0] not in ("dagster", "mlflow"):
            store.put(path.relative_to(root).as_posix(), path.read_bytes())
    shutil.rmtree(root, ignore_errors=True)


def _download() -> dict[str, bytes]:
    import obstore
    from obstore.store import from_url

    store = from_url(_S3)
    names = [item["path"] for part in obstore.list(store) for item in part]
    return {f"root/{name}": bytes(obstore.get(store, name).bytes()) for name in names}


def drawn(
    cases: list[Any], points: int, draw: random.Random, conditions: list[str]
) -> list[tuple[Any, str, float, str]]:
    """Return the points: every case in turn by its weight, conditions and places by chance."""
    every = [case for case in cases for _ in range(case.weight)]
    draw.shuffle(every)
    weights = [CONDITIONS[name] for name in conditions]
    found = []
    for case, _ in zip(cycle(cases + every), range(points)):
        (condition,) = draw.choices(conditions, weights)
        if condition == "object store" and not case.rooted:
            condition = conditions[0]
        kind = "write" if draw.random() < 0.8 else "time"
        found.append((case, condition, draw.random(), kind))
    return found


def table(points: list[Point]) -> str:
    """Return the table of points: a row for each command, a column for each condition."""
    conditions = [name for name in CONDITIONS if any(item.condition == name for item in points)]
    figures = ("killed", "lost", "mixed", "outlived", "differing", "leftovers", "parts", "failed")
    heads = [f"{'command':28}", *(f"{name:>14}" for name in conditions)]
    lines = ["".join([*heads, *(f"{name:>10}" for name in figures)])]

    def row(name: str, of: list[Point]) -> str:
        count = Counter(item.condition for item in of)
        found = (
            sum(item.killed for item in of),
            sum(len(item.lost) + len(item.torn) for item in of),
            *(
                sum(len(getattr(item, figure)) for item in of)
                for figure in ("mixed", "outlived", "differing", "leftovers", "parts")
            ),
            sum(bool(item.failed) for item in of),
        )
        conditioned = "".join(f"{count[condition]:14}" for condition in conditions)
        return f"{name:28}" + conditioned + "".join(f"{number:10}" for number in found)

    names = list(dict.fromkeys(item.case for item in points))
    lines += [row(name, [item for item in points if item.case == name]) for name in names]
    return "\n".join([*lines, row("all", points)])


def main() -> None:
    """Draw points, make them, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="commands whose name has this regular expression")
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help="with commas")
    parser.add_argument("--scratch", type=Path, required=True, help="folder to work in")
    given = parser.parse_args()
    conditions = given.conditions.split(",")
    if "disk full" in conditions and "CERTIFY_TEST_NAMESPACE" not in os.environ:
        os.environ["CERTIFY_TEST_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-rm", sys.executable, "-m", __spec__.name, *sys.argv[1:]])
    import_everything()
    from certify_assets_tests.faults.kill_cases import CASES, LANGUAGE

    cases = [case for case in CASES if not given.only or re.search(given.only, case.name)]
    language = any(case.world in LANGUAGE for case in cases)
    if language:
        import_everything("torch", "transformers", "peft", "trl", "datasets")
    given.scratch.mkdir(parents=True, exist_ok=True)
    log = given.scratch / f"points-{given.seed}.jsonl"
    driver = Driver(given.scratch, seed=given.seed, log=log)
    done = len(log.read_text("utf-8").splitlines()) if log.exists() else 0
    points = drawn(cases, given.points, random.Random(given.seed), conditions)
    with _objects("object store" in conditions), _served(language, given.scratch):
        for number, (case, condition, share, kind) in enumerate(points[done:], done + 1):
            found = driver.point(case, condition, share, kind)
            print(
                f"{number:4} {found.case:28} {found.condition:13} {found.place:20} "
                f"{found.cpu:5.1f} s {'killed' if found.killed else 'ended '} "
                f"{'twice' if found.twice else ''} {found.faults or ''}",
                flush=True,
            )
    fields = Point.__dataclass_fields__
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    kept = [Point(**{name: row[name] for name in fields}) for row in rows]
    print(table(kept))
    sys.exit(any(item.faults for item in kept))


@contextmanager
def _objects(wanted: bool) -> Iterator[None]:
    from certify_assets_tests.services import object_store

    if not wanted:
        yield
        return
    with object_store() as environment:
        os.environ.update(environment)
        yield


@contextmanager
def _served(wanted: bool, scratch: Path) -> Iterator[None]:
    """Serve the compact model, at the address that the judges of earlier worlds have."""
    from certify_assets_tests.faults.kill_cases import ENDPOINT
    from certify_assets_tests.faults.servers import running
    from certify_assets_tests.services import free_port

    if not wanted:
        yield
        return
    kept = scratch / "port"
    if not kept.exists():
        kept.write_text(str(free_port()), "ascii")
    port = kept.read_text("ascii")
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "certify_assets_tests.judges.endpoint.compact_server", port]
    with running(command, os.environ, scratch / "server.log", f"{address}/version"):
        os.environ[ENDPOINT] = f"{address}/v1"
        yield


if __name__ == "__main__":
    main()
