"""The chain of a language-model judge on small corpora: made, scored, certified, recomputed.

A changed adapter is refused.
"""

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import certifier
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs

NAME = "small"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("language")
    opened = Store(str(root / "root"))
    register_runs(
        opened, NAME, write_runs(root / "runs.jsonl", tasks=40, attempts=3, seed=0), rl=True
    )
    Corpus(opened, NAME).prepare()
    return opened


def made(store: Store, judge: str) -> dict[str, object]:
    document = judged(store, NAME, judge).train().to_dict()
    judged(store, NAME, judge).score()
    certifier.certify_judge(judged(store, NAME, judge))
    return document


@pytest.mark.slow
def test_fine_tuning_and_reinforcement_go_from_adapter_to_certificate(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two numbers of steps, as the judge has them, but small ones
    monkeypatch.setitem(JUDGES, "grpo", JUDGES["grpo"].model_copy(update={"steps": (1, 2)}))
    sft, grpo = made(store, "sft"), made(store, "grpo")
    assert sft["adapter_sha256"] != judged(store, NAME, "base").train().adapter_sha256
    assert grpo["candidates"] == 9 and grpo["starts"] == {"sft": sft["adapter_sha256"]}
    names = [row["name"] for row in grpo["selection"]]  # type: ignore[attr-defined]
    assert names[0] == "start" and len(set(names)) == 9 and grpo["chosen"] in names
    for certificate in certifier.load_certificates(judged(store, NAME, "grpo")):
        assert certificate.candidates == 9 and "candidates" in str(certificate.selection)
    for name in ("sft", "grpo"):
        assert certifier.verify_stored(judged(store, NAME, name)) == []
