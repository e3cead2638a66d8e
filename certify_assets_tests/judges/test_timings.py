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
        assert not stage["continued"]
