from pathlib import Path

import pytest

from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader, write_json
from certify_assets_tests.corpora.formats.agent_reward_bench import (
    AGENTS,
    annotation,
    record,
    step,
    write,
    write_annotations,
    write_run,
)
from certify_assets_tests.paths import shared_data

ALPHA, BETA = AGENTS

read = reader("agent_reward_bench")


def test_a_run_pairs_an_action_with_the_page_after_it(tmp_path: Path) -> None:
    steps = [
        step(0, "click('1')"),
        step(1, "fill('2', 'x')", last_action_error="TimeoutError", axtree=""),
        step(2, None),
    ]
    write_run(
        tmp_path,
        "shop.resized.7",
        record(goal=[{"type": "text", "text": "Buy."}, {"type": "image_url"}], steps=steps),
    )
    write_annotations(tmp_path, [annotation("A", "shop.7", ALPHA, "Successful")])
    (run,) = from_frame(read(tmp_path).frame)
    assert (run.task_id, run.agent, run.instruction, run.outcome) == ("shop.7", ALPHA, "Buy.", 1)
    assert run.steps == (
        Step("", "url: http://shop.test/0\nRootWebArea 'page 0'"),
        Step("thought 0\nclick('1')", "url: http://shop.test/1\nerror: TimeoutError\npruned"),
        Step("thought 1\nfill('2', 'x')", "url: http://shop.test/2\nRootWebArea 'page 2'"),
    )


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (["Successful", "Unsuccessful"], None),
        (["Successful", "Unsure"], 1),
        (["Unsure"], None),
        (["Successful", "Unsuccessful", "Unsuccessful"], 0),
    ],
)
def test_the_majority_is_the_label(
    tmp_path: Path, verdicts: list[str], outcome: int | None
) -> None:
    write_run(tmp_path, "shop.1", record())
    rows = [annotation(f"P{n}", "shop.1", ALPHA, verdict) for n, verdict in enumerate(verdicts)]
    write_annotations(tmp_path, rows)
    (run,) = from_frame(read(tmp_path, keep_unlabelled=True).frame)
    assert run.outcome == outcome


def test_another_experiment_of_the_same_agent_has_no_label(tmp_path: Path) -> None:
    write_annotations(tmp_path, [annotation("A", "shop.1", ALPHA, "Successful")])
    write_run(tmp_path, "shop.1", record())
    again = record(experiment=f"{ALPHA}_on_shop.second", goal="again")
    write_json(tmp_path / "cleaned/shop" / ALPHA / again["experiment"] / "shop.1.json", again)
    imported = read(tmp_path)
    assert imported.frame["task_id"].tolist() == ["shop.1"]
    assert imported.dropped == {"no_label": 1}


def test_an_annotation_goes_to_one_run(tmp_path: Path) -> None:
    write_annotations(tmp_path, [annotation("A", "shop.1", ALPHA, "Successful")])
    write_run(tmp_path, "shop.1", record())
    write_run(tmp_path / "processed", "shop.1", record())
    assert read(tmp_path).dropped == {"duplicate": 1}
    write_run(tmp_path / "second", "shop.1", record(steps=[step(0, "noop()")]))
    imported = read(tmp_path)
    assert imported.dropped == {"ambiguous_label": 1, "duplicate": 1} and len(imported.frame) == 1
    assert "second" in imported.examples["ambiguous_label"]


def test_judgments_are_no_runs(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(InputError, match="is not a file of this format"):
        read(tmp_path / "judgments")


@pytest.mark.slow
def test_the_published_labels() -> None:
    root = shared_data("agent_reward_bench_labels")
    with pytest.raises(
        InputError,
        match=r"1,408 annotations of 1,302 trajectories of 351 tasks \(1,290 with a majority, "
        r"12 ties, success rate 0\.271\)",
    ):
        import_corpus(root, name="arb")
