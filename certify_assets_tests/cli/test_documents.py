"""Documents of many certificates: choosing from them, and what is none."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def many(call: Call, scores: Path, tmp_path: Path) -> Path:
    """Both sides by two procedures at two budgets, as the platform stores them."""
    documents = []
    for alpha in ("0.1", "0.2"):
        for procedure in ("guarded_taskboot", "taskboot"):
            answer = call(
                f"certificate {scores} --side both --alpha {alpha} --procedure {procedure} --json"
            )
            documents += answer.json["certificates"]
    path = tmp_path / "certificates.json"
    path.write_text(json.dumps({"certificates": documents}), "utf-8")
    return path


def test_one_a_side_is_chosen_by_budget_and_procedure(call: Call, scores: Path, many: Path) -> None:
    answer = call(f"decide {many} {scores} --alpha 0.2 --procedure guarded_taskboot --json")
    assert answer.code == 0
    assert len(answer.json["certificate_sha256"]) == 2
    assert answer.json["reject"]
    one = call(f"decide {many} {scores} --alpha .2 --procedure taskboot --side reject --json")
    assert one.code == 0
    assert isinstance(one.json["certificate_sha256"], str)
    assert one.json["release"] == 0
    audit = call(f"audit {many} {scores} --alpha 0.2 --procedure taskboot --side reject --json")
    assert audit.code == 0 and audit.json["certificate_sha256"] == one.json["certificate_sha256"]


def test_a_choice_that_is_open_names_the_options(call: Call, scores: Path, many: Path) -> None:
    decide = call(f"decide {many} {scores}")
    assert decide.code == 2
    assert "one a side" in decide.err
    assert "--alpha" in decide.err
    assert "--procedure" in decide.err
    assert "reject, 0.2, taskboot" in decide.err
    audit = call(f"audit {many} {scores} --alpha 0.2")
    assert audit.code == 2 and "one a side" in audit.err
    for command in ("audit", "decide"):
        nothing = call(f"{command} {many} {scores} --alpha 0.3")
        assert nothing.code == 2
        assert (
            "holds no certificate of that side, budget and procedure; it holds reject, 0.1"
            in nothing.err
        )
        assert call(f"{command} {many} {scores} --alpha nan").code == 2


@pytest.mark.parametrize(
    "text", ["null", "[]", "{}", '{"certificates": []}', '{"certificates": [null]}', "3"]
)
def test_what_is_no_certificate_is_not_verified_and_no_input(
    call: Call, scores: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "c.json").write_text(text, "utf-8")
    # verification answers whether the document is a certificate of these scores: it is not; the
    # others cannot begin without one
    answer = call(f"verify {tmp_path}/c.json {scores} --json")
    assert answer.code == 3 and (answer.json.get("error") or answer.json["difference"])
    for command in ("audit", "decide", "report"):
        assert call(f"{command} {tmp_path}/c.json {scores}").code == 2


def test_a_scale_that_a_document_makes_up_is_a_difference(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    made = call(f"certificate {scores} --side reject --json").json
    made["provenance"]["score_scale"] = "percent"
    (tmp_path / "c.json").write_text(json.dumps(made), "utf-8")
    log_odds = tmp_path / "odds.csv"
    pd.read_csv(scores).assign(score=lambda table: 9 * table["score"] - 5).to_csv(log_odds)
    for table in (scores, log_odds):
        answer = call(f"verify {tmp_path}/c.json {table} --json")
        assert answer.code == 3 and not answer.json["verified"]
    (tmp_path / "none.csv").write_text("task_id,outcome\na,1\n", "utf-8")
    assert call(f"verify {tmp_path}/c.json {tmp_path}/none.csv").code == 2


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"tasks": ' + "9" * 5000 + "}", '{"alpha": 0.1, "alpha": 0.2}', "{"]
)
def test_what_cannot_be_read_is_an_input_error_everywhere(
    call: Call, scores: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "c.json").write_text(text, "utf-8")
    for command in ("verify", "audit", "decide", "report"):
        answer = call(f"{command} {tmp_path}/c.json {scores}")
        assert answer.code == 2 and answer.err.count("\n") == 1 and "c.json" in answer.err


def test_verification_says_what_it_does_not_vouch_for(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    call(f"certificate {scores} --out {tmp_path}/c.json")
    answer = call(f"verify {tmp_path}/c.json {scores} --json")
    assert answer.json["verified"] and "provenance and selection" in answer.json["not_vouched"]


def test_no_command_overwrites_what_it_reads(call: Call, scores: Path, tmp_path: Path) -> None:
    call(f"certificate {scores} --out {tmp_path}/c.json")
    before = {path: path.read_bytes() for path in (scores, tmp_path / "c.json")}
    (tmp_path / "link.csv").symlink_to(scores)
    for arguments in (
        ("certificate", scores, "--out", scores),
        ("decide", tmp_path / "c.json", scores, "--queue", scores),
        ("decide", tmp_path / "c.json", scores, "--queue", tmp_path / "link.csv"),
        ("decide", tmp_path / "c.json", scores, "--decisions", tmp_path / "c.json"),
        (
            "decide",
            tmp_path / "c.json",
            scores,
            "--decisions",
            tmp_path / "q.csv",
            "--queue",
            tmp_path / "q.csv",
        ),
        ("report", tmp_path / "c.json", scores, "--out", tmp_path / "c.json"),
        ("report", tmp_path / "c.json", scores, "--out", scores),
        (
            "report",
            tmp_path / "c.json",
            scores,
            "--audit",
            tmp_path / "t.csv",
            "--out",
            tmp_path / "t.csv",
        ),
    ):
        answer = call(*arguments)
        assert answer.code == 2 and "would be overwritten" in answer.err
    assert before == {path: path.read_bytes() for path in before}
    assert not (tmp_path / "q.csv").exists()


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "n12;=cmd|' /C calc'!A0"])
def test_nothing_is_written_when_one_of_two_outputs_cannot_be(
    call: Call, scores: Path, tmp_path: Path, name: str
) -> None:
    call(f"certificate {scores} --out {tmp_path}/c.json")
    frame = score_rows(tasks=3, attempts=2)
    frame.loc[0, "task_id"] = name
    frame.to_parquet(tmp_path / "new.parquet")
    outputs = ("--queue", tmp_path / "q.parquet", "--decisions", tmp_path / "d.csv")
    answer = call("decide", tmp_path / "c.json", tmp_path / "new.parquet", *outputs)
    assert answer.code == 2 and "formula" in answer.err and not (tmp_path / "q.parquet").exists()
    outputs = ("--queue", tmp_path / "q.jsonl", "--decisions", tmp_path / "d.parquet")
    assert call("decide", tmp_path / "c.json", tmp_path / "new.parquet", *outputs).code == 0
    assert set(pd.read_parquet(tmp_path / "d.parquet")["task_id"]) == set(frame["task_id"])


@pytest.mark.parametrize("minutes", ["inf", "nan", "-inf", "0", "-1"])
def test_minutes_are_a_number_above_zero(
    call: Call, scores: Path, tmp_path: Path, minutes: str
) -> None:
    answer = call("report", tmp_path / "c.json", scores, f"--minutes={minutes}")
    assert answer.code == 2 and "--minutes" in answer.err


def test_a_split_that_the_table_cannot_have_is_refused(call: Call, tmp_path: Path) -> None:
    score_rows(tasks=5, attempts=2).to_csv(tmp_path / "a.csv", index=False)
    call(f"certificate {tmp_path}/a.csv --out {tmp_path}/c.json")
    for arguments in (
        ("resample", tmp_path / "a.csv", "--threshold", "0"),
        ("decide", tmp_path / "c.json", tmp_path / "a.csv"),
    ):
        answer = call(*arguments, "--split", "foo")
        assert answer.code == 2 and "no split column" in answer.err


def test_one_column_cannot_be_two_things(call: Call, scores: Path) -> None:
    answer = call(f"certificate {scores} --columns task=score")
    assert answer.code == 2
    assert "--columns gives task and score the column 'score'" in answer.err


@pytest.mark.slow
def test_a_page_that_cannot_be_written_names_its_place(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    call(f"certificate {scores} --out {tmp_path}/c.json")
    answer = call(f"report {tmp_path}/c.json {scores} --out {tmp_path}")
    assert answer.code == 2
    assert answer.err.startswith(f"certify: {tmp_path} cannot be written (Is a directory)")


def test_no_score_is_called_log_odds_unasked(call: Call, scores: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(scores)
    shown = {}
    for name, column, scale in (
        ("negative", frame["score"], "score"),
        ("probability", 1 / (1 + np.exp(-frame["score"])), "probability"),
        ("score", 100 / (1 + np.exp(-frame["score"])), "score"),
    ):
        table, out = tmp_path / f"{name}.csv", tmp_path / f"{name}.json"
        frame.assign(score=column).to_csv(table, index=False)
        assert call(f"certificate {table} --alpha 0.2 --out {out}").code == 0
        answer = call(f"report {out} {table} --out {tmp_path}/page.html --json")
        assert answer.json["score_scale"] == scale
        shown[name] = (tmp_path / "page.html").read_text("utf-8")
        assert "(P = " not in shown[name] and "log-odds of success" not in shown[name]
    assert "probability of success" in shown["probability"]
    out, chance = tmp_path / "turned.json", tmp_path / "probability.csv"
    # a probability that is negated is neither one nor log-odds
    assert call(f"certificate {chance} --lower-is-better --alpha 0.2 --out {out}").code in (0, 3)
    turned = call(f"report {out} {chance} --lower-is-better --out {tmp_path}/page.html --json")
    assert turned.json["score_scale"] == "score"
    out, table = tmp_path / "negative.json", tmp_path / "negative.csv"
    asked = f"report {out} {table} --score-scale log-odds --out {tmp_path}/page.html"
    assert call(asked).code == 0 and "(P = " in (tmp_path / "page.html").read_text("utf-8")
    # negated log-odds are log-odds of the contrary
    out = tmp_path / "contrary.json"
    assert call(f"certificate {table} --lower-is-better --alpha 0.2 --out {out}").code in (0, 3)
    asked = f"report {out} {table} --lower-is-better --score-scale log-odds --json"
    assert call(f"{asked} --out {tmp_path}/page.html").json["score_scale"] == "log-odds"
