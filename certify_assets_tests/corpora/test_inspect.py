import json
import sys
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import detect_format, import_corpus
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader
from certify_assets_tests.corpora.eval_files import (
    DEFLATED,
    STORED,
    ZSTD,
    eval_bytes,
    header,
    sample,
    write_eval,
    zip_bytes,
)
from certify_assets_tests.corpora.formats.inspect import write
from certify_assets_tests.paths import shared_data

COLUMNS = ["task_id", "agent", "attempt", "instruction", "steps", "outcome"]

read = reader("inspect")


def log(path: Path, *samples: dict[str, Any], method: int = DEFLATED, **about: Any) -> Path:
    return write_eval(path / "log.eval", eval_bytes(header(**about), list(samples), method))


def test_a_sample_becomes_a_run(tmp_path: Path) -> None:
    (run,) = from_frame(read(log(tmp_path, sample(4), solver="react")).frame)
    assert run.task_id == "sums/4"
    assert run.agent == "maker/model-x react"
    assert run.attempt == 0
    assert run.outcome == 1
    assert run.instruction == "What is 4 + 1?" and run.trajectory_id.endswith("/4/1")
    assert run.steps == (
        Step('I add.\nLet me see.\ncalc({"sum": "4+1"})', "tool calc: two"),
        Step("It is 41 in epoch 1.", ""),
    )


def test_epochs_are_attempts_whatever_the_order_in_the_archive(tmp_path: Path) -> None:
    samples = [
        sample(identity, "C" if epoch == 2 else "I", epoch)
        for identity, epoch in ((10, 2), (9, 1), (10, 1), (9, 2))
    ]
    frame = read(log(tmp_path, *samples)).frame
    assert frame[["task_id", "attempt", "outcome"]].to_numpy().tolist() == [
        ["sums/10", 0, 0],
        ["sums/10", 1, 1],
        ["sums/9", 0, 0],
        ["sums/9", 1, 1],
    ]


@pytest.mark.parametrize("method", [STORED, DEFLATED, ZSTD])
def test_every_compression_gives_the_same_runs(tmp_path: Path, method: int) -> None:
    samples = [sample(1), sample(2, "I")]
    document = json.dumps(header() | {"samples": samples})
    (tmp_path / "log.json").write_text(document, "utf-8")
    assert (
        read(log(tmp_path / "zip", *samples, method=method))
        .frame[COLUMNS]
        .equals(read(tmp_path / "log.json").frame[COLUMNS])
    )
    assert detect_format([tmp_path / "zip"]) == detect_format([tmp_path / "log.json"]) == "inspect"


@pytest.mark.parametrize(
    ("value", "options", "outcome"),
    [
        ("C", {}, 1),
        ("I", {}, 0),
        ("N", {}, 0),
        ("P", {}, 0),
        ("P", {"threshold": 0.5}, 1),
        ("P", {"success": ["C", "P"]}, 1),
        (True, {}, 1),
        (0, {}, 0),
        (0.7, {}, 0),
        (0.7, {"threshold": "0.7"}, 1),
        (7, {"threshold": 5}, 1),
        ("yes", {}, 1),
        ("0.0", {}, 0),
        ({"right": 1, "fast": 0}, {"value_key": "right"}, 1),
        ({"right": "I"}, {}, 0),
    ],
)
def test_scores(tmp_path: Path, value: Any, options: dict[str, Any], outcome: int) -> None:
    assert read(log(tmp_path, sample(1, value)), **options).frame["outcome"].tolist() == [outcome]


@pytest.mark.parametrize(
    ("value", "options", "reason"),
    [
        ("P", {"no_label": "P"}, "no_label"),
        (float("nan"), {}, "no_label"),
        ("nan", {}, "no_label"),
        ({"a": 1}, {"value_key": "b"}, "no_label"),
    ],
)
def test_scores_that_are_no_outcome(
    tmp_path: Path, value: Any, options: dict[str, Any], reason: str
) -> None:
    assert read(log(tmp_path, sample(1, value), sample(2)), **options).dropped == {reason: 1}


@pytest.mark.parametrize(
    ("scores", "options", "words"),
    [
        (
            {"a": {"value": 1}, "b": {"value": 0}},
            {},
            r"has 2 scores \(a, b\); name the one that counts with the option scorer",
        ),
        (
            {"a": {"value": {"x": 1, "y": 0}}},
            {},
            r"has 2 scores \(x, y\); name the one that counts with the option value_key",
        ),
        (
            {"a": {"value": 1}},
            {"threshold": "high"},
            r"threshold is 'high'\. Give a number",
        ),
    ],
)
def test_what_the_options_must_decide(
    tmp_path: Path, scores: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(log(tmp_path, sample(1, scores=scores)), **options)


def test_the_scorer_is_an_option_and_undecided_scores_are_noted(tmp_path: Path) -> None:
    path = log(tmp_path, sample(1, scores={"a": {"value": 1}, "b": {"value": 0.5}}))
    assert read(path, scorer="a").frame["outcome"].tolist() == [1]
    assert read(path, scorer="b").frame["outcome"].tolist() == [0]
    assert [note for note in read(path, scorer="b").notes if "between 0 and 1" in note]
    with pytest.raises(
        InputError, match=r"samples/1_epoch_1\.json has no score of 'c', only of a, b\."
    ):
        read(path, scorer="c")
    assert read(path, scorer="c", keep_unlabelled=True).frame["outcome"].isna().tolist() == [True]


def test_odd_inputs(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Which?"},
                {"type": "image", "image": "data:image/png;base64,AA=="},
            ],
        },
    ]
    failing = [
        {
            "role": "tool",
            "function": "f",
            "content": "",
            "error": {"type": "timeout", "message": "too slow"},
        }
    ]
    chosen = sample(
        1,
        input=chat,
        choices=["red", "blue"],
        messages=[],
        output={"choices": [{"message": {"role": "assistant", "content": "B"}}]},
    )
    runs = from_frame(read(log(tmp_path, chosen, sample(2, messages=failing))).frame)
    assert runs[0].instruction == "Which?\n(A) red\n(B) blue" and runs[0].steps == (Step("B", ""),)
    assert runs[1].steps[0].observation == "tool f: error: too slow"


def test_json_of_another_kind_is_of_another_format(tmp_path: Path) -> None:
    log(tmp_path, sample(4))
    (tmp_path / "SOURCE.json").write_text("[1]", "utf-8")
    (tmp_path / "cut.json").write_text('{"eval": ', "utf-8")
    assert read(tmp_path).dropped == {"file_other_format": 1, "file_unreadable": 1}


def test_logs_that_did_not_end_well(tmp_path: Path) -> None:
    write(tmp_path / "logs")
    imported = read(tmp_path / "logs")
    assert imported.notes["logs of evaluations that have not ended"] == 1
    assert imported.notes["logs of evaluations that failed"] == 1
    cut = write_eval(tmp_path / "cut.eval", eval_bytes(header(), [sample(1)])[:-30])
    with pytest.raises(
        InputError, match=r"cut\.eval is not a whole zip archive .* wait for its end"
    ):
        read(cut)
    with pytest.raises(InputError, match=r"cut\.eval is not a whole zip archive"):
        detect_format([cut])
    with pytest.raises(InputError, match=r"other\.eval is a zip archive without header\.json"):
        detect_format([write_eval(tmp_path / "other.eval", zip_bytes({"a.json": b"{}"}))])
    with pytest.raises(InputError, match=r"empty\.eval has no sample"):
        read(write_eval(tmp_path / "empty.eval", eval_bytes(header(), [])))


@pytest.mark.parametrize("name", ["samples/1_epoch_1.json", "elsewhere"])
def test_a_log_that_unpacks_to_too_much_is_refused_before_it_is_read(
    tmp_path: Path, name: str
) -> None:
    data = eval_bytes(header(), [sample(1)], **{name: "x" * (2 << 20)})
    with pytest.raises(InputError, match="unpacks to more than the limit of 1,048,576"):
        read(write_eval(tmp_path / "bomb.eval", data), max_file_mb=1)


def test_a_broken_sample_and_a_broken_log_cost_themselves(tmp_path: Path) -> None:
    data = eval_bytes(header(), [sample(1), sample(2, messages="none"), sample(3)], ZSTD)
    write_eval(tmp_path / "logs" / "a.eval", data)
    write_eval(
        tmp_path / "logs" / "b.eval", eval_bytes({"status": "success", "eval": {}}, [sample(4)])
    )
    write_eval(tmp_path / "logs" / "c.eval", eval_bytes(header("other"), [sample(5)])[:-30])
    write_eval(tmp_path / "logs" / "d.eval", eval_bytes(header("last"), [sample(6)]))
    imported = read(tmp_path / "logs")
    assert sorted(imported.frame["task_id"]) == ["last/6", "sums/1", "sums/3"]
    assert imported.dropped == {"file_unreadable": 2, "unreadable_record": 1}
    assert (
        "samples/2_epoch_1.json cannot be used: ValidationError"
        in imported.examples["unreadable_record"]
    )


def test_logs_that_other_programs_wrote_may_lack_what_says_nothing_of_a_run(
    tmp_path: Path,
) -> None:
    document = header() | {"samples": [sample(1), sample(2, error={"message": "boom"})]}
    del document["eval"]["created"]
    (tmp_path / "log.json").write_text(json.dumps(document), "utf-8")
    imported = read(tmp_path)
    assert list(imported.frame["task_id"]) == ["sums/1"]
    assert imported.dropped == {"infrastructure_error": 1}


def test_without_inspect_ai_logs_are_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(InputError, match=r"pip install 'certify_assets\[inspect\]'"):
        read(log(tmp_path, sample(1)))


READ = {
    "TransluceAI+docent.raw.tar.gz": (15, 9, {}),
    "UKGovernmentBEIS+inspect_ai.raw.tar.gz": (
        22,
        15,
        {"duplicate": 3, "file_other_format": 10, "no_label": 11},
    ),
    "meridianlabs-ai+inspect_scout.raw.tar.gz": (216, 157, {}),
}


@pytest.mark.parametrize("name", sorted(READ))
def test_the_published_logs(name: str) -> None:
    imported = import_corpus(shared_data("inspect_logs", name), name="inspect")
    assert (len(imported.frame), int(imported.frame["outcome"].sum()), imported.dropped) == READ[
        name
    ]
