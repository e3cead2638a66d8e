"""The comparison as assets: of what is there, with its checks."""

import dagster as dg

from certify_assets.defs.names import corpora_partitions
from certify_assets.defs.research import comparison_assets, comparison_checks
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import PROJECT, materialize, partitions


def test_a_corpus_with_one_judge_is_compared_and_the_others_are_named(corpora: Store) -> None:
    compared, table = comparison_assets(PROJECT)
    with partitions("three") as instance:
        assets = [compared, *comparison_checks(PROJECT)]
        result = materialize(assets, corpora, "three", instance=instance)
        assert result.success
        over_all = materialize([table], corpora, None, instance=instance)
    (event,) = result.asset_materializations_for_node("corpora__comparison")
    assert isinstance(event.metadata["judges"], dg.MarkdownMetadataValue)
    assert len(str(event.metadata["judges"].md_str)) < 1000
    document = corpora.read_json("comparison/three/comparison.json")
    assert event.metadata["missing"].value == document["missing"] and len(document["missing"]) > 4
    checks = {item.check_name: item for item in result.get_asset_check_evaluations()}
    assert checks["same_rows"].passed and checks["beats_controls"].passed
    assert "No judge of a language model or of structure" in str(
        checks["beats_controls"].description
    )
    (event,) = over_all.asset_materializations_for_node("research__main_table")
    assert event.metadata["rows"].value == 3 * 4
    assert "| three |" not in str(event.metadata["corpora"].value).replace("|three|", "")


def test_a_leak_and_unscored_rows_are_warned_of(corpora: Store) -> None:
    key = "comparison/three/comparison.json"
    document = {
        "rows": [
            {
                "judge": "sft",
                "family": "sft",
                "model": "compact",
            }
        ],
        "differences": [
            {
                "judge": "sft",
                "against": "length_only",
                "verdict": "level",
                "sentence": "sft is not above length_only.",
            }
        ],
        "findings": [{"code": "unscored", "message": "sft left 3 of 9 rows unscored."}],
        "cal": {"trajectories": 9},
    }
    corpora.write_json(key, document)

    @dg.asset(key_prefix="corpora", partitions_def=corpora_partitions)
    def comparison() -> None:
        """The document is there already."""

    ran = materialize([comparison, *comparison_checks(PROJECT)], corpora, "three")
    found = {item.check_name: item for item in ran.get_asset_check_evaluations()}
    assert [result.passed for result in found.values()] == [False, False]
    assert all(result.severity == dg.AssetCheckSeverity.WARN for result in found.values())
    said = " ".join(str(result.description) for result in found.values())
    assert "not above length_only" in said and "left 3 of 9" in said
