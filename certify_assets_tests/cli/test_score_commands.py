"""Commands on score tables: arguments in, exit code, stdout and stderr out."""

import json
from pathlib import Path

import pandas as pd
import pytest

from certify_assets_tests.builders import CERTIFICATE_KEYS, score_rows
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def certificate(call: Call, scores: Path, tmp_path: Path) -> Path:
    assert call(f"certificate {scores} --side reject --json --out {tmp_path}/c.json").code == 0
    return tmp_path / "c.json"


def test_a_certificate_has_every_key_of_the_contract(call: Call, scores: Path) -> None:
    answer = call(f"certificate {scores} --side reject --json")
    assert answer.code == 0 and set(answer.json) >= CERTIFICATE_KEYS
    assert answer.json["certified"] and answer.json["procedure"] == "pseudo_task"
    # the rows of calibration alone
    assert answer.json["tasks"] == 80 and answer.json["inputs"]["rows"] == 480
    assert call(f"certificate {scores} --side reject --json").out == answer.out


def test_nothing_certified_is_exit_three_and_people_decide(call: Call, tmp_path: Path) -> None:
    few, kept = tmp_path / "few.csv", tmp_path / "c.json"
    score_rows(tasks=6, attempts=3).to_csv(few, index=False)
    answer = call(f"certificate {few} --side reject --json --out {kept}")
    assert answer.code == 3 and not answer.json["certified"]
    assert answer.json["threshold"] is None and answer.json["coverage"] == 0.0
    assert all({"code", "message"} == set(finding) for finding in answer.json["findings"])
    decided = call(f"decide {kept} {few} --side reject --json")
    assert decided.code == 3 and decided.json["human"] == 18
    assert decided.json["reasons"] == {"not_certified": 18}


def test_formats_and_row_order_do_not_matter(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    shuffled = pd.read_csv(scores).sample(frac=1.0, random_state=1)
    shuffled.to_parquet(tmp_path / "again.parquet", index=False)
    assert call(f"verify {certificate} {tmp_path}/again.parquet").code == 0


def test_verify_refuses_forged_documents_and_other_data(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    document, forged = json.loads(certificate.read_text("utf-8")), tmp_path / "forged.json"
    for key, value in (("coverage", 0.99), ("threshold", 9.0), ("assumptions", [])):
        forged.write_text(json.dumps({**document, key: value}), "utf-8")
        answer = call(f"verify {forged} {scores} --json")
        assert answer.code == 3 and answer.err
        assert not answer.json["verified"] and answer.json["difference"]
    frame = pd.read_csv(scores)
    frame.loc[frame.index[frame["split"] == "cal"][0], "outcome"] ^= 1
    frame.to_csv(tmp_path / "other.csv", index=False)
    assert call(f"verify {certificate} {tmp_path}/other.csv").code == 3


def test_groups_of_tasks_are_resampled_instead_of_tasks(call: Call, tmp_path: Path) -> None:
    frame = score_rows(tasks=80, attempts=6)
    template = pd.factorize(frame["task_id"])[0] // 4
    table, as_tasks, plain = (tmp_path / f"{name}.csv" for name in ("groups", "tasks", "plain"))
    frame.assign(template=template).to_csv(table, index=False)
    frame.assign(task_id=template).to_csv(as_tasks, index=False)
    frame.to_csv(plain, index=False)
    asked = "--side reject --alpha .2 --json"
    kept = tmp_path / "c.json"
    found = call(f"certificate {table} --columns group=template {asked} --out {kept}")
    same = call(f"certificate {as_tasks} {asked}").json
    assert "80 tasks in 20 groups of 'template'" in found.err
    assert {key: found.json[key] for key in ("tasks", "threshold", "inputs")} == {
        key: same[key] for key in ("tasks", "threshold", "inputs")
    }
    assert "grouped" in [finding["code"] for finding in found.json["findings"]]
    assert call(f"verify {kept} {table}").code == 0
    # decisions need no groups, and what is compared with the certificate does
    assert call(f"decide {kept} {plain}").code == 0
    refused = call(f"audit {kept} {plain}")
    assert refused.code == 2 and "no column 'group'" in refused.err
    call(f"certificate {plain} {asked} --out {kept}")
    refused = call(f"verify {kept} {table} --columns group=template")
    assert refused.code == 2 and "group=template contradicts" in refused.err
    assert call(f"verify {kept} {table}").code == 0
    frame.assign(group=range(len(frame))).to_csv(table, index=False)
    refused = call(f"certificate {table} {asked}")
    assert refused.code == 2 and "Give each task one group." in refused.err


def test_audit_uses_test_and_names_its_verdict(call: Call, scores: Path, certificate: Path) -> None:
    answer = call(f"audit {certificate} {scores} --json")
    assert answer.code == 0 and answer.json["verdict"] in {"PASS", "WARN"}
    keys = {"realized_error", "lower_bound", "coverage", "covered_tasks", "certificate_sha256"}
    assert keys <= set(answer.json)


def test_audit_writes_the_decided_runs_whose_label_says_otherwise(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    both, other, out = (tmp_path / name for name in ("both.json", "other.csv", "wrong.csv"))
    assert call("certificate", scores, "--alpha", ".2", "--out", both).code == 0
    table = pd.read_csv(scores)
    table["outcome"] = table["outcome"].where(table.index % 3 > 0, 1 - table["outcome"])
    table.to_csv(other, index=False)
    answer = call("audit", both, other, "--disagreements", out, "--json")
    worst = next(one for one in answer.json["audits"] if one["verdict"] == answer.json["verdict"])
    assert {**answer.json, **worst} == answer.json, "the keys of one audit, of the side it names"
    found, rows = answer.json["disagreements"], pd.read_csv(out)
    assert found["runs"] == len(rows) > 0
    cells = {name: found["confusion"][name] for name in ("reject", "release")}
    assert cells["reject"]["success"] + cells["release"]["failure"] == len(rows)
    assert set(zip(rows["decision"], rows["label"], strict=True)) <= {
        ("reject", "success"),
        ("release", "failure"),
    }
    # within a side the surest decision is the first
    failed = rows[rows["decision"] == "reject"]["score"]
    passed = rows[rows["decision"] == "release"]["score"]
    assert failed.is_monotonic_increasing and passed.is_monotonic_decreasing
    shown = call("audit", both, scores, "--disagreements", tmp_path / "again.csv")
    assert (
        "Decisions and labels" in shown.out
        and "disagreements" not in call("audit", both, scores, "--json").json
    )
    assert call("audit", both, scores, "--disagreements", scores).code == 2
    assert len(shown.out.splitlines()) <= 20


def test_resample_exactly_and_by_draws(call: Call, scores: Path) -> None:
    asked = f"resample {scores} --threshold 0 --split test --json"
    exact, drawn = (call(f"{asked} --draws {draws}").json for draws in ("exact", 3000))
    assert exact["draws"] == "exact" and drawn["draws"] == 3000
    # three standard errors of a share of 3,000 draws
    assert abs(exact["exceedance"] - drawn["exceedance"]) <= 3 * 0.5 / 3000**0.5


def test_decide_counts_and_writes_the_queue(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores).drop(columns="outcome")
    frame.loc[0, "score"] = None
    new, queue, decisions = (tmp_path / name for name in ("new.csv", "q.csv", "d.parquet"))
    frame.to_csv(new, index=False)
    asked = f"decide {certificate} {new} --queue {queue} --decisions {decisions} --json"
    answer = call(asked)
    found = answer.json
    assert answer.code == 0 and found["reject"] + found["release"] + found["human"] == len(frame)
    said = call(asked.removesuffix(" --json")).out
    assert f"wrote {decisions}: {len(frame)} runs with their decisions\n" in said
    assert f"wrote {queue}: {found['human']} runs to review\n" in said
    assert found["reasons"]["unscored"] == 1
    left, every = pd.read_csv(queue), pd.read_parquet(decisions)
    assert len(left) == found["human"] and set(left["decision"]) == {"human"}
    assert set(every["certificate_sha256"]) == {found["certificate_sha256"]}
    threshold = json.loads(certificate.read_text("utf-8"))["threshold"]
    assert (every.loc[every["decision"] == "reject", "score"] <= threshold).all()


def test_report_draws_what_verifies_and_nothing_else(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    page, forged = tmp_path / "page.html", tmp_path / "forged.json"
    drawn = call(f"report {certificate} {scores} --out {page} --json")
    assert drawn.code == 0 and drawn.json["audited"]
    html = page.read_text("utf-8")
    assert "<script" not in html
    page.unlink()
    document = json.loads(certificate.read_text("utf-8"))
    forged.write_text(json.dumps({**document, "coverage": 0.99}), "utf-8")
    assert call(f"report {forged} {scores} --out {page}").code in {2, 3} and not page.exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("certificate none.csv", "does not exist"),
        ("certificate {scores} --alpha 2", "alpha"),
        ("certificate {scores} --alpha x", "--alpha"),
        ("certificate {scores} --procedure magic", "magic"),
        ("certificate {scores} --columns score=nothing", "nothing"),
        ("certificate {scores} --out {scores}/nowhere/c.json", "nowhere"),
        ("certificate", "SCORES"),
        ("resample {scores}", "--threshold"),
        ("resample {scores} --threshold nan", "finite"),
        ("resample {scores} --threshold 0 --draws many", "draws"),
        ("nothing", "nothing"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_bad_usage_is_exit_two_and_one_sentence(
    call: Call, scores: Path, arguments: str, word: str, as_json: bool
) -> None:
    filled = arguments.format(scores=scores)
    answer = call(f"{filled} --json" if as_json else filled)
    assert answer.code == 2 and answer.out == ""
    assert word in answer.err and answer.err.count("\n") == 1


def test_a_judge_that_contradicts_itself_is_a_finding(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    table, limit = pd.read_csv(scores), json.loads(certificate.read_text("utf-8"))["threshold"]
    cal = table[table["split"] == "cal"].index
    again = table["score"].where(table.index.isin(cal[:50]) | (table["split"] == "test"))
    # seven of the fifty end up on the other side, and none of the rows of test
    again.loc[cal[:7]] = 2 * limit - table["score"][cal[:7]] + 1e-9
    twice, document = tmp_path / "twice.csv", tmp_path / "twice.json"
    table.assign(second=again).to_csv(twice, index=False)
    words = ("--side", "reject", "--columns", "again=second")
    issued = call("certificate", twice, *words, "--out", document, "--json").json
    (found,) = (item for item in issued["findings"] if item["code"] == "judge_flickers")
    assert "50 runs have a second score" in found["message"]
    assert "7 of them on this side (14.0 %)" in found["message"]
    assert call("verify", document, twice).code == 0
    assert call("verify", document, scores).code != 0
    (found,) = call("audit", document, twice, "--json").json["findings"]
    assert found["code"] == "judge_flickers" and "(0.0 %)" in found["message"]
    # the same bytes where no run has two scores
    assert "judge_flickers" not in certificate.read_text("utf-8")
    assert "findings" not in call("audit", certificate, scores, "--json").json
