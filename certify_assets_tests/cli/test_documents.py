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
    for alpha in (0.1, 0.2):
        for procedure in ("guarded_taskboot", "taskboot"):
            asked = f"certificate {scores} --alpha {alpha} --procedure {procedure} --json"
            documents += call(asked).json["certificates"]
    path = tmp_path / "certificates.json"
    path.write_text(json.dumps({"certificates": documents}), "utf-8")
    return path


def test_one_a_side_is_chosen_by_budget_and_procedure(call: Call, scores: Path, many: Path) -> None:
    both = call(f"decide {many} {scores} --alpha 0.2 --procedure guarded_taskboot --json")
    assert both.code == 0 and len(both.json["certificate_sha256"]) == 2 and both.json["reject"]
    given = f"{many} {scores} --alpha .2 --procedure taskboot --side reject --json"
    one, audit = call(f"decide {given}"), call(f"audit {given}")
    assert one.code == audit.code == 0 and one.json["release"] == 0
    assert audit.json["certificate_sha256"] == one.json["certificate_sha256"]


def test_a_choice_that_is_open_names_the_options(call: Call, scores: Path, many: Path) -> None:
    decide = call(f"decide {many} {scores}")
    assert decide.code == 2
    for words in ("one for each side", "--alpha", "reject α = 0.1 guarded_taskboot"):
        assert words in decide.err
    for command in ("audit", "decide"):
        nothing = call(f"{command} {many} {scores} --alpha 0.3")
        assert nothing.code == 2
        assert "holds no certificate of that side, budget and procedure" in nothing.err
        assert "it holds reject α = 0.1" in nothing.err


@pytest.mark.parametrize(
    "text", ["null", "[]", "{}", '{"certificates": []}', '{"certificates": [null]}', "3"]
)
def test_a_file_that_is_no_certificate_is_named(
    call: Call, scores: Path, tmp_path: Path, text: str
) -> None:
    (tmp_path / "c.json").write_text(text, "utf-8")
    for command in ("audit", "decide", "report", "verify", "show"):
        refused = call(f"{command} {tmp_path}/c.json {'' if command == 'show' else scores}")
        assert refused.code == 2 and refused.err.count("c.json does not hold a certificate") == 1


def test_a_scale_that_a_document_makes_up_is_a_difference(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    made = call(f"certificate {scores} --side reject --json").json
    made["provenance"]["score_scale"] = "percent"
    (tmp_path / "c.json").write_text(json.dumps(made), "utf-8")
    answer = call(f"verify {tmp_path}/c.json {scores} --json")
    assert answer.code == 3 and not answer.json["verified"]


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


def test_no_command_overwrites_what_it_reads(call: Call, scores: Path, tmp_path: Path) -> None:
    kept, queue, link = (tmp_path / name for name in ("c.json", "q.csv", "link.csv"))
    call(f"certificate {scores} --out {kept}")
    before = {path: path.read_bytes() for path in (scores, kept)}
    link.symlink_to(scores)
    for arguments in (
        f"certificate {scores} --out {scores}",
        f"decide {kept} {scores} --queue {scores}",
        f"decide {kept} {scores} --queue {link}",
        f"decide {kept} {scores} --decisions {kept}",
        f"decide {kept} {scores} --decisions {queue} --queue {queue}",
        f"report {kept} {scores} --out {kept}",
    ):
        answer = call(arguments)
        assert answer.code == 2 and "would be overwritten" in answer.err
    assert before == {path: path.read_bytes() for path in before} and not queue.exists()


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "n12;=cmd|' /C calc'!A0"])
def test_nothing_is_written_when_one_of_two_outputs_cannot_be(
    call: Call, scores: Path, tmp_path: Path, name: str
) -> None:
    call(f"certificate {scores} --out {tmp_path}/c.json")
    frame = score_rows(tasks=3, attempts=2)
    frame.loc[0, "task_id"] = name
    frame.to_parquet(tmp_path / "new.parquet")
    decide = f"decide {tmp_path}/c.json {tmp_path}/new.parquet"
    answer = call(f"{decide} --queue {tmp_path}/q.parquet --decisions {tmp_path}/d.csv")
    assert answer.code == 2 and "formula" in answer.err and not (tmp_path / "q.parquet").exists()
    written = call(f"{decide} --queue {tmp_path}/q.jsonl --decisions {tmp_path}/d.parquet")
    assert written.code == 0
    assert set(pd.read_parquet(tmp_path / "d.parquet")["task_id"]) == set(frame["task_id"])


def test_no_scale_of_scores_is_named_unasked(call: Call, scores: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(scores)
    table, kept, page = (tmp_path / name for name in ("s.csv", "c.json", "page.html"))

    def shown(values: pd.Series, of_table: str = "", of_page: str = "") -> tuple[str, str]:
        """Return the scale of a page, and the page."""
        frame.assign(score=values).to_csv(table, index=False)
        assert call(f"certificate {table} --alpha .2 --out {kept} {of_table}").code in (0, 3)
        answer = call(f"report {kept} {table} --out {page} --json {of_table} {of_page}")
        return answer.json["score_scale"], page.read_text("utf-8")

    odds, chances = frame["score"], 1 / (1 + np.exp(-frame["score"]))
    lower = "--set lower_is_better=true"
    for values in (odds, chances, 100 * chances):
        found, text = shown(values)
        assert found == "score" and "(P = " not in text and "of success" not in text
    percent = "--set score_scale=probability"
    found, text = shown(100 * chances, percent)
    assert found == "probability" and "probability of success" in text
    # a probability that is negated is neither one nor log-odds
    assert shown(chances, lower)[0] == "score"
    assert "(P = " in shown(odds, "", "--set score_scale=log-odds")[1]
    # negated log-odds are log-odds of the contrary
    assert shown(odds, lower, "--set score_scale=log-odds")[0] == "log-odds"
