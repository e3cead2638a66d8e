"""Inspect Scout: results of a real scan as a score table, and a validation file that it reads."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.formats.scout import read_scan, write_validation
from certify_assets.errors import InputError
from certify_assets.tables.run_labels import RunLabels
from certify_assets.tables.score_table import read_score_table
from certify_assets.tables.settings import ReadingOptions
from certify_assets_tests.corpora.inspect_logs import SAMPLES, evaluate

SCAN = """
import sys
from inspect_scout import Result, Scanner, Transcript, scan, scanner, transcripts_from, validation_set

@scanner(messages="all")
def confidence() -> Scanner[Transcript]:
    async def look(transcript: Transcript) -> Result:
        return Result(value=int(transcript.task_id.partition("-")[2]) / 100, explanation="by number")
    return look

@scanner(messages="all")
def accepted() -> Scanner[Transcript]:
    async def look(transcript: Transcript) -> Result:
        return Result(value=transcript.task_id.endswith("1"))
    return look

if __name__ == "__main__":
    known = {"accepted": validation_set(name) for name in sys.argv[1:]}
    found = scan(
        [confidence(), accepted()], transcripts=transcripts_from("logs"), scans="scans",
        validation=known or None, display="plain",
    )
    assert found.complete
    print(found.location)
"""


def scanned(folder: Path, *validation: str) -> Path:
    """Scan the logs of a folder with the real package; return the folder of the results."""
    (folder / "scan.py").write_text(SCAN, "utf-8")
    done = subprocess.run(
        [sys.executable, "scan.py", *validation],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder / done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_scan_is_a_score_table_and_takes_its_labels_back(tmp_path: Path) -> None:
    pytest.importorskip("inspect_scout", reason="needs inspect_scout")
    evaluate(tmp_path)
    frame = read_scan(scanned(tmp_path))
    assert sorted(frame.columns) == sorted(
        ["trajectory_id", "task_id", "agent", "transcript_success", "confidence", "accepted"]
    )
    assert len(frame) == 2 * SAMPLES and frame["trajectory_id"].is_unique
    assert set(frame["agent"]) == {"mockllm/model"}
    numbers = [int(name.removeprefix("sums/sum-")) for name in frame["task_id"]]
    assert frame["confidence"].tolist() == [number / 100 for number in numbers]
    assert frame["accepted"].tolist() == [float(number % 10 == 1) for number in numbers]
    columns = {"score": "confidence", "outcome": "accepted"}
    table = read_score_table(frame, ReadingOptions(columns))
    assert table.labels.sum() == 2 * SAMPLES // 10
    # people fill in targets, Scout compares with them, and they come back as labels
    ids = frame["trajectory_id"].tolist()[:4]
    write_validation(path := tmp_path / "validation.csv", ids)
    assert path.read_text("utf-8").splitlines()[:2] == ["id,target", f"{ids[0]},"]
    path.write_text("\n".join(["id,target", *(f"{name},true" for name in ids)]), "utf-8")
    again = read_scan(scanned(tmp_path, path.name)).set_index("trajectory_id")
    assert again.loc[ids, "accepted_target"].tolist() == [1.0] * 4
    assert again["accepted_target"].isna().sum() == 2 * SAMPLES - 4
    labels = RunLabels.read(path, ReadingOptions({"id": "id", "outcome": "target"}))
    assert labels.outcomes == dict.fromkeys(ids, 1)


def test_what_is_no_scan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no _scan\.json"):
        read_scan(tmp_path)
    (tmp_path / "_scan.json").write_text(json.dumps({"scanners": {}}), "utf-8")
    with pytest.raises(InputError, match="no result of a whole transcript"):
        read_scan(tmp_path)
    (tmp_path / "judge.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        read_scan(tmp_path)


def scan_of(folder: Path, changed: dict[str, object], name: str = "judge") -> Path:
    """Write the results of a scanner on one transcript."""
    pytest.importorskip("pyarrow")
    row = {
        "transcript_id": "u1",
        "transcript_task_set": "sums",
        "transcript_task_id": "1",
        "transcript_model": "m",
        "transcript_success": True,
        "input_type": "transcript",
        "value": "0.5",
        "value_type": "number",
        "validation_target": None,
    }
    (folder / "_scan.json").write_text("{}", "utf-8")
    pd.DataFrame([row | changed]).to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize(
    ("changed", "column", "value"),
    [
        ({"value": True, "value_type": "boolean"}, "judge", 1.0),
        ({"transcript_success": "yes"}, "transcript_success", "yes"),
        ({"validation_target": "1" + 400 * "0"}, "judge_target", math.inf),
        ({"validation_target": 100_000 * "["}, "judge_target", None),
    ],
)
def test_odd_values_of_a_scan_are_left_to_the_table(
    tmp_path: Path, changed: dict[str, object], column: str, value: object
) -> None:
    assert read_scan(scan_of(tmp_path, changed))[column].tolist() == [value]


def test_a_scanner_with_the_name_of_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Give it another name"):
        read_scan(scan_of(tmp_path, {}, "agent"))
