import shutil
import subprocess
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.batches import batch_names
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, write_runs
from certify_assets_tests.conftest import prepared_world
from certify_assets_tests.faults.small import prepare, run
from certify_assets_tests.operations_builders import deliver, label_draw


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "root"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root that nothing disturbed."""

    def finish(root: Path) -> None:
        prepare(root)
        # an interpreter of its own: with the same seed of hashes the same bytes would say less
        done = run(root, start=subprocess.run)
        assert done.returncode == 0, done.stderr

    return prepared_world(tmp_path_factory, "undisturbed", finish)


@pytest.fixture(scope="session")
def in_operation(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with two deployments and a decided and labelled batch; beside it files of a user."""

    def put_to_work(root: Path) -> None:
        shutil.copytree(_operated, root)
        store, away = Store(str(root)), root.parent
        deploy(judged(store), sampling=SamplingPlan(0.5, 5), track=False)
        receive(Corpus(store, "c"), [str(deliver(away / "first.jsonl", tasks=40))])
        decide_ready(Corpus(store, "c"))
        # of the same seed, so that what was drawn before counts
        deploy(judged(store), sampling=SamplingPlan(0.6, 5), track=False)
        rows = load_decisions(Corpus(store, "c"))
        asked = rows.loc[rows["asked"] == "audit_sample", "trajectory_id"].tolist()
        append_labels(Corpus(store, "c"), [Label(run, 0, "ann", "file", run) for run in asked])
        lines = [f"{run},{place % 2}" for place, run in enumerate(asked)]
        (away / "labels.csv").write_text("\n".join(["trajectory_id,outcome", *lines, ""]), "utf-8")
        # what CI says later of every run, as the judge decided it
        ended = rows.assign(outcome=(rows["decision"] == "release").astype(int))
        ended[["trajectory_id", "outcome"]].to_csv(away / "outcomes.csv", index=False)
        deliver(away / "new.jsonl", tasks=40, seed=2)
        write_runs(away / "more.jsonl", tasks=120, attempts=4, seed=9)

    return prepared_world(tmp_path_factory, "in-operation", put_to_work)


@pytest.fixture(scope="session")
def waiting(in_operation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a batch of an agent that CAL lacks, whose runs wait for a draw."""

    def wait(root: Path) -> None:
        shutil.copytree(in_operation, root)
        other = deliver(
            root.parent / "other.jsonl",
            tasks=30,
            seed=3,
            change=lambda record: record.update(agent="newcomer"),
        )
        receive(Corpus(Store(str(root)), "c"), [str(other)])
        decide_ready(Corpus(Store(str(root)), "c"))

    return prepared_world(tmp_path_factory, "waiting", wait)


@pytest.fixture(scope="session")
def settled(waiting: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, drawn and labelled, so that the next look closes the batch."""

    def settle(root: Path) -> None:
        shutil.copytree(waiting, root)
        store = Store(str(root))
        decide_ready(Corpus(store, "c"), draw=True)
        label_draw(store, batch_names(Corpus(store, "c"))[-1], close=False)

    return prepared_world(tmp_path_factory, "settled", settle)
