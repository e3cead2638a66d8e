"""Files that change under `certify ops ingest`: `python -m certify_assets_tests.faults.swaps`.

A storage backend calls a disturbance before the n-th access to a file (a look, a read, a write, a
line of a journal), for every file and every n of an undisturbed call. One disturbance replaces that
file by the one of another version of the data root, for good or until the access after it. The
others are second writers: a reviewer, a training that takes over an expired lease, and another
`certify ops ingest` that does. The decisions must be those of the undisturbed call, or those of a
call that began after the change, or there are none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.certification import certify_judge
from certify_assets.files import canonical_json
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.checks import decided_by_deployed, drawn_as_planned
from certify_assets.operations.labels import Label, append_labels, read_labels
from certify_assets.operations.layout import batch_names, decisions_of, kept_key
from certify_assets.operations.rollout import deploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.backends import BACKENDS, LocalBackend
from certify_assets.storage.lease import Held
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.operations_builders import certified_corpus, deliver

__all__ = ["Worlds", "main", "table"]

_SCHEME: Final = "hooked"
_PARTS: Final = ("corpora", "judges", "ledger", "monitoring", "operations")
Access = tuple[str, str]  # how, and the key


def _nothing(how: str, key: str) -> None:
    pass


class HookedBackend(LocalBackend):
    """A folder that calls a hook before each access."""

    hook: ClassVar[Callable[[str, str], None]] = staticmethod(_nothing)

    def path(self, key: str) -> Path:
        """Return the path of a key."""
        return Path(self.locate(key).removeprefix(f"{_SCHEME}://"))

    def exists(self, key: str) -> bool:
        """Look whether a file is stored."""
        self.hook("look", key)
        return super().exists(key)

    def read(self, key: str) -> bytes:
        """Return a stored file."""
        self.hook("read", key)
        return super().read(key)

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give the file."""
        self.hook("read", key)
        with super().as_file(key) as path:
            yield path

    def write(self, key: str, data: bytes) -> None:
        """Store a file."""
        self.hook("write", key)
        super().write(key, data)

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store a stream."""
        self.hook("write", key)
        return super().write_stream(key, write)

    def copy(self, key: str, target: str) -> None:
        """Store a file under another key."""
        self.hook("read", key)
        self.hook("write", target)
        super().copy(key, target)

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append a line."""
        self.hook("append", key)
        super().append_line(key, make)

    def delete(self, key: str) -> None:
        """Remove a file."""
        self.hook("delete", key)
        super().delete(key)


BACKENDS[_SCHEME] = HookedBackend


@dataclass
class Outcome:
    """What a call left: the decisions of its batch, or why there are none."""

    decided: bytes = b""  # b"" where the judge decided nothing
    refused: str = ""


@dataclass
class Place:
    """A disturbance, where it came, and what became of the call."""

    disturbance: str
    how: str
    key: str
    access: int
    result: str


@dataclass
class Worlds:
    """A data root whose inbox waits, and the files of another version of it by their keys."""

    folder: Path
    other: dict[str, bytes] = field(default_factory=dict)
    #: the accesses of an undisturbed call, and what it decided
    accesses: list[Access] = field(default_factory=list)
    whole: Outcome = field(default_factory=Outcome)

    @classmethod
    def prepare(cls, folder: Path, operated: Path) -> Worlds:
        """Make both versions from a data root with a certified judge."""
        worlds = cls(folder)
        first = deliver(folder / "first.jsonl", tasks=12, seed=2)
        deliver(worlds.delivery, tasks=12, attempts=2, change=_stranger)
        root, other = Store(str(folder / "root")), Store(str(folder / "other"))
        for store in (root, other):
            shutil.copytree(operated, store.root)
        _again(other, folder / "others.jsonl")
        kept = {}
        for store, plan in ((root, SamplingPlan(0.3, 0.3, 5)), (other, SamplingPlan(0.5, 0.1, 7))):
            corpus = Corpus(store, "c")
            made = deploy(JudgedCorpus(corpus, "lexical"), sampling=plan, track=False)
            kept[store.root] = kept_key("c", made.kept)
            receive(corpus, [str(first)])
            (record,) = decide_ready(corpus)
            rows = decisions_of(corpus, record.batch)
            names = rows.loc[rows["asked"] != "", "trajectory_id"]
            said = int(store is other)
            append_labels(corpus, [Label(name, said, "ann", "cli", name) for name in names])
        receive(Corpus(other, "c"), [str(worlds.delivery)])
        decide_ready(Corpus(other, "c"))
        for path in sorted(Path(other.root).rglob("*")):
            key = path.relative_to(other.root).as_posix()
            if path.is_file() and key.startswith(_PARTS):
                named = key.replace(kept[other.root], kept[root.root])
                worlds.other[named] = path.read_bytes()
        worlds._complete()
        worlds.measure()
        return worlds

    def _complete(self) -> None:
        """Add what the other version has under other names: batches taken back, and pools."""
        pools = [data for key, data in self.other.items() if "/pools/" in key]
        for path in sorted((self.folder / "root").rglob("pools/*.json")):
            self.other[path.relative_to(self.folder / "root").as_posix()] = pools[0]
        about = {"schema": "certify_assets/undone/1", "batch": "", "time": "2026-03-02T09:30:00"}
        for key in list(self.other):
            if key.endswith("/batch.json"):
                self.other[key.replace("batch.json", "undone.json")] = canonical_json(about)

    @property
    def delivery(self) -> Path:
        """The file of new runs."""
        return self.folder / "new.jsonl"

    def measure(self) -> None:
        """Note the accesses of a call that nothing disturbs."""
        self.accesses.clear()
        self.whole = self.ingest(lambda how, key: self.accesses.append((how, key)))
        assert self.whole.decided, self.whole.refused

    def ingest(
        self, hook: Callable[[str, str], None], before: Callable[[Path], None] | None = None
    ) -> Outcome:
        """Receive and decide in a copy of the data root, with a hook before each access."""
        root = self.folder / "copy"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.folder / "root", root, copy_function=_linked)
        if before is not None:
            before(root)
        HookedBackend.hook = staticmethod(hook)
        corpus = Corpus(Store(f"{_SCHEME}://{root}"), "c")
        error = ""
        try:
            with corpus.writing("ops ingest"):
                receive(corpus, [str(self.delivery)])
                decide_ready(corpus)
        except CertifyError as found:
            error = str(found)
        finally:
            HookedBackend.hook = staticmethod(_nothing)
        return _left(root, error)

    def places(self) -> Iterator[tuple[int, str, str, int]]:
        """Yield each access by its place, and its number among those of its file."""
        seen: Counter[str] = Counter()
        for place, (how, key) in enumerate(self.accesses):
            seen[key] += 1
            yield place, how, key, seen[key]

    def swap(self, how: str, key: str, access: int, *, put_back: bool) -> Place:
        """Replace one file before its n-th access."""
        seen, kept = [0], [b""]
        new = self.other[key]

        def hook(_: str, touched: str) -> None:
            if touched != key:
                return
            seen[0] += 1
            path = self.folder / "copy" / key
            if seen[0] == access:
                kept[0] = path.read_bytes() if path.is_file() else b""
                _put(path, new)
            elif put_back and seen[0] == access + 1:
                _put(path, kept[0])

        found = self.ingest(hook)
        name = "swapped and put back" if put_back else "swapped"
        after = "" if put_back else key
        return Place(name, how, key, access, self.judge(found, after))

    def judge(self, found: Outcome, key: str = "") -> str:
        """Compare decisions with those of the undisturbed call, or of one after a swap of a key."""
        if not found.decided:
            return "refused"
        if found.decided == self.whole.decided:
            return "undisturbed"
        if key:
            later = self.ingest(_nothing, lambda root: _put(root / key, self.other[key]))
            if found.decided == later.decided:
                return "as after the change"
        return "MIXED"

    def interrupt(self, place: int, writer: str) -> Place:
        """Let a second writer work before an access of the call."""
        how, key = self.accesses[place]
        seen, works, wrote = [-1], WRITERS[writer], list[Callable[[Corpus], str]]()

        def hook(_: str, __: str) -> None:
            seen[0] += 1
            if seen[0] == place:
                HookedBackend.hook = staticmethod(_nothing)
                corpus = Corpus(Store(str(self.folder / "copy")), "c")
                # not in the name of the call: as another process
                wrote.append(Context().run(works, self, corpus))

        result = self.judge(self.ingest(hook))
        lost = wrote[0](Corpus(Store(str(self.folder / "copy")), "c"))
        return Place(writer, how, key, place, f"LOST: {lost}" if lost else result)

    def every_place(self, stride: int = 1) -> Iterator[Callable[[], Place]]:
        """Yield a call for each n-th place of every disturbance."""
        calls: list[Callable[[], Place]] = []
        for put_back in (False, True):
            for _, how, key, access in self.places():
                if key in self.other:
                    calls.append(partial(self.swap, how, key, access, put_back=put_back))
        for writer in WRITERS:
            for place, _, key, _ in self.places():
                # who changes a lease holds its lock
                if not key.startswith("leases/"):
                    calls.append(partial(self.interrupt, place, writer))
        yield from calls[::stride]


def _again(store: Store, path: Path) -> None:
    """Register other runs under the same name, and train, certify and audit its judge on them."""
    register_runs(store, "c", write_runs(path, tasks=100, attempts=4, seed=9), rl=False)
    corpus = Corpus(store, "c")
    corpus.prepare_splits()
    corpus.measure_leaks()
    judge = JudgedCorpus(corpus, "lexical")
    judge.train()
    judge.score()
    certify_judge(judge)
    audit_judge(judge)


def _stranger(record: dict[str, Any]) -> None:
    """Give a task of the delivery to an agent without a run in CAL."""
    if record["task_id"].endswith("task-003"):
        record["agent"] = "stranger"


def _linked(source: str, target: str) -> None:
    # stored files are replaced, never changed; journals are appended to
    if source.endswith(".jsonl"):
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def _put(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    if data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _left(root: Path, error: str) -> Outcome:
    """Return what a call left of the batch of its delivery."""
    corpus = Corpus(Store(str(root)), "c")
    try:
        frame = decisions_of(corpus, batch_names(corpus)[-1])
    except (CertifyError, IndexError) as found:
        return Outcome(refused=error or str(found))
    made = frame[frame["decision"].isin(["reject", "release"])]
    if not frame["batch"].iloc[0].startswith("000002") or made.empty:
        return Outcome(refused=error or "nothing was decided")
    rows = frame.astype(object).where(frame.notna(), None)
    return Outcome(canonical_json(rows.values.tolist()), error)


def _expire(corpus: Corpus) -> None:
    """Let the lease of the call end, as where its process stood still for two minutes."""
    path = corpus.store.local_path("leases/c.json")
    held = Held.parse(path.read_bytes()) if path.exists() else None
    if held is not None:
        holders = tuple(replace(holder, expires=0.0) for holder in held.holders)
        _put(path, replace(held, holders=holders).to_bytes())


def _reviewer(_: Worlds, corpus: Corpus) -> Callable[[Corpus], str]:
    said = append_labels(corpus, [Label(f"run-{n}", 0, "bob", "cli", f"t{n}") for n in range(3)])
    return lambda left: "" if all(one in read_labels(left) for one in said) else "labels"


def _alarm(_: Worlds, corpus: Corpus) -> Callable[[Corpus], str]:
    rows = [f"fresh-{row // 4},0.0,1,True" for row in range(240)]
    text = "\n".join(["task_id,score,outcome,audit_sample", *rows, ""])
    corpus.store.write_bytes("monitoring/c/lexical/1.csv", text.encode("utf-8"))
    return lambda left: ""


def _training(worlds: Worlds, corpus: Corpus) -> Callable[[Corpus], str]:
    _expire(corpus)
    new = {
        key: data
        for key, data in worlds.other.items()
        # the monitor of what is deployed is written by both
        if key.startswith(("corpora/c/", "judges/lexical/c/")) and "/monitor." not in key
    }
    with corpus.writing("a delivery and a training"):
        for key, data in new.items():
            corpus.store.write_bytes(key, data)
    return lambda left: " ".join(k for k in new if left.store.read_bytes(k) != new[k])


def _second_ingest(worlds: Worlds, corpus: Corpus) -> Callable[[Corpus], str]:
    _expire(corpus)
    with corpus.writing("ops ingest"):
        receive(corpus, [str(worlds.delivery)])
        decide_ready(corpus)

    def lost(left: Corpus) -> str:
        checks = (decided_by_deployed(left), drawn_as_planned(left))
        return " ".join(one.sentence for one in checks if one.status != "PASS")

    return lost


#: second writers: each returns what says, of what the call left, which of its work is gone
WRITERS: Final[dict[str, Callable[[Worlds, Corpus], Callable[[Corpus], str]]]] = {
    "reviewer": _reviewer,
    "labels that raise an alarm": _alarm,
    "training after the lease": _training,
    "second ingest after the lease": _second_ingest,
}


def table(places: list[Place]) -> list[str]:
    """Return the counts of results by disturbance as rows of Markdown."""
    found = Counter((one.disturbance, one.result) for one in places)
    results = ("undisturbed", "as after the change", "refused", "MIXED", "LOST")
    rows = [f"| disturbance | places | {' | '.join(results)} |", "|---" * 7 + "|"]
    for name in dict.fromkeys(one.disturbance for one in places):
        counts = [
            sum(n for (what, result), n in found.items() if what == name and result.startswith(one))
            for one in results
        ]
        rows.append(f"| {name} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    return rows


def main() -> None:
    """Print the table of all places."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="take each n-th place")
    parser.add_argument("--scratch", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.scratch) as folder:
        worlds = Worlds.prepare(Path(folder), Path(certified_corpus(Path(folder) / "base").root))
        started, places = time.process_time(), []
        for call in worlds.every_place(given.stride):
            places.append(call())
            if places[-1].result.startswith(("MIXED", "LOST")):
                print(places[-1], flush=True)
        files = {one.key for one in places}
        print(f"{len(worlds.accesses)} accesses of a call, {len(files)} files disturbed")
        print("\n".join(table(places)))
        print(f"{(time.process_time() - started) / max(1, len(places)):.2f} CPU seconds a place")
    sys.exit(any(one.result.startswith(("MIXED", "LOST")) for one in places))


if __name__ == "__main__":
    main()
