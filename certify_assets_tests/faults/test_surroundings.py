"""Machines with little: one CPU, no network, a home that cannot be written, no room for temporary files."""

import shutil
from pathlib import Path

import pytest

from certify_assets_tests.builders import write_runs
from certify_assets_tests.faults.namespace import CALL, codes, in_namespace
from certify_assets_tests.faults.small import environment, prepare, results
from certify_assets_tests.operations_builders import deliver

pytestmark = pytest.mark.slow


def test_one_cpu_no_network_and_no_home_give_the_same_bytes(
    reference: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    prepare(root, source=reference.parent / "small.jsonl")
    said = in_namespace(
        f"""
        mkdir {tmp_path}/home
        mount -t tmpfs -o ro tmpfs {tmp_path}/home
        ! touch {tmp_path}/home/x
        unshare -n taskset -c 0 bash -c '
          test "$(nproc)" = 1
          test "$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " ")" = lo
          {CALL.format("run small")}'
        """,
        {
            **environment(root),
            "HOME": str(tmp_path / "home"),
            "AWAY": str(tmp_path),
        },
    )
    assert codes(said) == [0], said[-3000:]
    found, wanted = results(root), results(reference)
    differing = [name for name in wanted if found.get(name) != wanted[name]]
    print(f"{len(wanted) - len(differing)} of {len(wanted)} documents equal")
    assert found.keys() == wanted.keys() and not differing


#: what a user calls on a corpus in operation; the files lie beside the data root
_COMMANDS = (
    "corpus show c",
    "corpus import $AWAY/old.jsonl --format table --name d",
    "judge train c",
    "judge score c",
    "judge compare c",
    "ops deploy c lexical",
    "ops ingest c $AWAY/new.jsonl",
    "ops status c",
    "review export c $AWAY/asked.csv",
)


@pytest.mark.parametrize("room", [0, 24], ids=["full", "24 kB left"])
def test_a_full_tmpdir_stops_nothing(_operated: Path, tmp_path: Path, room: int) -> None:
    root = Path(shutil.copytree(_operated, tmp_path / "root"))
    deliver(tmp_path / "new.jsonl", tasks=40)
    write_runs(tmp_path / "old.jsonl", seed=5)
    calls = "\n".join(CALL.format(text) for text in _COMMANDS)
    said = in_namespace(
        f"""
        mkdir {tmp_path}/tmp
        mount -t tmpfs -o size=1m tmpfs {tmp_path}/tmp
        set +e
        head -c {1024 * (1024 - room)} /dev/zero > {tmp_path}/tmp/full
        {calls}
        """,
        {
            **environment(root),
            "TMPDIR": str(tmp_path / "tmp"),
            "AWAY": str(tmp_path),
        },
    )
    assert codes(said) == [0] * len(_COMMANDS), said[-4000:]
    assert "Traceback" not in said
    assert list((root / "operations" / "c").rglob("decisions.parquet"))
    assert (tmp_path / "asked.csv").stat().st_size
