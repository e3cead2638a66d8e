"""A judge and corpus that are replaced while a batch is decided never give a mixed decision."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.certification import certify_judge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.layout import decisions_of, kept_key
from certify_assets.operations.rollout import deploy
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.evaluation.test_swapped_files import SwappingBackend
from certify_assets_tests.operations_builders import deliver

#: reads between two places of the swap, to save time
STRIDE = 13


@pytest.fixture(scope="module")
def roots(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A root with a batch that waits, and its judge and corpus in two versions."""
    folder = tmp_path_factory.mktemp("swapped")
    root, old, new = (folder / name for name in ("root", "old", "new"))
    shutil.copytree(_operated, root)
    for part in ("corpora", "judges"):
        shutil.copytree(root / part, old / part)
    store = Store(str(root))
    corpus = Corpus(store, "c")
    kept = kept_key("c", deploy(JudgedCorpus(corpus, "lexical"), track=False).kept)
    receive(corpus, [str(deliver(folder / "runs.jsonl", tasks=10))])
    shutil.copytree(root, folder / "other")
    store = Store(str(folder / "other"))
    other = write_runs(folder / "others.jsonl", tasks=100, attempts=4, seed=9)
    register_runs(store, "c", other, rl=False)
    corpus = Corpus(store, "c")
    corpus.prepare_splits()
    corpus.measure_leaks()
    judge = JudgedCorpus(corpus, "lexical")
    judge.train()
    judge.score()
    certify_judge(judge)
    audit_judge(judge)
    for part in ("corpora", "judges"):
        shutil.copytree(folder / "other" / part, new / part)
    for version in (old, new):
        for part in ("corpora", "judges"):
            shutil.copytree(version / part, folder / f"{version.name} copies" / kept / part)
    return root, old, new


@pytest.mark.slow
@pytest.mark.parametrize("what", ["copies", "stored"])
@pytest.mark.parametrize("put_back", [False, True], ids=["swapped", "swapped and put back"])
def test_a_batch_is_decided_by_the_deployed_judge_or_refused(
    roots: tuple[Path, Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put_back: bool,
    what: str,
) -> None:
    _, *versions = roots
    if what == "copies":
        versions = [path.with_name(f"{path.name} copies") for path in versions]
    monkeypatch.setattr(SwappingBackend, "versions", tuple(versions))
    monkeypatch.setattr(SwappingBackend, "put_back", put_back)

    def decided(swap_at: int) -> list[tuple[str, float]] | None:
        """Return the scores of the rows that were decided; None where there are none."""
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        shutil.copytree(roots[0], tmp_path / "root")
        monkeypatch.setattr(SwappingBackend, "reads", 0)
        monkeypatch.setattr(SwappingBackend, "swap_at", swap_at)
        corpus = Corpus(Store(f"swap://{tmp_path / 'root'}"), "c")
        try:
            (record,) = decide_ready(corpus)
        except IntegrityError:
            return None
        if not record.decided:
            return None
        # of the versions that are stored now, whichever they are
        monkeypatch.setattr(SwappingBackend, "swap_at", -9)
        frame = decisions_of(corpus, record.batch)
        return [tuple(row) for row in frame[["decision", "score"]].itertuples(index=False)]

    whole = decided(-9)
    reads = SwappingBackend.reads
    assert whole is not None and {decision for decision, _ in whole} >= {"reject", "human"}
    assert reads >= 40
    found = [decided(place) for place in range(0, reads, STRIDE)]
    assert all(one is None or one == whole for one in found)
    if what == "copies":
        assert None in found, "most swaps are found"
    else:
        # other labels of CAL end a deployment, which is looked at before a batch is scored and after:
        # where they are put back in between, or come after the second look, it decides
        assert (found[0] is None) != put_back
        assert whole in (found if put_back else [decided(reads - 1)])
