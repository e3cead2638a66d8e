"""Files that another process swaps while an operation runs never give a result of two versions.

A storage backend swaps the corpus and its judge for another version before the n-th read, and for
half of the cases puts them back before the read after it. Whatever n is, the result is that of
one version, or the operation ends with an integrity error and stores nothing.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.certification import certify_judge
from certify_assets.files import canonical_json
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.layout import decisions_of
from certify_assets.operations.rollout import deploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.backends import BACKENDS, LocalBackend
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.operations_builders import deliver

pytestmark = pytest.mark.slow

# of the many reads of a decision evenly taken ones, each costing half a second
_MOST = 16


class SwappingBackend(LocalBackend):
    """A folder whose files become those of another version at one read."""

    reads: ClassVar[int] = 0
    swap_at: ClassVar[int] = -9
    put_back: ClassVar[bool] = False
    versions: ClassVar[tuple[Path, ...]] = ()

    def path(self, key: str) -> Path:
        """Return the path of a key."""
        return Path(self.locate(key).removeprefix("swap://"))

    def read(self, key: str) -> bytes:
        """Swap, then read."""
        self._step()
        return super().read(key)

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Swap, then give the file."""
        self._step()
        with super().as_file(key) as path:
            yield path

    def _step(self) -> None:
        place, cls = self.reads, type(self)
        cls.reads += 1
        if place == self.swap_at:
            self._bring(self.versions[1])
        elif self.put_back and place == self.swap_at + 1:
            self._bring(self.versions[0])

    def _bring(self, version: Path) -> None:
        for path in sorted(version.rglob("*")):
            if path.is_file() and {"corpora", "judges"} & {*path.relative_to(version).parts}:
                super().write(path.relative_to(version).as_posix(), path.read_bytes())


BACKENDS["swap"] = SwappingBackend


def _judge(root: Path, scheme: str = "") -> JudgedCorpus:
    return judged(Store(f"{scheme}{root}"))


def _certified(judge: JudgedCorpus) -> bytes:
    return canonical_json([item.to_dict() for item in certify_judge(judge)])


def _audited(judge: JudgedCorpus) -> bytes:
    return canonical_json([audit.to_dict() for audit in audit_judge(judge).audits])


def _decided(judge: JudgedCorpus) -> bytes:
    for record in decide_ready(judge.corpus):
        if record.refusal is not None:
            # every run goes to human review: nothing was decided by either version
            raise IntegrityError(record.refusal.sentence)
        break
    else:
        raise IntegrityError("no batch waits")
    frame = decisions_of(judge.corpus, record.batch)
    return canonical_json(frame.astype(object).where(frame.notna(), None).values.tolist())


OPERATIONS: dict[str, tuple[Callable[[JudgedCorpus], bytes], str]] = {
    "certify": (_certified, "certificates.json"),
    "audit": (_audited, "audits.json"),
    "decide": (_decided, "certificates.json"),
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of a data root; ledger and spent δ of the second know those of both."""
    folder = tmp_path_factory.mktemp("versions")
    root = folder / "root"
    for seed, name in enumerate(("old", "new")):
        store = Store(str(root))
        register_runs(
            store,
            "c",
            write_runs(folder / "runs.jsonl", tasks=100, attempts=4, seed=seed),
            rl=False,
        )
        corpus = Corpus(store, "c")
        corpus.prepare_splits()
        corpus.measure_leaks()
        judge = _judge(root)
        judge.train()
        judge.score()
        certify_judge(judge)
        shutil.copytree(root, folder / name)
    for part in ("ledger", "operations"):
        shutil.rmtree(folder / "old" / part)
        shutil.copytree(folder / "new" / part, folder / "old" / part)
    judge = _judge(folder / "old")
    audit_judge(judge)
    deploy(judge, sampling=SamplingPlan(0.2, 0.3, 5), track=False)
    receive(judge.corpus, [str(deliver(folder / "delivery/runs.jsonl", tasks=10))])
    return folder / "old", folder / "new"


@pytest.mark.parametrize("put_back", [False, True], ids=["swapped", "swapped and put back"])
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_no_result_mixes_two_versions(
    versions: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    put_back: bool,
) -> None:
    operation, document = OPERATIONS[name]
    monkeypatch.setattr(SwappingBackend, "versions", versions)

    def run(version: Path, swap_at: int) -> tuple[bytes | IntegrityError, int]:
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        shutil.copytree(version, tmp_path / "root")
        monkeypatch.setattr(SwappingBackend, "reads", 0)
        monkeypatch.setattr(SwappingBackend, "swap_at", swap_at)
        monkeypatch.setattr(SwappingBackend, "put_back", put_back)
        judge = _judge(tmp_path / "root", "swap://")
        try:
            return operation(judge), SwappingBackend.reads
        except IntegrityError as error:
            return error, SwappingBackend.reads

    whole = [run(version, -9)[0] for version in versions]
    reads = run(versions[0], -9)[1]
    assert isinstance(whole[0], bytes) and whole[0] != whole[1] and reads >= 10
    # what is deployed is the old version: the new one is refused as a whole
    assert isinstance(whole[1], bytes) == (name != "decide")
    paths = [version / "judges/lexical/c" / document for version in versions]
    before = {path.read_bytes() for path in paths if path.exists()}
    kept = refused = 0
    for place in range(0, reads, 1 + reads // _MOST):
        found, _ = run(versions[0], place)
        if isinstance(found, IntegrityError):
            refused += 1
            stored = tmp_path / "root/judges/lexical/c" / document
            assert not stored.exists() or stored.read_bytes() in before, (place, found)
        else:
            kept += 1
            assert found in whole, f"swapped before read {place} of {reads}: two versions in one"
    # a deployment reads its own copies, which are not swapped
    assert kept and (refused or name == "decide")
