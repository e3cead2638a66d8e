import sys
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import detect_format, import_corpus
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader, write_json
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
    assert (run.task_id, run.agent) == ("sums/4", "maker/model-x react")
    assert (run.attempt, run.outcome) == (0, 1)
    assert run.instruction == "What is 4 + 1?" and run.trajectory_id.endswith("/4/1")
    assert run.steps == (
        Step('I add.\nLet me see.\ncalc({"sum": "4+1"})', "tool calc: two"),
        Step("It is 41 in epoch 1.", ""),
    )


def test_epochs_are_attempts_whatever_the_order_in_the_archive(tmp_path: Path) -> None:
    order = ((10, 2), (9, 1), (10, 1), (9, 2))
    samples = [sample(number, "C" if epoch == 2 else "I", epoch) for number, epoch in order]
    runs = from_frame(read(log(tmp_path, *samples)).frame)
    assert [(run.task_id, run.attempt, run.outcome) for run in runs] == [
        (task, epoch, epoch) for task in ("sums/10", "sums/9") for epoch in (0, 1)
    ]


@pytest.mark.parametrize("method", [STORED, DEFLATED, ZSTD])
def test_every_compression_gives_the_same_runs(tmp_path: Path, method: int) -> None:
    samples = [sample(1), sample(2, "I")]
    path = write_json(tmp_path / "log.json", header() | {"samples": samples})
    packed = read(log(tmp_path / "zip", *samples, method=method)).frame
    assert packed[COLUMNS].equals(read(path).frame[COLUMNS])
    assert detect_format([tmp_path / "zip"]) == detect_format([path]) == "inspect"


@pytest.mark.parametrize(
    ("value", "options", "outcome"),
    [
        ("C", {}, 1),
        ("P", {"threshold": 0.5}, 1),
        ("P", {"no_label": "P"}, None),
        ({"right": 1}, {"scorer": "match"}, 1),
        ({"right": 1, "fast": 0}, {"scorer": "match/right"}, 1),
        ({"right": 1, "fast": 0}, {"scorer": "match/slow"}, None),
        ("I", {"scorer": "match/right"}, 0),
    ],
)
def test_scores(tmp_path: Path, value: Any, options: dict[str, Any], outcome: int | None) -> None:
    imported = read(log(tmp_path, sample(1, value), sample(2)), **options)
    assert imported.frame["outcome"].tolist() == ([1] if outcome is None else [outcome, 1])
    assert imported.dropped == ({"no_label": 1} if outcome is None else {})


@pytest.mark.parametrize(
    ("scores", "options", "words"),
    [
        ({"a": {"value": 1}, "b": {"value": 0}}, {}, r"\(a, b\)\. Name one with --option scorer="),
        ({"a": {"value": {"x": 1, "y": 0}}}, {"scorer": "a"}, r"\(a/x, a/y\)\. Name one"),
        ({"a": {"value": 1}}, {"threshold": "high"}, r"threshold is 'high'\. Give a number"),
        ({"a": {"value": 1}}, {"scorer": "c"}, r"1_epoch_1\.json has no outcome 'c', only a\."),
    ],
)
def test_what_the_options_must_decide(
    tmp_path: Path, scores: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(log(tmp_path, sample(1, scores=scores)), **options)


def test_odd_inputs(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Which?"}, {"type": "image", "image": "data:image/png"}]
    chosen = sample(
        1,
        input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}],
        choices=["red", "blue"],
        messages=[],
        output={"choices": [{"message": {"role": "assistant", "content": "B"}}]},
    )
    late = {"type": "timeout", "message": "too slow"}
    failing = [{"role": "tool", "function": "f", "content": "", "error": late}]
    runs = from_frame(read(log(tmp_path, chosen, sample(2, messages=failing))).frame)
    assert runs[0].instruction == "Which?\n(A) red\n(B) blue" and runs[0].steps == (Step("B", ""),)
    assert runs[1].steps[0].observation == "tool f: error: too slow"


def test_logs_that_did_not_end_well(tmp_path: Path) -> None:
    write(tmp_path / "logs")
    imported = read(tmp_path / "logs")
    assert imported.notes["logs of evaluations that have not ended"] == 1
    assert imported.notes["logs of evaluations that failed"] == 1
    whole = eval_bytes(header(), [sample(1)])
    for data, words in (
        (whole[:-30], r"a\.eval is not a complete zip archive"),
        (zip_bytes({"a.json": b"{}"}), r"a\.eval is a zip archive without header\.json"),
        (eval_bytes(header(), []), r"a\.eval has no sample"),
    ):
        with pytest.raises(InputError, match=words):
            import_corpus(write_eval(tmp_path / "a.eval", data), name="c")


@pytest.mark.parametrize("name", ["samples/1_epoch_1.json", "elsewhere"])
def test_a_log_that_unpacks_to_too_much_is_refused_before_it_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = eval_bytes(header(), [sample(1)], **{name: "x" * (2 << 20)})
    monkeypatch.setattr("certify_assets.corpora.formats.inspect.FILE_BYTES", 1 << 20)
    with pytest.raises(InputError, match="the limit is 1,048,576"):
        read(write_eval(tmp_path / "bomb.eval", data))


def test_a_broken_sample_and_a_broken_log_cost_themselves(tmp_path: Path) -> None:
    broken = [sample(1), sample(2, messages="none"), sample(3)]
    for name, data in {
        "a": eval_bytes(header(), broken, ZSTD),
        "b": eval_bytes({"status": "success", "eval": {}}, [sample(4)]),
        "c": eval_bytes(header("other"), [sample(5)])[:-30],
        "d": eval_bytes(header("last"), [sample(6)]),
    }.items():
        write_eval(tmp_path / f"{name}.eval", data)
    imported = read(tmp_path)
    assert sorted(imported.frame["task_id"]) == ["last/6", "sums/1", "sums/3"]
    assert imported.dropped == {"file_unreadable": 2, "unreadable_record": 1}
    said = "samples/2_epoch_1.json cannot be used: ValidationError"
    assert said in imported.examples["unreadable_record"]


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
