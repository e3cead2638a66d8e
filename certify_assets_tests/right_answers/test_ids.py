"""One name in two spellings is no second task, in tables, pools, corpora and labels."""

import json
from pathlib import Path

import pandas as pd
import pytest

from certify_assets import certify
from certify_assets.errors import InputError
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.paths import shared_data

# of one name each; none of them may count as another task
SPELLINGS = {
    "point": ("7", "7.0"),
    "exponent": ("100000", "1e+05"),
    "around": ("a", "a "),
    "inner": ("fix bug", "fix  bug"),
    "no_break": ("fix bug", "fix\u00a0bug"),
    "zero_width": ("task", "ta\u200bsk"),
    "joiner": ("task", "task\u200d"),
    "mark": ("task", "\ufefftask"),
    "soft_hyphen": ("task", "ta\u00adsk"),
    "direction": ("task", "\u200ftask"),
    "composed": ("caf\u00e9", "cafe\u0301"),
    "wide": ("A1", "\uff21\uff11"),
}
ALIKE = {
    "case": ("Task-1", "task-1"),
    "zeros": ("007", "7"),
    "zeros_inside": ("task-07", "task-7"),
    "hyphen": ("task-1", "task\u20111"),
    "dash": ("task-1", "task\u20131"),
    "underscore": ("task-1", "task_1"),
    "blank": ("task-1", "task 1"),
    "no_break_blank": ("task-1", "task\u00a01"),
}


def rows(one: str, other: str) -> pd.DataFrame:
    """Rows of 60 tasks; the first has its later attempts under another name."""
    found = score_rows(tasks=60, attempts=4, seed=3)
    names = found["task_id"].tolist()
    first = [place for place, name in enumerate(names) if name == names[0]]
    for place in first:
        names[place] = one if place in first[:2] else other
    return found.assign(task_id=names)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_two_spellings_of_one_task_are_refused(
    name: str, ending: str, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{ending}"
    frame = rows(*SPELLINGS[name])
    if ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        getattr(frame, f"to_{ending}")(path, index=False)
    refused = call(f"certificate {path}")
    assert refused.code == 2
    for spelling in SPELLINGS[name]:
        assert ascii(spelling).replace("  ", r"\x20\x20") in refused.err
    assert "row 3" in refused.err and "in row 1" in refused.err
    folded = call(f"certificate {path} --set ids=fold --json")
    assert folded.json["certificates"][0]["tasks"] == 60
    assert folded.json["certificates"][0]["provenance"] == {"ids": "fold"}


@pytest.mark.parametrize("name", ALIKE)
def test_names_that_look_alike_are_a_finding(name: str, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows(*ALIKE[name]).to_csv(path, index=False)
    found = call(f"certificate {path} --side reject --json").json
    said = next(one["message"] for one in found["findings"] if one["code"] == "similar_ids")
    assert found["tasks"] == 61 and "2 of 61 task names" in said
    assert all(ascii(spelling) in said for spelling in ALIKE[name])
    folded = call(f"certificate {path} --side reject --set ids=fold --json").json
    assert folded["tasks"] == 60
    assert all(one["code"] != "similar_ids" for one in folded["findings"])


def test_other_names_stay_other_tasks(call: Call, tmp_path: Path) -> None:
    names = ["1.1", "1.10", "0.5", "0.05", "a 1", "a1", "a.1", "-1", "x\u00e9", "xe", "70", "7"]
    frame = score_rows(tasks=len(names), attempts=4, seed=3)
    path = tmp_path / "a.csv"
    frame.assign(task_id=[name for name in names for _ in range(4)]).to_csv(path, index=False)
    found = call(f"certificate {path} --side reject --json").json
    assert found["tasks"] == len(names)
    assert all(one["code"] != "similar_ids" for one in found["findings"])


def test_folded_spellings_give_the_certificate_of_one(call: Call, tmp_path: Path) -> None:
    frame = score_rows(tasks=80, attempts=6, seed=3)
    names = [f"{place // 6}{'.0' * (place % 2)}" for place in range(len(frame))]
    frame.assign(task_id=names).to_csv(tmp_path / "mixed.csv", index=False)
    frame.assign(task_id=[name.removesuffix(".0") for name in names]).to_csv(
        tmp_path / "plain.csv", index=False
    )
    mixed = call(f"certificate {tmp_path}/mixed.csv --set ids=fold --json").json
    plain = call(f"certificate {tmp_path}/plain.csv --json").json
    for one, other in zip(mixed["certificates"], plain["certificates"], strict=True):
        assert other["tasks"] == 80
        assert one == {**other, "provenance": {"ids": "fold"}, "digest": one["digest"]}


@pytest.mark.parametrize("other", ["{}.0", "{} "])
@pytest.mark.parametrize("option", ["--pool ", "--procedure betting --set pilot="])
def test_a_pool_in_another_spelling_shares_its_tasks(
    option: str, other: str, call: Call, tmp_path: Path
) -> None:
    frame = score_rows(tasks=60, attempts=4, seed=3)
    names = [place // 4 for place in range(len(frame))]
    frame.assign(task_id=names).to_csv(tmp_path / "a.csv", index=False)
    pool = frame.assign(task_id=[other.format(name + 40) for name in names])
    pool.to_csv(tmp_path / "pool.csv", index=False)
    refused = call(f"certificate {tmp_path}/a.csv {option}{tmp_path}/pool.csv")
    assert refused.code == 2 and "shares 20 task(s)" in refused.err
    assert f"{other.format(40)!r} (there '40')" in refused.err


def test_runs_in_two_spellings_are_refused(call: Call, tmp_path: Path) -> None:
    frame = score_rows(tasks=60, attempts=4, seed=3)
    frame["trajectory_id"] = ["7", "7.0", *frame["trajectory_id"].tolist()[2:]]
    frame.to_csv(tmp_path / "a.csv", index=False)
    refused = call(f"certificate {tmp_path}/a.csv")
    assert refused.code == 2 and "'7.0' and '7' in row 1" in refused.err
    assert "give each run its own id" in refused.err


def test_arrays_and_frames_are_looked_at_alike() -> None:
    frame = rows("7", "7.0")
    with pytest.raises(InputError, match=r"'7.0' and '7' in row 1.* ids=fold"):
        certify(frame)
    assert certify(frame, ids="fold").reject.tasks == 60
    found = certify(frame["score"], frame["outcome"], frame["task_id"], side="reject")
    assert any(one["code"] == "similar_ids" for one in found.findings)


def write_runs(path: Path, *tasks: object) -> Path:
    lines = [
        {"task_id": task, "outcome": place % 2, "text": f"run {place} of the agent"}
        for place, task in enumerate(tasks)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_a_corpus_counts_one_task_once(call: Call, tmp_path: Path) -> None:
    def imported(name: str, *words: object) -> tuple[int, str, str]:
        root = ["--root", tmp_path / "root", "--name", name, "--json"]
        answer = call("corpus", "import", tmp_path / "runs.jsonl", *root, *words)
        return answer.code, answer.out, answer.err

    write_runs(tmp_path / "runs.jsonl", 7, 7.0, "b", "c")
    code, out, _ = imported("numbers")
    assert code == 0 and json.loads(out)["tasks"] == 3
    write_runs(tmp_path / "runs.jsonl", "7", "7.0", "b", "c")
    code, _, err = imported("texts")
    assert code == 2 and "'7.0' is '7' in" in err and "ids=fold" in err
    code, out, _ = imported("folded", "--option", "ids=fold")
    assert code == 0 and json.loads(out)["tasks"] == 3
    write_runs(tmp_path / "runs.jsonl", "Task", "task", "b", "c")
    code, out, err = imported("alike")
    assert code == 0 and json.loads(out)["tasks"] == 4
    assert "similar_ids" in out + err


def test_reported_tables(call: Call) -> None:
    folder = shared_data("reported")
    both = [("reject", 0.6491, 0.671), ("release", 0.6276, 0.333)]
    for words in ("base.csv", "mixed_ids.csv --set ids=fold"):
        found = call(f"certificate {folder}/{words} --json").json["certificates"]
        for item, (side, threshold, coverage) in zip(found, both, strict=True):
            assert (item["side"], item["tasks"], item["threshold"]) == (side, 80, threshold)
            assert round(item["coverage"], 3) == coverage
    for words, said in (
        ("mixed_ids.csv", "'0.0' and '0' in row 1"),
        ("f5_ids.csv", "'7.0' and '7' in row 1"),
        ("f5_space.csv", "'7' and ' 7' in row 1"),
        (f"num_hist.csv --pool {folder}/num_later_float.csv", "pool shares 20 task(s)"),
    ):
        refused = call(f"certificate {folder}/{words}")
        assert refused.code == 2 and said in refused.err
