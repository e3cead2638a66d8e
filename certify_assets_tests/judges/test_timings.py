from pathlib import Path

from certify_assets.judges.judged import timed
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged


def test_training_and_scoring_are_measured_and_no_hash_depends_on_it(corpora: Store) -> None:
    names = ("scores.parquet", "scores.json", "adapter.json")
    before = {name: corpora.sha256(f"judges/lexical/two/{name}") for name in names}
    judged(corpora, "two").train()
    table = judged(corpora, "two").score()
    assert {name: corpora.sha256(f"judges/lexical/two/{name}") for name in names} == before
    found = judged(corpora, "two").timings
    assert found["score"]["rows"] == len(table) and found["train"]["rows"] > 0
    for stage in found.values():
        assert stage["cpu_seconds"] > 0
        assert stage["wall_seconds"] > 0
        assert stage["peak_mib"] > 10
        assert not stage["continued"]


def test_a_run_that_goes_on_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    key, folder = "judges/j/c/timings.json", "judges/j/c"
    for product, continued, kept in (
        ("a", True, True),
        ("a", False, False),
        ("a", True, False),
        ("b", True, True),
    ):
        store.write_json(f"{folder}/scores.json", {"scores_sha256": product})
        with timed(judged(store, "c", "j"), "score") as stage:
            stage.continued = continued
        assert store.read_json(key)["score"]["continued"] is kept
    assert store.read_json(key)["score"]["product_sha256"] == "b"
