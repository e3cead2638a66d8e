"""Numbers in sentences and tables for people are short; those of the document are exact."""

import re
from pathlib import Path

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

#: more digits than anybody reads
LONG = re.compile(r"\d\.\d{7,}")


def test_thresholds_in_sentences_are_short(call: Call, tmp_path: Path) -> None:
    rows = score_rows(tasks=80, attempts=4)
    # as sums of decimals are
    rows["score"] = rows["score"].round(1) + 0.1 + 0.2
    table, out = tmp_path / "s.csv", tmp_path / "c.json"
    rows.to_csv(table, index=False)
    for more in ("", "--alpha .4 --procedure taskboot"):
        document = call(f"certificate {table} {more} --json --out {out}").json
        for item in document["certificates"]:
            assert not LONG.search(item["statement"]), item["statement"]
        assert not LONG.search(document["statement"])
        assert any(
            item["threshold"] != float(f"{item['threshold']:.6g}")
            for item in document["certificates"]
        )
        call(f"decide {out} {table} --decisions {tmp_path}/d.csv")
        for line in (tmp_path / "d.csv").read_text("utf-8").splitlines()[1:]:
            assert not LONG.search(line.split(",", 5)[5])
