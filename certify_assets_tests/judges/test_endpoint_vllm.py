"""The compact model behind a real vLLM, compared with the same model read here."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml

from certify_assets.corpora.corpus import Corpus
from certify_assets.evaluation import certification
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.judges.endpoint.vllm_process import require_vllm, vllm_server

pytestmark = pytest.mark.slow

NAME = "small"
TOKENS = {"form": "tokens", "tokenizer": "compact"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A split corpus with a fine-tuned judge, and a server of the compact model and its adapter."""
    require_vllm()
    folder = tmp_path_factory.mktemp("served")
    store = Store(str(folder / "root"))
    register_runs(
        store, NAME, write_runs(folder / "runs.jsonl", tasks=40, attempts=3, seed=0), rl=True
    )
    Corpus(store, NAME).prepare()
    for judge in ("base", "sft"):
        judged(store, NAME, judge).train()
        judged(store, NAME, judge).score()
    options = ("--lora-modules", f"tuned={store.local_path(f'judges/sft/{NAME}/adapter')}")
    with vllm_server(
        compact_model_path(), "compact", folder / "log", options=options, max_len=2048
    ) as url:
        common: dict[str, Any] = {
            "url": url,
            "model": "compact",
            "budget_tokens": 768,
            "concurrency": 16,
        }
        judges = [
            {**common, "name": "served", **TOKENS},
            {
                **common,
                "name": "served_sft",
                "model": "tuned",
                **TOKENS,
            },
            {
                **common,
                "name": "served_text",
                "form": "completion",
                "budget_tokens": 300,
            },
            {**common, "name": "words", "asking": "cot", "max_tokens": 12},
            {**common, "name": "votes", "asking": "sc_5", "max_tokens": 8},
        ]
        (folder / "root" / "judges.yaml").write_text(yaml.safe_dump({"judges": judges}), "utf-8")
        yield store


def _made(store: Store, judge: str) -> Any:
    judged(store, NAME, judge).train()
    return judged(store, NAME, judge).score()


@pytest.mark.parametrize(("judge", "local"), [("served", "base"), ("served_sft", "sft")])
def test_a_server_certifies_what_the_same_model_certifies_here(
    store: Store, judge: str, local: str
) -> None:
    table, here = _made(store, judge), store.read_table(f"judges/{local}/{NAME}/scores.parquet")
    np.testing.assert_allclose(table["score"], here["score"], atol=1e-4)
    assert judge_auroc(table) == pytest.approx(judge_auroc(here), abs=1e-3)
    certificates, same = (
        certification.certify_judge(judged(store, NAME, judge)),
        certification.certify_judge(judged(store, NAME, local)),
    )
    assert [(item.certified, item.coverage) for item in certificates] == [
        (item.certified, item.coverage) for item in same
    ]
    assert certification.verify_stored(judged(store, NAME, judge)) == []


def test_a_text_cut_by_the_servers_count_is_the_text_compared(store: Store) -> None:
    _made(store, "served_text")
    bill = judged(store, NAME, "served_text").bill
    assert bill is not None
    assert bill["scored"] == bill["decisions"]
    assert bill["prompt_tokens"] <= 300 * bill["decisions"]


@pytest.mark.parametrize("judge", ["words", "votes"])
def test_a_model_that_cannot_state_a_verdict_is_unscored_and_billed(
    store: Store, judge: str
) -> None:
    table = _made(store, judge)
    bill = judged(store, NAME, judge).bill
    assert bill is not None
    assert bill["unscored"] == {"unparsed": len(table)}
    assert table["score"].isna().all()
    assert bill["parse_rate"] == 0.0 and bill["completion_tokens"] > 0
