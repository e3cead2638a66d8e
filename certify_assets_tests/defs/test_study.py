"""What is made over all corpora, materialized as a user would."""

from pathlib import Path

import dagster as dg
import pytest

from certify_assets.defs.checks import asked_together
from certify_assets.defs.research import research_checks, study_assets
from certify_assets.operations.checks import Verdict
from certify_assets.storage.store import Store
from certify_assets_tests.builders import score_as_base
from certify_assets_tests.defs.running import PROJECT, materialize, partitions


def run(root: Store | Path) -> dg.ExecuteInProcessResult:
    checks = research_checks(PROJECT)
    (law,) = (made for made in study_assets(PROJECT) if made.key.path[-1] == "certifiability")
    return materialize([law, *checks], root, None)


def check_of(result: dg.ExecuteInProcessResult) -> tuple[bool, str]:
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    return evaluation.passed, str(evaluation.description)


def test_an_empty_data_root_has_no_fit_and_says_so(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.success
    document = Store(str(tmp_path)).read_json("study/certifiability.json")
    assert document["law"] is None and document["points"] == []
    assert {item["corpus"] for item in document["left_out"]} == {"miniwob_mixed", "miniwob_weak"}
    passed, words = check_of(result)
    assert not passed and "0 corpora are fewer than 7" in words


def test_three_corpora_are_fitted_with_a_warning(corpora: Store) -> None:
    for corpus in ("one", "two", "three"):
        score_as_base(corpora, corpus)
    result = run(corpora.root)
    (event,) = result.asset_materializations_for_node("research__certifiability")
    assert event.metadata["corpora"].value == 3
    document = corpora.read_json("study/certifiability.json")
    fitted = document["law"]["forms"][0]["slope"]
    assert event.metadata["slope"].value == pytest.approx(fitted)
    passed, words = check_of(result)
    assert not passed and "3 corpora are fewer than 7" in words
    before = corpora.sha256("study/certifiability.json")
    assert run(corpora).success
    assert corpora.sha256("study/certifiability.json") == before


def test_a_check_that_fails_leaves_the_others_of_its_step_their_answer(tmp_path: Path) -> None:
    def broken(_: Store) -> Verdict:
        raise ValueError("no answer")

    def lost(_: Store) -> Verdict:
        raise ValueError("no data")

    def holds(_: Store) -> Verdict:
        return Verdict.of(True, "it holds.")

    @dg.asset(key=PROJECT.key("corpora/comparison"))
    def checked() -> None: ...

    asked = {"corpora/comparison": [broken, lost, holds]}
    checks = asked_together(PROJECT, asked, partitioned=False)
    with partitions() as instance:
        result = materialize(
            [checked, checks], tmp_path, None, instance=instance, raise_on_error=False
        )
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    (failed,) = result.get_step_failure_events()
    assert "no answer" in str(failed.step_failure_data.error)
    assert any("lost: ValueError('no data')" in text for text in said)
    assert [found.check_name for found in result.get_asset_check_evaluations()] == ["holds"]
