"""A disk that is full or cannot be written: a sentence, no half file, and the work goes on once there is space."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.storage.care import verify
from certify_assets.storage.store import Store
from certify_assets_tests.faults.namespace import in_namespace
from certify_assets_tests.faults.small import environment, left_parts, prepare, results
from certify_assets_tests.paths import REPOSITORY

_RUN = "$PYTHON -m certify_assets.cli run small > $OUT 2>&1; echo RC $?; cat $OUT"


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "home"), [((900, 3000), "home"), ((3000,), "root/dagster")])
def test_a_full_disk_ends_in_a_sentence_and_goes_on_when_there_is_space(
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
        {_RUN}
        cp -r {root} {tmp_path}/{size}
        """
        for size in (*(f"{kilobytes}k" for kilobytes in sizes), "500m")
    )
    said = in_namespace(
        f"""
        OUT={tmp_path}/out
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
            "PYTHONPATH": str(REPOSITORY),
        },
    )
    codes = [int(line[3:]) for line in said.splitlines() if line.startswith("RC ")]
    assert codes == [1] * len(sizes) + [0], said[-3000:]
    assert re.search("No space left on device|disk is full|disk I/O error", said)
    assert "Traceback" not in said
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
def test_a_data_root_that_cannot_be_written_is_read_and_told(
    reference: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    certify = f"$PYTHON -m certify_assets.cli {{}} --root {reference}"
    lexical = f"{reference}/pages/judges/lexical/small"
    reading = [
        f"$PYTHON -m certify_assets.cli verify {lexical}/certificates.json {lexical}/scores.parquet",
        certify.format("judge compare small"),
        certify.format("ledger status small"),
        certify.format("corpus list"),
    ]
    writing = [
        certify.format(text)
        for text in (
            "run small",
            "judge train small --judge lexical",
            "research study small",
            "corpus import /dev/null --name x",
        )
    ]
    lines = [
        f"{text} > $OUT 2>&1; echo {kind} $?; tail -n 1 $OUT"
        for kind, texts in (("READ", reading), ("WRITE", writing))
        for text in texts
    ]
    said = in_namespace(
        "\n".join(
            [
                f"OUT={tmp_path}/out",
                f"mount --bind {reference} {reference}",
                f"mount -o remount,bind,ro {reference}",
                "set +e",
                *lines,
                _RUN,
            ]
        ),
        {**environment(reference), "DAGSTER_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
    )
    codes = {
        kind: [int(line.split()[1]) for line in said.splitlines() if line.startswith(f"{kind} ")]
        for kind in ("READ", "WRITE", "RC")
    }
    assert codes["READ"] == [0] * len(reading), said
    assert all(code in (1, 2) for code in codes["WRITE"] + codes["RC"]) and len(
        codes["WRITE"]
    ) == len(writing), said
    assert "Traceback" not in said and said.count("Read-only file system") >= 3, said


def test_a_file_that_may_not_grow_leaves_the_old_one(tmp_path: Path) -> None:
    """A limit on the size of files, which every system has, in the place of a full disk."""
    store = Store(str(tmp_path))
    store.write_bytes("a.json", b"old")
    code = (
        "import resource, sys\nfrom certify_assets.storage.store import Store\nstore = Store(sys.argv[1])\n"
        "for attempt in (lambda: store.write_bytes('a.json', b'x' * 300_000),\n"
        "                lambda: store.write_stream('b.bin', lambda stream: stream.write(b'z' * 300_000))):\n"
        "    try:\n        attempt()\n    except OSError as error:\n        print(error.strerror)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    assert done.stdout.splitlines() == ["File too large"] * 2, done.stderr
    assert store.read_bytes("a.json") == b"old" and not store.exists("b.bin")
    assert not left_parts(tmp_path)
    verify(store)
