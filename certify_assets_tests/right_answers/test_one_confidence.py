"""Terminal, document and page promise with one confidence: 1 - delta for a side alone."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets_tests.cli.calling import Call


@pytest.mark.parametrize(("clear", "confidence"), [(False, "95 %"), (True, "90 %")])
def test_one_confidence_everywhere(
    tmp_path: Path, call: Call, clear: bool, confidence: str
) -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=600)
    # low scores always fail; high scores succeed where both sides are to certify
    outcomes = rng.random(600) < np.where(scores < 0.5, 0.0, 0.99 if clear else 0.5)
    table = {"task_id": np.arange(600) // 6, "score": scores, "outcome": outcomes.astype(int)}
    path, page = tmp_path / "scores.csv", tmp_path / "page.html"
    pd.DataFrame(table).to_csv(path, index=False)
    document = call(f"certificate {path} --json").json
    assert [item["certified"] for item in document["certificates"]] == [True, clear]
    (tmp_path / "c.json").write_text(call(f"certificate {path} --json").out, "utf-8")
    assert call(f"report {tmp_path}/c.json {path} --out {page}").code == 0
    shown = " ".join(call(f"certificate {path}").out.split())
    drawn = " ".join(re.sub(r"<[^>]+>", " ", page.read_text("utf-8")).split())
    drawn = drawn.replace("\u202f", " ")
    assert document["statement"] in shown
    promise, together = document["statement"], f"Both hold together with {confidence} confidence"
    assert promise.startswith("Reject at score ≤ 0.") and "of them successes (95 % conf" in promise
    assert (f"{together} by simulation." in promise) is clear
    assert promise.endswith(" Release: nothing certified.") is not clear
    both = " for both at once" if clear else ""
    assert f"with {confidence} confidence by simulation{both}." in drawn
    assert clear or "90 %" not in promise + shown + drawn
