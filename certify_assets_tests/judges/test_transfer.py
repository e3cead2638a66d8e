"""What a transfer judge is trained on.

An equal share of every other corpus, and nothing that the target's CAL or TEST holds.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.families.transfer import TRANSFER_ROWS, gather_pool
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import certifier
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.conftest import copy_world
from certify_assets_tests.transfer_corpora import add_corpus, three_corpora


def home(store: Store, judge: str) -> JudgedCorpus:
    return judged(store, "home", judge)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return three_corpora(tmp_path_factory.mktemp("transfer"))


@pytest.fixture
def store(built: Store, tmp_path: Path) -> Store:
    """A copy that a test may change."""
    return copy_world(built.root, tmp_path)


def resplit(store: Store, corpus: str, seed: int) -> None:
    save_config(store, replace(load_config(store, corpus), seed=seed))
    Corpus(store, corpus).make_splits()
    Corpus(store, corpus).write_splits()


def test_a_pool_is_of_the_other_corpora_in_equal_shares_of_whole_tasks(built: Store) -> None:
    pool = gather_pool(Corpus(built, "home"), limit=50)
    assert {source.corpus: source.rows for source in pool.record.sources} == {"near": 25, "far": 25}
    assert pool.frame["corpus"].value_counts().to_dict() == {"near": 25, "far": 25}
    for source in pool.record.sources:
        corpus = Corpus(built, source.corpus)
        sft, drawn = corpus.split("sft"), pool.frame[pool.frame["corpus"] == source.corpus]
        assert set(drawn["trajectory_id"]) <= set(sft["trajectory_id"])
        assert source.manifest_sha256 == corpus.manifest.sha256
        assert source.rows + sum(source.dropped.values()) == len(sft), "all are used or counted"
        sizes = drawn.groupby("task_id").size()
        assert (sizes < sft.groupby("task_id").size()[sizes.index]).sum() <= 1
        assert (source.tasks, source.successes) == (len(sizes), drawn["outcome"].sum())
    assert len(gather_pool(Corpus(built, "home")).frame) <= TRANSFER_ROWS == 2600


@pytest.mark.parametrize(
    ("reason", "old", "new"),
    [
        ("shared_task", "twin-", "HOME-"),
        ("shared_instruction", "Put twin things in order,", "  PUT Home\\nthings in-order"),
    ],
)
def test_rows_that_share_a_task_or_an_instruction_with_cal_or_test_are_left_out_and_counted(
    store: Store, reason: str, old: str, new: str
) -> None:
    twin: dict[str, Any] = {"tasks": 60, "attempts": 3, "seed": 9, "domain": "web"}
    add_corpus(store, "twin", **twin, edit=lambda text: text.replace(old, new))
    resplit(store, "twin", 7)
    sft = Corpus(store, "twin").split("sft")
    home_split = Corpus(store, "home").manifest.assignment
    splits = sft["task_id"].map(lambda task: home_split[f"home-{task[-3:]}"])
    kept = sft[~splits.isin(["cal", "test"])]
    assert 0 < len(kept) < len(sft)
    pool = gather_pool(Corpus(store, "home"))
    source = next(source for source in pool.record.sources if source.corpus == "twin")
    assert source.dropped == {reason: len(sft) - len(kept)} and source.rows == len(kept)
    drawn = pool.frame.loc[pool.frame["corpus"] == "twin", "trajectory_id"]
    assert set(drawn) == set(kept["trajectory_id"])


def test_a_strict_pool_leaves_out_the_domain_of_the_target_and_what_is_of_none(
    store: Store,
) -> None:
    add_corpus(store, "loose", tasks=20)
    pool = gather_pool(Corpus(store, "home"), strict=True)
    assert [source.corpus for source in pool.record.sources] == ["far"]
    assert pool.record.domain == "web"
    assert pool.record.left_out["near"] == "its domain is web"
    assert pool.record.left_out["loose"] == "its domain is not stated"
    assert {source.corpus for source in gather_pool(Corpus(store, "home")).record.sources} == {
        "near",
        "far",
        "loose",
    }
    with pytest.raises(InputError, match="state it with `certify corpus import --set domain=NAME`"):
        gather_pool(Corpus(store, "loose"), strict=True)


def test_where_no_corpus_can_be_a_source_the_sentence_says_why_each_cannot(store: Store) -> None:
    store.remove_tree("corpora/far")
    with pytest.raises(InputError, match="near: its domain is web"):
        home(store, "lexical_transfer_strict").train()
    store.remove_tree("corpora/near")
    pool = gather_pool(Corpus(store, "home"))
    assert pool.frame.empty and "miniwob_weak: it is not split yet" in pool.missing


@pytest.mark.slow
def test_a_transfer_judge_goes_from_adapter_to_certificate_with_its_sources(store: Store) -> None:
    judge = home(store, "lexical_transfer")
    document, pool = judge.train().to_dict(), gather_pool(Corpus(store, "home"))
    assert document["transfer"] == pool.record.to_dict()
    assert document["sft_trajectories"] == len(pool.frame)
    sources = document["transfer"]["sources"]
    assert {item["corpus"] for item in sources} == {"near", "far"}
    assert judge.score()["score"].notna().all()
    for certificate in certifier.certify_judge(judge):
        named = certificate.provenance["training_sources"]
        assert all(item["manifest_sha256"][:12] in named for item in sources)
    assert certifier.verify_stored(home(store, "lexical_transfer")) == []
    sft = Corpus(store, "home").split("sft")
    assert not set(sft["trajectory_id"]) & set(pool.frame["trajectory_id"])


def test_a_transfer_judge_is_stale_when_a_source_is_split_anew_and_not_when_one_comes_or_goes(
    store: Store,
) -> None:
    home(store, "lexical_transfer").train()
    add_corpus(store, "new", tasks=20, domain="shell")
    store.remove_tree("corpora/near")
    _ = home(store, "lexical_transfer").artifact
    resplit(store, "far", 43)
    said = "the splits of far, on which lexical_transfer for home was trained"
    with pytest.raises(StaleCertificateError, match=said):
        _ = home(store, "lexical_transfer").artifact
    sources = home(store, "lexical_transfer").train().details["transfer"]["sources"]
    assert {item["corpus"] for item in sources} == {"far", "new"}
