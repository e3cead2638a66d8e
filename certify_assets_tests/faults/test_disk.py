"""A disk that is full: a sentence, nothing half, and the work goes on once there is space."""

import json
import multiprocessing
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.labels import Label, append_label, append_labels, read_labels
from certify_assets.storage.care import verify
from certify_assets.storage.store import Store
from certify_assets_tests.faults.namespace import CALL, codes, in_namespace
from certify_assets_tests.faults.small import environment, left_parts, prepare, results

_FULL = re.compile("No space left on device|disk is full|disk I/O error")
#: what writes, by what a user calls; a file lies beside the data root
_COMMANDS = {
    "incoming": "ops ingest c $AWAY/new.jsonl",
    "recertify": "ops recertify c --at-least 1",
    "review": "review import c $AWAY/labels.csv --reviewer bob",
}
_LISTING = """
import json, sys
from pathlib import Path
from certify_assets.storage.care import verify
from certify_assets.storage.store import Store
from certify_assets_tests.faults.small import left_parts, made
verify(Store(sys.argv[1]))
print("LIST " + json.dumps(made(Path(sys.argv[1]))))
print("PARTS " + json.dumps([path.name for path in left_parts(Path(sys.argv[1]))]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "home"), [((900, 2000), "home"), ((3000,), "root/dagster")])
def test_a_run_goes_on_when_there_is_space(
    reference: Path, tmp_path: Path, sizes: tuple[int, ...], home: str
) -> None:
    root, wanted = tmp_path / "root", results(reference)
    (tmp_path / "home").mkdir()
    root.mkdir()
    registered = tmp_path / "registered"
    prepare(registered, source=reference.parent / "small.jsonl")
    # a disk that is full and grows, with Dagster's own databases on another disk, and on this one
    runs = "".join(
        f"""
        mount -o remount,size={size} {root}
        {CALL.format("run small")}
        cat $AWAY/out
        cp -r {root} {tmp_path}/{size}
        """
        for size in (*(f"{kilobytes}k" for kilobytes in sizes), "500m")
    )
    said = in_namespace(
        f"""
        mount -t tmpfs -o size={sizes[0]}k tmpfs {root}
        cp -r {registered}/. {root}/
        mkdir -p {tmp_path}/{home}
        set +e
        {runs}
        """,
        {
            **environment(registered),
            "CERTIFY_ROOT": str(root),
            "DAGSTER_HOME": str(tmp_path / home),
            "AWAY": str(tmp_path),
        },
    )
    assert codes(said) == [1] * len(sizes) + [0], said[-3000:]
    assert _FULL.search(said) and "Traceback" not in said
    for kilobytes in sizes:
        full = tmp_path / f"{kilobytes}k"
        verify(Store(str(full)))
        found = results(full)
        print(
            f"{kilobytes} kB, Dagster in {home}: {len(found)} of {len(wanted)} documents whole when "
            "the disk was full, 0 half"
        )
        assert all(wanted[name] == data for name, data in found.items())
        assert len(found) < len(wanted) and not left_parts(full)
    assert results(tmp_path / "500m") == wanted
    assert not left_parts(tmp_path / "500m")


@pytest.mark.slow
@pytest.mark.parametrize("name", _COMMANDS)
def test_operation_goes_on_when_there_is_space(
    in_operation: Path, tmp_path: Path, name: str
) -> None:
    root, listing = tmp_path / "root", tmp_path / "listing.py"
    root.mkdir()
    listing.write_text(_LISTING, "utf-8")
    call = CALL.format(f"{_COMMANDS[name]} --root {root}")
    # on another disk: SQLite cannot even be read where there is no room for its log
    copy, rooms = tmp_path / "copy", (0, 8, 24)
    look = f"rm -rf {copy}; cp -r {root} {copy}; $PYTHON {listing} {copy}"
    steps = [
        f"mount -t tmpfs -o size=40m tmpfs {root}",
        f"cp -r {in_operation}/. {root}/",
        "set +e",
        look,
    ]
    for room in rooms:
        steps += [
            f"head -c {room}k /dev/zero > {root}/room",
            f"cat /dev/zero > {root}/filler 2>/dev/null",
            f"rm {root}/room",
        ]
        steps += [call, look, f"rm {root}/filler"]
    said = in_namespace(
        "\n".join([*steps, call, look]),
        {**environment(tmp_path / "elsewhere"), "AWAY": str(in_operation.parent)},
    )
    before, *while_full, after = (
        json.loads(line[5:]) for line in said.splitlines() if line.startswith("LIST ")
    )
    print(
        f"{name}: exit codes {codes(said)}; {len(before)} documents before, {[len(found) for found in while_full]} while full, {len(after)} after"
    )
    assert codes(said) == [*[2] * len(rooms), 0], said[-3000:]
    assert len(_FULL.findall(said)) == len(rooms) and "Traceback" not in said
    assert said.count("PARTS []") == len(rooms) + 2
    for found in while_full:
        # what was there is as it was
        assert {key: found.get(key) for key in before} == before
    assert after != before


def test_a_file_that_may_not_grow_leaves_what_there_was(tmp_path: Path) -> None:
    """A limit on the size of files, which every system has, in the place of a full disk."""
    store = Store(str(tmp_path))
    corpus = Corpus(store, "c")
    store.write_bytes("a.json", b"old")
    append_label(corpus, Label("first", 1, "ann", "file", "first"))
    # of many labels the first would have fitted
    labels = [Label(f"run {number}", 1, "ann", "file", f"{number}") for number in range(1000)]
    attempts: tuple[Callable[[], object], ...] = (
        lambda: store.write_bytes("a.json", b"x" * 300_000),
        lambda: store.write_stream("b.bin", lambda stream: stream.write(b"z" * 300_000)),
        lambda: append_labels(Corpus(store, "c"), labels),
    )
    store.database.engine.dispose()
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
        for attempt in attempts:
            try:
                attempt()
            except (OSError, CertifyError) as error:
                told.put(str(error))

    child = context.Process(target=work)
    child.start()
    child.join()
    said = [told.get() for _ in attempts]
    assert "File too large" in said[0] and "File too large" in said[1]
    assert "cannot be used (disk I/O error)" in said[2]
    assert store.read_bytes("a.json") == b"old" and not store.exists("b.bin")
    assert [label.token for label in read_labels(Corpus(store, "c"))] == ["first"]
    assert not left_parts(tmp_path)
    verify(store)
