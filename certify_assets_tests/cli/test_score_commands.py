"""Commands on score tables: arguments in, exit code, stdout and stderr out."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from certify_assets.files import interchange_json
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
    assert "With confidence 95 %, calibrated by simulation, of" in " ".join(answer.out.split())


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
    for key, value in (
        ("coverage", 0.99),
        ("threshold", 9.0),
        ("certified", False),
        ("tasks", 81),
        ("level", 0.5),
        ("assumptions", []),
    ):
        (tmp_path / "forged.json").write_text(json.dumps({**document, key: value}), "utf-8")
        answer = call(f"verify {tmp_path}/forged.json {scores} --json")
        assert answer.code == 3
        assert not answer.json["verified"]
        assert answer.json["difference"]
        assert answer.err
    for key in ("tail", "seed", "inputs"):
        (tmp_path / "forged.json").write_text(
            json.dumps({name: value for name, value in document.items() if name != key}), "utf-8"
        )
        assert call(f"verify {tmp_path}/forged.json {scores}").code == 3
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
        ("certificate {scores} --score-col nothing", "nothing"),
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
    from certify_assets.cli.main import _COMMANDS, cli

    assert call("--help").code == 0
    for name in _COMMANDS:
        answer = call(name, "--help")
        assert answer.code == 0 and answer.out.strip()
    import click

    with click.Context(cli) as context:
        for name in _COMMANDS:
            command = cli.get_command(context, name)
            assert command is not None and command.help
            for parameter in command.params:
                assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None), (
                    name,
                    parameter.name,
                )


@pytest.mark.slow
def test_large_tables_are_certified_verified_and_decided_in_pieces(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    table, pieces = tmp_path / "scores.parquet", tmp_path / "pieces.json"
    pd.read_csv(scores).to_parquet(table, index=False)
    options = f"--side both --alpha .2 --json --out {pieces}"
    found = call(f"certificate {table} --stream {options}")
    whole = call(f"certificate {table} --side both --alpha .2 --json")
    assert found.code == whole.code == 0
    for one, other in zip(found.json["certificates"], whole.json["certificates"], strict=True):
        assert one["inputs"]["digest"] == "certify_assets/tasks/1"
        assert one["schema"] == 2
        named = dict.fromkeys(("inputs", "schema", "digest"))
        assert one | named == other | named
    assert found.json["decided"] == whole.json["decided"]
    joint = f"--joint --alpha .2 --json --out {tmp_path}/joint.json"
    shared, again = (call(f"certificate {table} {option} {joint}") for option in ("", "--stream"))
    assert [one["delta"] for one in again.json["certificates"]] == [
        one["delta"] for one in shared.json["certificates"]
    ]
    assert call(f"verify {tmp_path}/joint.json {table} --stream").code == 0
    # in pieces or in memory, and whatever the order
    for option in ("--stream", ""):
        assert call(f"verify {pieces} {table} {option}").code == 0
    assert call(f"verify {pieces} {scores}").code == 0
    (tmp_path / "old.json").write_text(whole.out, "utf-8")
    old = call(f"verify {tmp_path}/old.json {table} --stream")
    assert old.code == 3 and "verify it on the whole table" in old.err
    forged = pieces.read_text("utf-8").replace("certify_assets/tasks/1", "certify_assets/tasks/2")
    (tmp_path / "forged.json").write_text(forged, "utf-8")
    wrong = call(f"verify {tmp_path}/forged.json {table} --stream")
    assert wrong.code == 3 and "this version knows certify_assets/tasks/1" in wrong.err
    for stream in ("--stream", ""):
        outputs = f"--decisions {tmp_path}/d{stream}.parquet --queue {tmp_path}/q{stream}.parquet"
        assert call(f"decide {pieces} {table} {stream} --split cal {outputs}").code == 0
    for name in "dq":
        one, other = (
            pd.read_parquet(tmp_path / f"{name}{end}.parquet") for end in ("--stream", "")
        )
        pd.testing.assert_frame_equal(one, other)


def test_a_pool_goes_with_a_table_in_pieces(call: Call, scores: Path, tmp_path: Path) -> None:
    table, pieces = tmp_path / "scores.parquet", tmp_path / "pieces.json"
    rows = pd.read_csv(scores)
    rows.to_parquet(table, index=False)
    pool = tmp_path / "pool.csv"
    rows.assign(task_id="pool-" + rows["task_id"], split="test").to_csv(pool, index=False)
    options = f"--procedure pseudo_task --pool {pool} --alpha .2 --json"
    found = call(f"certificate {table} --stream {options} --out {pieces}")
    whole = call(f"certificate {table} {options}")
    assert found.code == whole.code == 0
    for one, other in zip(found.json["certificates"], whole.json["certificates"], strict=True):
        assert one["inputs"]["pool"] == other["inputs"]["pool"]
        named = dict.fromkeys(("inputs", "schema", "digest"))
        assert one | named == other | named
    for option in ("--stream", ""):
        assert call(f"verify {pieces} {table} --pool {pool} {option}").code == 0
        missing = call(f"verify {pieces} {table} {option}")
        assert missing.code == 2 and "cannot be recomputed without it" in missing.err
    large = tmp_path / "large.parquet"
    pq.write_table(pa.table({"score": pa.nulls(20_000_000)}), large)
    for command in (
        f"certificate {table} --stream --procedure pseudo_task",
        f"verify {pieces} {table} --stream",
    ):
        refused = call(f"{command} --pool {large}")
        assert refused.code == 2 and "a pool is held in memory" in refused.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("certificate {csv} --stream", "is no Parquet file, and only those are read in pieces"),
        ("certificate {table} --stream --procedure all", "one_per_task needs all rows"),
        (
            "certificate {table} --stream --procedure taskboot --multiplicity maxt",
            "multiplicity maxt needs all rows",
        ),
        ("decide {one} {table} --stream --queue q.csv", "q.csv is no Parquet file"),
        ("decide {one} {table} --stream --split rl", "no row with split='rl'"),
    ],
)
def test_what_cannot_be_read_in_pieces_is_one_sentence(
    call: Call, scores: Path, certificate: Path, tmp_path: Path, words: str, sentence: str
) -> None:
    table = tmp_path / "scores.parquet"
    pd.read_csv(scores).to_parquet(table, index=False)
    answer = call(words.format(csv=scores, table=table, one=certificate))
    assert answer.code == 2 and sentence in answer.err and answer.err.count("\n") == 1


def test_a_document_that_another_program_wrote_again_by_rfc_8785_verifies(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    table, out = tmp_path / "scores.parquet", tmp_path / "c.json"
    pd.read_csv(scores).to_parquet(table, index=False)
    # nothing is certified at so small a budget, and a share of 0.0 is written as 0
    options = f"--alpha 0.0001 --json --out {out}"
    assert call(f"certificate {table} --stream {options}").json["decided"] == 0.0
    out.write_bytes(interchange_json(json.loads(out.read_text("utf-8"))))
    assert call(f"verify {out} {table}").code == 0
    forged = {**json.loads(out.read_text("utf-8")), "decided": 1}
    out.write_bytes(interchange_json(forged))
    assert call(f"verify {out} {table}").code == 3
    call(f"certificate {table} {options}")
    out.write_bytes(interchange_json(json.loads(out.read_text("utf-8"))))
    assert call(f"verify {out} {table}").code == 3


def test_a_table_without_the_outcome_column_names_the_likely_one(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    pd.read_csv(scores).rename(columns={"outcome": "Verdict"}).to_csv(path, index=False)
    for command in ("certificate", "plan"):
        answer = call(f"{command} {path}")
        assert answer.code == 2
        assert f"try: certify {command} {path} --outcome-col Verdict" in answer.err


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
