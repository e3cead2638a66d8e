"""Operation on a full or read-only disk, and under a clock that jumps: a sentence, nothing half, and the work goes on."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.labels import Label, append_label, append_labels, read_labels
from certify_assets.operations.layout import load_decisions
from certify_assets.operations.rollout import deploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.faults.namespace import in_namespace
from certify_assets_tests.faults.small import environment
from certify_assets_tests.operations_builders import deliver
from certify_assets_tests.paths import REPOSITORY

PLAN = SamplingPlan(0.5, 0.2, 5)


#: what writes, by what a user calls; a file lies beside the data root
_COMMANDS = {
    "incoming": "ops ingest c $AWAY/new.jsonl",
    "recertify": "ops recertify c --at-least 1",
    "review": "review import c $AWAY/labels.csv --reviewer bob",
}
_READING = ("review queue c", "ops recertify c --dry-run", "ops status c")
_CALL = (
    "$PYTHON -m certify_assets.cli {} --root {} > $AWAY/out 2>&1; echo RC $?; tail -n 1 $AWAY/out"
)
_LISTING = """
import json, sys
from pathlib import Path
from certify_assets.storage.care import verify
from certify_assets.storage.store import Store
verify(Store(sys.argv[1]))
from certify_assets_tests.faults.small import left_parts, made
print("LIST " + json.dumps(made(Path(sys.argv[1]))))
print("PARTS " + json.dumps([path.name for path in left_parts(Path(sys.argv[1]))]))
"""


@pytest.fixture(scope="module")
def labelled(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployed corpus with a decided and labelled batch, and beside it new runs and a file of labels."""
    root = tmp_path_factory.mktemp("faults") / "root"
    shutil.copytree(_operated, root)
    store = Store(str(root))
    deploy(judged(store), sampling=PLAN, track=False)
    receive(Corpus(store, "c"), [str(deliver(root.parent / "first.jsonl", tasks=40))])
    decide_ready(Corpus(store, "c"))
    rows = load_decisions(Corpus(store, "c"))
    asked = rows.loc[rows["asked"] == "audit_sample", "trajectory_id"].tolist()
    append_labels(Corpus(store, "c"), [Label(run, 0, "ann", "file", run) for run in asked])
    deliver(root.parent / "new.jsonl", tasks=40, seed=2)
    lines = [f"{run},{place % 2}" for place, run in enumerate(asked)]
    (root.parent / "labels.csv").write_text(
        "\n".join(["trajectory_id,outcome", *lines, ""]), "utf-8"
    )
    (root.parent / "listing.py").write_text(_LISTING, "utf-8")
    return root


def _answers(said: str) -> tuple[list[int], list[dict[str, int]]]:
    lines = said.splitlines()
    return [int(line[3:]) for line in lines if line.startswith("RC ")], [
        json.loads(line[5:]) for line in lines if line.startswith("LIST ")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", _COMMANDS)
def test_a_full_disk_ends_in_a_sentence_and_leaves_nothing_half(
    labelled: Path, tmp_path: Path, name: str
) -> None:
    root, call = tmp_path / "root", _CALL.format(_COMMANDS[name], tmp_path / "root")
    root.mkdir()
    rooms = (0, 8, 24)
    look = f"$PYTHON $AWAY/listing.py {root}"
    steps = [
        f"mount -t tmpfs -o size=40m tmpfs {root}",
        f"cp -r $AWAY/root/. {root}/",
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
        {
            **environment(tmp_path / "elsewhere"),
            "AWAY": str(labelled.parent),
            "PYTHONPATH": str(REPOSITORY),
        },
    )
    codes, (before, *while_full, after) = _answers(said)
    print(
        f"{name}: exit codes {codes}; {len(before)} documents before, {[len(found) for found in while_full]} while full, {len(after)} after"
    )
    assert codes == [*[2] * len(rooms), 0], said[-3000:]
    assert len(re.findall("No space left on device|disk is full|disk I/O error", said)) == len(
        rooms
    )
    assert "Traceback" not in said
    assert said.count("PARTS []") == len(rooms) + 2
    for found in while_full:
        # what was there is as it was
        assert {key: found.get(key) for key in before} == before
    assert after != before


@pytest.mark.slow
def test_a_data_root_that_cannot_be_written_is_read_and_told(
    labelled: Path, tmp_path: Path
) -> None:
    reading, writing = (
        "\n".join(_CALL.format(text, labelled) for text in texts)
        for texts in (_READING, _COMMANDS.values())
    )
    before = {path: path.stat().st_mtime_ns for path in labelled.rglob("*")}
    said = in_namespace(
        f"mount --bind {labelled} {labelled}\nmount -o remount,bind,ro {labelled}\nset +e\n{reading}\n{writing}",
        {
            **environment(tmp_path / "elsewhere"),
            "AWAY": str(labelled.parent),
            "PYTHONPATH": str(REPOSITORY),
        },
    )
    codes, _ = _answers(said)
    assert codes == [0] * len(_READING) + [2] * len(_COMMANDS), said
    refused = re.findall("Read-only file system|readonly database", said)
    assert len(refused) == len(_COMMANDS) and "Traceback" not in said, said
    assert before == {path: path.stat().st_mtime_ns for path in labelled.rglob("*")}


def test_labels_that_do_not_fit_are_none(tmp_path: Path) -> None:
    """A limit on the size of files in the place of a full disk: of many labels the first would have fitted."""
    store = Store(str(tmp_path))
    append_label(Corpus(store, "c"), Label("first", 1, "ann", "file", "first"))
    code = (
        "import resource, sys\nfrom certify_assets.corpora.corpus import Corpus\n"
        "from certify_assets.errors import CertifyError\n"
        "from certify_assets.storage.store import Store\n"
        "from certify_assets.operations.labels import Label, append_labels\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))\n"
        "labels = [Label(f'run {n}', 1, 'ann', 'file', f't{n}') for n in range(1000)]\n"
        "try:\n    append_labels(Corpus(Store(sys.argv[1]), 'c'), labels)\n"
        "except CertifyError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot be used (disk I/O error)" in done.stdout, done.stderr
    assert [label.token for label in read_labels(Corpus(store, "c"))] == ["first"]
