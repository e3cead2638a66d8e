"""A judge behind a server decides, with its bill; another server, or none, decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import open_deployment
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    Faulty,
    chat_body,
    faulty_server,
)
from certify_assets_tests.operations_builders import deliver

pytestmark = pytest.mark.slow
_GOOD = ("order confirmed", "shows the name that was asked for", "is sorted now")


def judge_of(store: Store) -> JudgedCorpus:
    return judged(store, judge="mine")


def _answer(payload: dict[str, Any], times: int) -> Action:
    text = payload["messages"][1]["content"]
    # ties would put half of the runs at one threshold
    spread = (len(text) % 17) / 100
    told = any(words in text for words in _GOOD)
    return Action(
        chat_body(
            logs={
                "SUCCESS": -0.2 - spread if told else -2.0 - spread,
                "FAIL": -2.0 if told else -0.2,
            }
        )
    )


@pytest.fixture
def server() -> Iterator[Faulty]:
    with faulty_server(_answer) as serving:
        yield serving


def configure(store: Store, server: Faulty, **settings: Any) -> None:
    entry = {
        "name": "mine",
        "url": server.url,
        "model": "m",
        **settings,
    }
    store.folder.write("judges.yaml", yaml.safe_dump({"judges": [entry]}).encode("utf-8"))


def test_a_server_decides_as_long_as_it_is_the_registered_one(
    operated: Store, server: Faulty, tmp_path: Path
) -> None:
    configure(operated, server, prices={"prompt": 2.0, "completion": 10.0})
    judge_of(operated).train()
    judge_of(operated).score()
    certifier.certify_judge(judge_of(operated))
    audit_judge(judge_of(operated))
    made = deploy(judge_of(operated), accepted=["chosen_among_judges"], track=False)
    assert made.fingerprint["prompt_sha256"] and "chosen_among_judges" in {
        finding["code"] for finding in made.findings
    }
    receive(Corpus(operated, "c"), [str(deliver(tmp_path / "a.jsonl", tasks=10))])
    (document,) = decide_ready(Corpus(operated, "c"))
    assert (
        document.decided and document.bill["decisions"] == 40 and document.decisions["reject"] > 0
    )
    configure(operated, server, model="other")
    assert (
        "another" in str(open_deployment(Corpus(operated, "c")).refusal)
        and open_deployment(Corpus(operated, "c")).refusal.code == "stale_certificate"
    )
    configure(operated, server, prices={"prompt": 2.0, "completion": 10.0})
    assert open_deployment(Corpus(operated, "c")).refusal is None


def test_a_server_that_is_down_leaves_the_batch_waiting(operated: Store, tmp_path: Path) -> None:
    with faulty_server(_answer) as server:
        configure(operated, server)
        judge_of(operated).train()
        judge_of(operated).score()
        certifier.certify_judge(judge_of(operated))
        audit_judge(judge_of(operated))
        deploy(judge_of(operated), accepted=["chosen_among_judges"], track=False)
    receive(Corpus(operated, "c"), [str(deliver(tmp_path / "a.jsonl", tasks=5))])
    with pytest.raises(CertifyError):
        decide_ready(Corpus(operated, "c"))
    assert load_decisions(Corpus(operated, "c")).empty
