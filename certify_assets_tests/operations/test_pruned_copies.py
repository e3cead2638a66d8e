"""Copies of early deployments are removed by command, and nothing that is needed with them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from certify_assets.cli.ops import ops
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import StaleCertificateError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batches import decide_ready, receive
from certify_assets.operations.deployment import Deployment
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.kept_copies import kept_copies, prune_kept
from certify_assets.operations.layout import kept_key, load_decisions
from certify_assets.operations.rollout import deploy, redeploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.operations_builders import deliver


def put(store: Store, budget: float | None = None) -> str:
    """Deploy what is stored now, as another judge than before; return its copies."""
    judge = JudgedCorpus(Corpus(store, "c"), "lexical")
    made = deploy(judge, alpha=budget, sampling=SamplingPlan(0.0, 0.0, 5), track=False)
    return made.kept


def another(store: Store) -> None:
    """Let the stored judge be another one: its harvest is part of the copies."""
    key = "judges/lexical/c/harvest.json"
    store.write_json(key, {"number": len(read_deployments(Corpus(store, "c")))})


@pytest.fixture
def deployed(operated: Store) -> list[str]:
    """The copies of three deployments, the oldest first."""
    found = [put(operated)]
    for _ in range(2):
        another(operated)
        found.append(put(operated))
    assert len(set(found)) == 3
    return found


def test_the_last_deployments_keep_their_copies(operated: Store, deployed: list[str]) -> None:
    # a call that was killed before the line of its deployment left copies of none
    operated.write_bytes(f"{kept_key('c', 'f' * 64)}/corpora/c/corpus.json", b"{}")
    call = ["prune", "c", "--keep", "2", "--root", operated.root, "--json"]
    listed = json.loads(CliRunner().invoke(ops, [*call, "--dry-run"]).stdout)
    assert not listed["removed"] and {
        (item["sha256"], tuple(item["deployments"])) for item in listed["copies"]
    } == {(deployed[0], (1,)), ("f" * 64, ())}
    assert all(item["files"] and item["bytes"] for item in listed["copies"])
    assert len(kept_copies(Corpus(operated, "c"), last=2)) == 4
    done = json.loads(CliRunner().invoke(ops, call).stdout)
    assert done == listed | {"removed": True}
    left = [item.sha256 for item in kept_copies(Corpus(operated, "c"), last=2)]
    assert sorted(left) == sorted(deployed[1:])
    assert not Path(operated.root, kept_key("c", deployed[0])).exists()
    assert Deployment.of(Corpus(operated, "c")).refusal is None
    assert redeploy(Corpus(operated, "c"), 2, track=False).kept == deployed[1]
    with pytest.raises(StaleCertificateError, match="Restore them from a backup"):
        redeploy(Corpus(operated, "c"), 1, track=False)
    again = CliRunner().invoke(ops, ["prune", "c", "--keep", "2", "--root", operated.root])
    assert again.exit_code == 0 and "No copies are older" in again.stdout


def test_what_waits_for_a_draw_keeps_the_judge_that_scored_it(
    operated: Store, tmp_path: Path
) -> None:
    def new(record: dict[str, object]) -> None:
        record["agent"] = "agent-new"

    first = put(operated)
    receive(Corpus(operated, "c"), [str(deliver(tmp_path / "a.jsonl", tasks=5, change=new))])
    decide_ready(Corpus(operated, "c"))
    assert set(load_decisions(Corpus(operated, "c"))["decision"]) == {"provisional"}
    for _ in range(2):
        another(operated)
        put(operated)
    gone = prune_kept(Corpus(operated, "c"), last=1)
    assert first not in {item.sha256 for item in gone} and len(gone) == 1
