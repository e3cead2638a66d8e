"""A certificate file says what it is without anything else, and verifies wherever it is."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.operations_builders import certified_corpus


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("show") / "root"
    certified_corpus(folder)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = score_rows(tasks=80, attempts=4).rename(columns={"task_id": "Instance"})
    rows.to_csv(tmp_path / "s.csv", index=False)
    return tmp_path / "s.csv"


@pytest.mark.parametrize("options", ["--side reject", "", "--procedure all"])
def test_a_file_is_shown_with_its_hashes(call: Call, table: Path, options: str) -> None:
    out = table.with_name("c.json")
    asked = f"certificate {table} {options} --columns task=Instance"
    document = call(f"{asked} --json --out {out}").json
    said = call(f"{asked} --out {out}").out
    assert f"wrote {out}" in said and f"next: certify decide {out} NEW_SCORES" in said
    table.unlink()
    shown, answer = call(f"show {out}"), call(f"show {out} --json").json
    items = document.get("certificates", [document])
    assert shown.code == 0
    assert answer["file"] == hashlib.sha256(out.read_bytes()).hexdigest()
    for item, given in zip(answer["certificates"], items, strict=True):
        assert {**given, "sha256": item["sha256"]} == item
        assert item["sha256"] in shown.out and item["inputs"]["sha256"] in shown.out
        for finding in item["findings"]:
            assert finding["code"] in shown.out
    if len(items) == 1:
        assert answer["canonical"] == answer["certificates"][0]["sha256"]
    assert answer["canonical"] in shown.out and "columns: task=Instance" in shown.out


def test_an_altered_file_is_not_shown(call: Call, table: Path) -> None:
    out = table.with_name("c.json")
    call(f"certificate {table} --columns task=Instance --out {out}")
    document = json.loads(out.read_text("utf-8"))
    document["certificates"][0]["provenance"]["judge"] = "another"
    out.write_text(json.dumps(document), "utf-8")
    answer = call(f"show {out}")
    assert answer.code == 3 and "digest" in answer.err and not answer.out
    assert call(f"show {table}").code == 2


def test_certificates_of_the_platform_verify_wherever_they_are(
    call: Call, root: Path, tmp_path: Path
) -> None:
    for name in ("certificates.json", "scores.parquet"):
        shutil.copy(root / "pages/judges/lexical/c" / name, tmp_path)
    shown = call(f"show {tmp_path}/certificates.json")
    assert shown.code == 0 and "pool" in shown.out and "lexical" in shown.out
    verified = call(f"verify {tmp_path}/certificates.json {tmp_path}/scores.parquet --json")
    assert verified.code == 0 and verified.json["certificates"] > 1
    page = call(
        f"report {tmp_path}/certificates.json {tmp_path}/scores.parquet --out {tmp_path}/p.html"
    )
    assert page.code == 0, page.err
    document = json.loads((tmp_path / "certificates.json").read_text("utf-8"))
    part = next(part for part in document["pool"]["parts"] if part["scores"])
    part["scores"].popitem()
    (tmp_path / "certificates.json").write_text(json.dumps(document), "utf-8")
    altered = call(f"verify {tmp_path}/certificates.json {tmp_path}/scores.parquet")
    assert altered.code == 3 and "inputs.pool.sha256" in altered.err
