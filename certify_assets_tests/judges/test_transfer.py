"""What a transfer judge is trained on.

An equal share of every other corpus, and nothing that the target's CAL or TEST holds.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from certify_assets.corpora.config import (
    CorpusConfig,
    embedded_config,
    format_domain,
    load_config,
    save_config,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.evaluation import certification
from certify_assets.judges.families.transfer import no_sources
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.specs import JUDGES, judge_spec
from certify_assets.judges.transfer import TRANSFER_ROWS, gather_pool, share_rows
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


@pytest.mark.parametrize(
    ("available", "limit", "shares"),
    [
        ({"a": 100, "b": 100}, 60, {"a": 30, "b": 30}),
        ({"a": 100, "b": 10, "c": 100}, 90, {"a": 40, "b": 10, "c": 40}),
        ({"c": 5, "a": 7, "b": 100, "d": 100}, 50, {"c": 5, "a": 7, "b": 19, "d": 19}),
        ({"a": 3, "b": 4}, 50, {"a": 3, "b": 4}),
        ({"a": 9, "b": 9}, 5, {"a": 2, "b": 3}),
        ({"a": 0, "b": 9}, 5, {"a": 0, "b": 5}),
        ({}, 5, {}),
    ],
)
def test_a_source_with_fewer_rows_leaves_its_share_to_the_others(
    available: dict[str, int], limit: int, shares: dict[str, int]
) -> None:
    assert share_rows(available, limit) == shares
    assert sum(shares.values()) == min(limit, sum(available.values()))


def test_a_pool_is_of_the_other_corpora_in_equal_shares_of_whole_tasks(built: Store) -> None:
    pool = gather_pool(Corpus(built, "home"), limit=50)
    assert {source.corpus: source.rows for source in pool.record.sources} == {"near": 25, "far": 25}
    assert pool.frame["corpus"].value_counts().to_dict() == {"near": 25, "far": 25}
    assert pool.record.limit == 50
    for source in pool.record.sources:
        sft, manifest = (
            Corpus(built, source.corpus).split("sft"),
            Corpus(built, source.corpus).manifest,
        )
        drawn = pool.frame[pool.frame["corpus"] == source.corpus]
        assert set(drawn["trajectory_id"]) <= set(sft["trajectory_id"])
        assert source.manifest_sha256 == manifest.sha256
        assert source.rows + sum(source.dropped.values()) == len(sft), (
            "every row is used or counted"
        )
        whole = sft.groupby("task_id").size()
        cut = [
            task for task, number in drawn.groupby("task_id").size().items() if number < whole[task]
        ]
        assert len(cut) <= 1
        assert source.tasks == drawn["task_id"].nunique()
        assert source.successes == drawn["outcome"].sum()
    assert len(gather_pool(Corpus(built, "home")).frame) <= TRANSFER_ROWS == 2600


def test_the_draw_depends_on_the_seed_and_on_nothing_else(built: Store) -> None:
    first, again, other = (
        gather_pool(Corpus(built, "home"), limit=30, seed=seed) for seed in (42, 42, 43)
    )
    assert first.record == again.record and first.frame.equals(again.frame)
    assert set(first.frame["trajectory_id"]) != set(other.frame["trajectory_id"])
    more = gather_pool(Corpus(built, "home"), limit=40)
    assert set(first.frame["trajectory_id"]) < set(more.frame["trajectory_id"]), (
        "a larger share adds rows and takes none away"
    )


def test_a_small_training_reads_a_run_of_every_task_before_a_second(built: Store) -> None:
    pool = gather_pool(Corpus(built, "home"), runs=8)
    assert pool.record.limit == 8
    assert {source.corpus: (source.rows, source.tasks) for source in pool.record.sources} == {
        "near": (4, 4),
        "far": (4, 4),
    }
    few = gather_pool(Corpus(built, "home"), runs=6).frame["trajectory_id"]
    assert set(few) < set(pool.frame["trajectory_id"])
    # one that has nothing to leave out is the pool itself
    for runs in (None, TRANSFER_ROWS, 10 * TRANSFER_ROWS):
        same = gather_pool(Corpus(built, "home"), runs=runs)
        assert same.record == gather_pool(Corpus(built, "home")).record


@pytest.mark.parametrize("model", ["compact", "smollm2"])
def test_a_pool_is_read_once_unless_epochs_are_written(tmp_path: Path, model: str) -> None:
    def recipe(**written: object) -> Recipe:
        entry = {"name": "moved", "family": "transfer", "model": model, **written}
        (tmp_path / "judges.yaml").write_text(yaml.safe_dump({"judges": [entry]}), "utf-8")
        return judge_spec("moved", str(tmp_path)).training

    usual = known_model(model).recipe
    assert usual.epochs > 1 and recipe() == usual.pooled
    assert recipe(runs=8) == replace(usual, runs=8, epochs=1.0)
    assert recipe(learning_rate=0.01) == replace(usual, learning_rate=0.01, epochs=1.0)
    assert recipe(runs=8, epochs=3) == replace(usual, runs=8, epochs=3.0)
    assert JUDGES["transfer"].training == known_model("compact").recipe.pooled


def unlabelled(text: str) -> str:
    """Take the outcome from the first attempt at every task."""
    records = [json.loads(line) for line in text.splitlines()]
    return "\n".join(
        json.dumps(
            {**record, "outcome": None} if record["trajectory_id"].endswith("/0") else record
        )
        for record in records
    )


@pytest.mark.parametrize(
    ("reason", "edit"),
    [
        ("shared_task", lambda text: text.replace("twin-", "HOME-")),
        (
            "shared_instruction",
            lambda text: text.replace("Put twin things in order,", "  PUT Home\\nthings in-order"),
        ),
    ],
)
def test_rows_that_share_a_task_or_an_instruction_with_cal_or_test_are_left_out_and_counted(
    store: Store, reason: str, edit: Callable[[str], str]
) -> None:
    add_corpus(store, "twin", tasks=60, attempts=3, seed=9, domain="web", edit=edit)
    resplit(store, "twin", 7)
    sft = Corpus(store, "twin").split("sft")
    assignment = Corpus(store, "home").manifest.assignment
    shared = sft["task_id"].map(lambda task: assignment[f"home-{task[-3:]}"] in ("cal", "test"))
    assert 0 < shared.sum() < len(sft)
    pool = gather_pool(Corpus(store, "home"))
    twin = next(source for source in pool.record.sources if source.corpus == "twin")
    assert twin.dropped == {reason: shared.sum()} and twin.rows == len(sft) - shared.sum()
    assert set(pool.frame.loc[pool.frame["corpus"] == "twin", "trajectory_id"]) == set(
        sft.loc[~shared, "trajectory_id"]
    )


def test_rows_without_a_label_are_counted_and_an_empty_instruction_is_shared_with_nobody(
    store: Store,
) -> None:
    def edit(text: str) -> str:
        records = [json.loads(line) for line in unlabelled(text).splitlines()]
        return "\n".join(json.dumps({**record, "instruction": ""}) for record in records)

    for name in ("near", "home"):
        add_corpus(store, name, domain="web", edit=edit, options={"keep_unlabelled": True})
    near = next(
        source
        for source in gather_pool(Corpus(store, "home")).record.sources
        if source.corpus == "near"
    )
    assert near.dropped == {"no_label": near.tasks} and near.rows == 2 * near.tasks


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
    shutil.rmtree(Path(store.root) / "corpora/far")
    strict = judge_spec("lexical_transfer_strict")
    assert (
        gather_pool(Corpus(store, "home")).missing
        == ""
        == no_sources(JudgedCorpus.of(Corpus(store, "home"), judge_spec("lexical_transfer")))
    )
    assert "no corpus of another domain than web" in no_sources(
        JudgedCorpus.of(Corpus(store, "home"), strict)
    )
    with pytest.raises(InputError, match="near: its domain is web"):
        home(store, strict.name).train()
    shutil.rmtree(Path(store.root) / "corpora/near")
    pool = gather_pool(Corpus(store, "home"))
    assert pool.frame.empty and "miniwob_weak: it is not split yet" in pool.missing


def test_a_source_that_does_not_hold_is_left_out_with_its_sentence(store: Store) -> None:
    cal = store.read_bytes("corpora/near/splits/cal.parquet")
    store.write_bytes("corpora/near/splits/sft.parquet", cal)
    pool = gather_pool(Corpus(store, "home"))
    assert [source.corpus for source in pool.record.sources] == ["far"]
    assert "materialize corpora/sft_split again" in pool.record.left_out["near"]


@pytest.mark.slow
def test_a_transfer_judge_goes_from_adapter_to_certificate_with_its_sources(store: Store) -> None:
    document = home(store, "lexical_transfer").train().to_dict()
    pool = gather_pool(Corpus(store, "home"))
    assert document["transfer"] == {**asdict(pool.record), "limits": []}
    assert document["sft_trajectories"] == len(pool.frame)
    assert {item["corpus"] for item in document["transfer"]["sources"]} == {"near", "far"}
    table = home(store, "lexical_transfer").score()
    assert table["score"].notna().all()
    for certificate in certification.certify_judge(home(store, "lexical_transfer")):
        named = certificate.provenance["training_sources"]
        assert all(
            item["manifest_sha256"][:12] in named for item in document["transfer"]["sources"]
        )
    assert certification.verify_stored(home(store, "lexical_transfer")) == []
    assert home(store, "lexical_transfer").train().adapter_sha256 == document["adapter_sha256"]
    sft = Corpus(store, "home").split("sft")
    assert not set(sft["trajectory_id"]) & set(pool.frame["trajectory_id"])


def test_a_transfer_judge_is_stale_when_a_source_is_split_anew_and_not_when_one_comes_or_goes(
    store: Store,
) -> None:
    home(store, "lexical_transfer").train()
    add_corpus(store, "new", tasks=20, domain="shell")
    shutil.rmtree(Path(store.root) / "corpora/near")
    assert home(store, "lexical_transfer").artifact.details["transfer"]["sources"]
    resplit(store, "far", 43)
    with pytest.raises(
        StaleCertificateError,
        match="the splits of far, on which lexical_transfer for home was trained",
    ):
        _ = home(store, "lexical_transfer").artifact
    home(store, "lexical_transfer").train()
    assert {
        item["corpus"]
        for item in home(store, "lexical_transfer").artifact.details["transfer"]["sources"]
    } == {"far", "new"}


def test_a_transfer_judge_is_stale_when_the_target_holds_other_texts_or_a_domain_changed(
    store: Store,
) -> None:
    home(store, "lexical_transfer").train()
    home(store, "lexical_transfer_strict").train()
    save_config(store, replace(load_config(store, "far"), domain="web"))
    _ = home(store, "lexical_transfer").artifact
    with pytest.raises(StaleCertificateError, match="trained on far, and now its domain is web"):
        _ = home(store, "lexical_transfer_strict").artifact
    path = Path(load_config(store, "home").paths[0])
    changed = store.local_path("home.jsonl")
    changed.write_text(
        path.read_text("utf-8").replace("in order, number", "into another order, number"), "utf-8"
    )
    save_config(store, replace(load_config(store, "home"), paths=(str(changed),)))
    Corpus(store, "home").import_trajectories()
    with pytest.raises(StaleCertificateError, match="other tasks or instructions"):
        _ = home(store, "lexical_transfer").artifact


def test_domains_come_from_the_configuration_else_from_the_format(store: Store) -> None:
    assert str(Corpus(store, "home").domain) == "web"
    assert Corpus(store, "miniwob_weak").domain.name == embedded_config("x").domain == "web"
    assert str(format_domain("openhands+swe_agent")) == "software (derived from the format)"
    assert format_domain("taubench_v1").name == format_domain("tau2").name == "customer_service"
    assert not format_domain("table").name
    assert not format_domain("terminal_bench+tau2").name
    assert not format_domain("harbor").name
    with pytest.raises(InputError, match="cannot name a domain"):
        CorpusConfig("c", domain="The Web")
    assert CorpusConfig.from_dict(asdict(CorpusConfig("c", domain="web"))).domain == "web"
