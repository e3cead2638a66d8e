"""Certificates in Inspect AI: its logs as score tables, the scorer, and verdicts written back."""

import asyncio
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from certify_assets.corpora.judged import read_judged
from certify_assets.errors import InputError
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.inspect_logs import SAMPLES, evaluate, inspect

pytest.importorskip("inspect_ai", reason="needs the extra inspect")


def scored(path: Path) -> tuple[Mapping[str, Any], dict[str, float]]:
    """Return the score `certified` of every sample by its uuid, and its metrics."""
    from inspect_ai.log import read_eval_log, recompute_metrics

    log = read_eval_log(path)
    results = [log.results.scores]
    # an edit of any score makes Inspect compute all metrics again
    recompute_metrics(log)
    for scores in (*results, log.results.scores):
        assert [one.name for one in scores] == ["includes", "judge", "certified"]
        results.append({name: one.value for name, one in scores[-1].metrics.items()})
    assert results[-1] == results[-2]
    return {one.uuid: one.scores["certified"] for one in log.samples}, results[-1]


@pytest.mark.slow
def test_scorer_and_command_decide_a_real_log_alike(call: Call, tmp_path: Path) -> None:
    log, issued = evaluate(tmp_path), tmp_path / "certificate.json"
    frame = read_judged([log]).source.set_index("trajectory_id")
    assert len(frame) == 2 * SAMPLES and frame.index.is_unique
    assert set(frame["task_id"]) == {f"sums/sum-{number}" for number in range(SAMPLES)}
    # as Inspect View lists them
    assert f"{log.name} sample sum-3 epoch 2" in set(frame["link"])
    named = "score=judge,outcome=includes"
    assert call("certificate", log, "--columns", named, "--out", issued).code == 0
    documents = json.loads(issued.read_text("utf-8"))["certificates"]
    limits = {one["side"]: one["threshold"] for one in documents}
    sides = {
        run: ("I" if score <= limits["reject"] else "")
        + ("C" if score >= limits["release"] else "")
        for run, score in frame["judge"].items()
    }
    decided = sum(len(side) == 1 for side in sides.values())
    assert SAMPLES < decided < 2 * SAMPLES

    own, edited, output = (tmp_path / f"{name}.eval" for name in ("own", "edited", "output"))
    shutil.copy(log, own)
    before = log.read_bytes()
    assert call("decide", issued, log, "--decisions", edited).code == 0
    assert log.read_bytes() == before, "a copy takes the verdicts"
    answer = call("decide", issued, own, "--json")
    counts = {"log": str(own), "written": 2 * SAMPLES, "unchanged": 0}
    assert answer.json["inspect"] == counts
    once = own.read_bytes()
    answer = call("decide", issued, own, "--json")
    assert answer.json["inspect"] == {**counts, "written": 0, "unchanged": 2 * SAMPLES}
    assert own.read_bytes() == once
    printed = inspect(
        *(tmp_path, "score", log, "--scorer", "certify/certified", "-S", f"certificate={issued}"),
        *("--action", "append", "--output-file", output.name),
    )
    assert "decided_share" in printed
    for path in (edited, own, output):
        assert list(read_judged([path]).kinds) == ["includes", "judge"], "verdicts are no truth"
        scores, metrics = scored(path)
        share = pytest.approx(decided / len(sides))
        assert metrics == {"decided_share": share, "certified_error_bound": 0.1}
        for run, side in sides.items():
            value, reason = scores[run].value, scores[run].reason
            if len(side) == 1:
                assert (value, reason) == ({"certified": side, "decided": 1}, None)
            else:
                assert math.isnan(value["certified"]) and value["decided"] == 0
                assert reason == ("overlap" if side else "middle")
            hashes = scores[run].metadata["certificate_sha256"].split(";")
            if path != output:
                (edit,) = scores[run].history
                assert edit.provenance.author.startswith("certify_assets ")
                assert edit.provenance.metadata["certificate_sha256"] == hashes


def test_scorer_reads_scores_as_a_table_does(call: Call, tmp_path: Path) -> None:
    from inspect_ai.scorer import Score

    from certify_assets.inspect_scorer import certified

    frame, issued = score_rows(tasks=80, attempts=6, seed=3), tmp_path / "certificate.json"
    frame.to_csv(tmp_path / "scores.csv", index=False)
    assert call("certificate", tmp_path / "scores.csv", "--out", issued).code == 0

    def scored(value: Any, **options: Any) -> Any:
        scores = {"judge": Score(value=value), "certified": Score(value="C")}
        state: Any = SimpleNamespace(sample_id=1, scores=scores)
        target: Any = None
        return asyncio.run(certified(str(issued), **options)(state, target))

    low, high = float(frame["score"].min()), float(frame["score"].max())
    assert scored(low, judge="judge").value == {"certified": "I", "decided": 1}
    found = scored({"sure": high, "other": low}, judge="judge/sure")
    assert found.metadata["decision"] in ("release", "human")
    assert scored(math.nan, judge="judge").reason == "unscored"
    with pytest.raises(InputError, match=r"no score 'score'; it has judge"):
        scored(low)
    with pytest.raises(InputError, match="does not exist"):
        certified(str(tmp_path / "none.json"))


def json_log(path: Path, judges: tuple[str, ...] = ("judge",)) -> Path:
    """Write a log in JSON with the scorers `outcome` and `match`, which agree, and judges."""
    samples = [
        {
            "id": row.task_id,
            "epoch": place % 6 + 1,
            "uuid": f"sample-{place}",
            "input": "Go.",
            "target": "",
            "scores": {name: {"value": row.score} for name in judges}
            | {name: {"value": "IC"[row.outcome]} for name in ("outcome", "match")},
        }
        for place, row in enumerate(score_rows(tasks=80, attempts=6, seed=3).itertuples())
    ]
    about = {"created": "2026-03-01T10:00:00+00:00", "task": "t", "model": "mockllm/model"}
    log = {"version": 2, "status": "success", "eval": {**about, "dataset": {}, "config": {}}}
    return write_json(path, {**log, "samples": samples})


def test_verdicts_are_written_into_logs_in_json(call: Call, tmp_path: Path) -> None:
    log, copy, issued = (tmp_path / f"{name}.json" for name in ("log", "copy", "certificate"))
    json_log(log)
    assert call("certificate", log, "--truth", "match", "--out", issued).code == 0
    before = log.read_bytes()
    table = ("--decisions", tmp_path / "decisions.csv")
    assert "inspect" not in call("decide", issued, log, *table, "--json").json
    written = call("decide", issued, log, "--decisions", copy, "--json").json["inspect"]
    assert written == {"log": str(copy), "written": 480, "unchanged": 0}
    assert log.read_bytes() == before
    assert call("decide", issued, copy, "--json").json["inspect"]["unchanged"] == 480
    assert call("decide", issued, log, "--json").json["inspect"]["written"] == 480
    assert list(read_judged([log]).kinds) == ["judge", "match", "outcome"]


def test_later_commands_name_judge_and_truth_only_where_they_must(
    call: Call, tmp_path: Path
) -> None:
    log, issued = json_log(tmp_path / "log.json"), tmp_path / "certificate.json"
    asked = call("certificate", log)
    assert asked.code == 2 and "Name one with --truth NAME" in asked.err
    assert call("certificate", log, "--truth", "outcome", "--out", issued).code == 0
    # `outcome` is what most tables call it, and no certificate keeps that name
    assert call("verify", issued, log).code == 0
    other = json_log(tmp_path / "other.json", ("first", "second"))
    scores = score_rows(tasks=80, attempts=6, seed=3)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    assert call("certificate", tmp_path / "scores.csv", "--out", issued).code == 0
    for command, option in (("audit", "--judge NAME"), ("decide", "--columns score=NAME")):
        asked = call(command, issued, other)
        assert asked.code == 2 and f"Name one with {option}." in asked.err
    named = ("--judge", "first", "--truth", "match", "--json")
    # the tasks of the log have other names, so that it counts as new
    assert {one["verdict"] for one in call("audit", issued, other, *named).json["audits"]} == {
        "PASS"
    }
    assert call("monitor", issued, other, *named).json["alarm"] is False


def test_what_is_no_log_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "broken.eval").write_bytes(b"PK")
    answer = call("certificate", tmp_path / "broken.eval")
    assert answer.code == 2 and "is not a complete zip archive" in answer.err
    answer = call("decide", tmp_path / "none.json", tmp_path / "broken.eval")
    assert answer.code == 2 and "none.json" in answer.err
