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
    document = answer.json
    assert document["certified"]
    assert document["procedure"] == "pseudo_task"
    assert document["level"] == pytest.approx(0.05 / 3)
    assert document["tail"] <= document["level"] and 0 < document["coverage"] < 1
    assert document["tasks"] == 80 and document["inputs"]["rows"] == 480
    assert call(f"certificate {scores} --side reject --json").out == answer.out


def test_people_get_a_table_and_the_promise(call: Call, scores: Path) -> None:
    answer = call(f"certificate {scores}")
    assert answer.code == 0
    assert "pseudo_task" in answer.out
    assert "(95 % confidence by simulation)" in " ".join(answer.out.split())


def test_nothing_certified_is_exit_three_with_reasons(call: Call, tmp_path: Path) -> None:
    score_rows(tasks=6, attempts=3).to_csv(tmp_path / "few.csv", index=False)
    answer = call(f"certificate {tmp_path}/few.csv --side reject --json")
    assert answer.code == 3
    document = answer.json
    assert not document["certified"]
    assert document["threshold"] is None
    assert document["coverage"] == 0.0
    assert document["findings"]
    assert all({"code", "message"} <= set(finding) for finding in document["findings"])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_formats_and_row_order_do_not_matter(
    call: Call, scores: Path, certificate: Path, tmp_path: Path, suffix: str
) -> None:
    frame = pd.read_csv(scores).sample(frac=1.0, random_state=1)
    path = tmp_path / f"again.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    answer = call(f"verify {certificate} {path} --json")
    # JSON Lines of pandas keep fifteen digits, which may move a score by one bit: then the table is
    # another one
    assert answer.code == 0 or (suffix == "jsonl" and "inputs" in answer.json["difference"])


def test_verify_refuses_forged_documents_and_other_data(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    assert call(f"verify {certificate} {scores}").code == 0
    document = json.loads(certificate.read_text("utf-8"))
    for key, value in (("coverage", 0.99), ("threshold", 9.0), ("assumptions", [])):
        (tmp_path / "forged.json").write_text(json.dumps({**document, key: value}), "utf-8")
        answer = call(f"verify {tmp_path}/forged.json {scores} --json")
        assert answer.code == 3
        assert not answer.json["verified"]
        assert answer.json["difference"]
        assert answer.err
    frame = pd.read_csv(scores)
    frame.loc[frame.index[frame["split"] == "cal"][0], "outcome"] ^= 1
    frame.to_csv(tmp_path / "other.csv", index=False)
    assert call(f"verify {certificate} {tmp_path}/other.csv").code == 3


def test_a_list_of_certificates_verifies_one_by_one(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    call(f"certificate {scores} --side both --json --out {tmp_path}/both.json")
    assert call(f"verify {tmp_path}/both.json {scores} --json").json["certificates"] == 2
    document = json.loads((tmp_path / "both.json").read_text("utf-8"))
    document["certificates"][1]["coverage"] = 0.5
    (tmp_path / "both.json").write_text(json.dumps(document), "utf-8")
    assert "certificate 2 of 2" in call(f"verify {tmp_path}/both.json {scores}").err


def test_audit_uses_test_and_names_its_verdict(call: Call, scores: Path, certificate: Path) -> None:
    answer = call(f"audit {certificate} {scores} --json")
    assert answer.code == 0
    assert {
        "verdict",
        "realized_error",
        "lower_bound",
        "coverage",
        "covered_tasks",
        "certificate_sha256",
    } <= set(answer.json)
    assert answer.json["verdict"] in {"PASS", "WARN"}


def test_an_audit_that_fails_is_exit_three(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores)
    frame["outcome"] = 1
    frame.to_csv(tmp_path / "drifted.csv", index=False)
    answer = call(f"audit {certificate} {tmp_path}/drifted.csv --json")
    assert answer.code == 3
    assert answer.json["verdict"] == "ERROR"
    assert answer.json["realized_error"] == 1.0


def test_resample_exactly_and_by_draws(call: Call, scores: Path) -> None:
    exact = call(f"resample {scores} --threshold 0 --draws exact --split test --json").json
    drawn = call(f"resample {scores} --threshold 0 --draws 3000 --split test --json").json
    assert exact["draws"] == "exact" and drawn["draws"] == 3000
    # three standard errors of a share of 3,000 draws
    assert abs(exact["exceedance"] - drawn["exceedance"]) <= 3 * 0.5 / 3000**0.5
    assert call(f"resample {scores} --threshold 0 --draws many").code == 2


def test_decide_counts_and_writes_the_queue(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores).drop(columns="outcome")
    frame.loc[0, "score"] = None
    frame.to_csv(tmp_path / "new.csv", index=False)
    answer = call(
        f"decide {certificate} {tmp_path}/new.csv --queue {tmp_path}/q.csv "
        f"--decisions {tmp_path}/d.parquet --json"
    )
    assert answer.code == 0
    document = answer.json
    assert document["reject"] + document["release"] + document["human"] == len(frame)
    assert document["reasons"]["unscored"] == 1
    queue, every = pd.read_csv(tmp_path / "q.csv"), pd.read_parquet(tmp_path / "d.parquet")
    assert len(queue) == document["human"] and set(queue["decision"]) == {"human"}
    assert set(every["certificate_sha256"]) == {document["certificate_sha256"]}
    threshold = json.loads(certificate.read_text("utf-8"))["threshold"]
    assert (every.loc[every["decision"] == "reject", "score"] <= threshold).all()


def test_decide_with_two_sides_sends_the_overlap_to_people(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    call(
        f"certificate {scores} --side both --alpha 0.4 --procedure taskboot --json "
        f"--out {tmp_path}/both.json"
    )
    document = call(f"decide {tmp_path}/both.json {scores} --json").json
    assert document["reject"] and document["release"]
    assert len(document["certificate_sha256"]) == 2


def test_without_a_certificate_everything_goes_to_people(call: Call, tmp_path: Path) -> None:
    score_rows(tasks=6, attempts=3).to_csv(tmp_path / "few.csv", index=False)
    call(f"certificate {tmp_path}/few.csv --side reject --out {tmp_path}/c.json")
    answer = call(f"decide {tmp_path}/c.json {tmp_path}/few.csv --side reject --json")
    assert answer.code == 3
    assert answer.json["human"] == 18
    assert answer.json["reasons"] == {"not_certified": 18}


def test_report_draws_what_verifies_and_nothing_else(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    answer = call(
        f"report {certificate} {scores} --out {tmp_path}/page.html "
        "--title '<script>x</script>' --json"
    )
    assert answer.code == 0 and answer.json["audited"]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<script" not in page and "&lt;script&gt;" in page
    document = json.loads(certificate.read_text("utf-8"))
    (tmp_path / "forged.json").write_text(json.dumps({**document, "coverage": 0.99}), "utf-8")
    forged = call(f"report {tmp_path}/forged.json {scores} --out {tmp_path}/no.html")
    assert forged.code in {2, 3} and not (tmp_path / "no.html").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("certificate none.csv", "does not exist"),
        ("certificate {scores} --alpha 2", "alpha"),
        ("certificate {scores} --alpha x", "--alpha"),
        ("certificate {scores} --delta 0", "delta"),
        ("certificate {scores} --procedure magic", "magic"),
        ("certificate {scores} --grid 0", "grid"),
        ("certificate {scores} --columns score=nothing", "nothing"),
        ("certificate {scores} --out /nowhere/at/all/c.json", "nowhere"),
        ("certificate", "SCORES"),
        ("verify {scores} {scores}", "JSON"),
        ("audit none.json {scores}", "does not exist"),
        ("decide {scores} {scores}", "JSON"),
        ("resample {scores}", "--threshold"),
        ("resample {scores} --threshold nan", "finite"),
        ("nothing", "nothing"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_bad_usage_is_exit_two_and_one_sentence(
    call: Call,
    scores: Path,
    arguments: str,
    word: str,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # root may write anywhere: the folder that cannot be made is a file's child
    filled = arguments.format(scores=scores).replace("/nowhere/at/all", f"{scores}/nowhere")
    answer = call(f"{filled} --json" if as_json else filled)
    assert answer.code == 2 and answer.out == ""
    assert word in answer.err and answer.err.count("\n") == 1


def test_every_command_has_help(call: Call) -> None:
    import click

    from certify_assets.cli.main import cli

    assert call("--help").code == 0
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            assert command is not None and command.help
            for option in (item for item in command.params if isinstance(item, click.Option)):
                assert option.help, (name, option.name)


def test_a_table_without_the_outcome_column_names_the_likely_one(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    pd.read_csv(scores).rename(columns={"outcome": "Verdict"}).to_csv(path, index=False)
    for command in ("certificate", "plan"):
        answer = call(f"{command} {path}")
        assert answer.code == 2
        assert f"try: certify {command} {path} --columns outcome=Verdict" in answer.err


def test_a_share_unlike_the_certified_one_is_a_warning(
    call: Call, scores: Path, certificate: Path, tmp_path: Path
) -> None:
    document = json.loads(certificate.read_text("utf-8"))
    rows = pd.read_csv(scores)
    high = rows.assign(score=rows["score"] - rows["score"].min() + document["threshold"] + 1)
    high.to_csv(tmp_path / "high.csv", index=False)
    answer = call(f"decide {certificate} {tmp_path}/high.csv --json")
    assert answer.code == 0 and answer.json["human"] == len(rows)
    assert "warning: 0.0 % of the scored runs are decided on the reject side" in answer.err
    assert "--score-scale" in answer.err
    assert "warning" not in call(f"decide {certificate} {scores}").err
