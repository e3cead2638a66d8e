"""Every surface says the same of one certificate: the figures, and what is certified."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import numpy as np
import pandas as pd
import pytest

from certify_assets import certify
from certify_assets.components import Certificate as Component
from certify_assets.words import WORDS
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.pages import text_of

#: tasks, attempts, signal, and what is asked of a table
TABLES: dict[str, tuple[int, int, float, dict[str, Any]]] = {
    "both sides": (120, 6, 1.2, {}),
    "regions that meet": (120, 6, 2.5, {}),
    "one side": (120, 6, 2.5, {"side": "reject"}),
    "nothing": (60, 4, 0.0, {"side": "release"}),
    "average": (240, 1, 1.6, {"promise": "average"}),
    "proved": (400, 1, 1.6, {"promise": "proved"}),
}
SHARES = {
    "decided": r"([\d.]+)\s% of runs (?:are )?decided",
    "auto-fail": r"([\d.]+)\s% auto-fail",
    "auto-pass": r"([\d.]+)\s% auto-pass",
    "review": r"([\d.]+)\s%(?: go)? to review",
}


class Surfaces(NamedTuple):
    """What each surface says of the certificates of one table."""

    calibration: pd.DataFrame
    document: dict[str, Any]
    terminal: str
    summary: str
    page: str
    card: str
    metadata: dict[str, Any]
    audit: dict[str, Any]
    audited: str


@pytest.fixture(params=TABLES)
def surfaces(
    request: pytest.FixtureRequest,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Surfaces:
    tasks, attempts, signal, asked = TABLES[request.param]
    rows = score_rows(tasks=2 * tasks, attempts=attempts, signal=signal, seed=5)
    rows["split"] = np.where(rows["task_id"].str[1:].astype(int) % 2, "test", "cal")
    calibration = rows[rows["split"] == "cal"]
    table, out, page = (tmp_path / name for name in ("scores.csv", "c.json", "c.html"))
    rows.to_csv(table, index=False)
    options = [word for name, value in asked.items() for word in (f"--{name}", value)]
    summary = tmp_path / "summary.md"
    with monkeypatch.context() as github:
        github.setenv("GITHUB_STEP_SUMMARY", str(summary))
        terminal = call("certificate", table, *options, "--out", out).out
    assert call("report", out, table, "--out", page).code == 0
    html = page.read_text("utf-8")
    return Surfaces(
        calibration,
        json.loads(out.read_text("utf-8")),
        " ".join(terminal.split()),
        summary.read_text("utf-8").replace("\\", ""),
        " ".join([*re.findall('aria-label="([^"]*)"', html), text_of(html)]),
        certify(calibration, **asked)._repr_html_(),
        materialized(tmp_path, asset="scores", path=table.name, **asked),
        call("audit", out, table, "--json").json,
        " ".join(call("audit", out, table).out.split()),
    )


def materialized(folder: Path, **attributes: Any) -> dict[str, Any]:
    """Return the metadata of the certificate of an asset that wrote the table."""
    scores = dg.AssetSpec("scores")
    made = Component.from_attributes_dict(attributes=attributes)
    context = dg.ComponentTree.for_test().load_context.for_path(folder)
    result = dg.materialize([scores, *(made.build_defs(context).assets or ())])
    (event,) = result.asset_materializations_for_node("scores_certificate")
    return {name: value.value for name, value in event.metadata.items()}


def issued(document: dict[str, Any]) -> dict[str, Any]:
    """Return certificates by the word of their side, without how their table was read."""
    apart = ("provenance", "digest")
    return {
        WORDS[item["side"]]: {name: of for name, of in item.items() if name not in apart}
        for item in document.get("certificates", [document])
    }


def counted(rows: pd.DataFrame, items: dict[str, Any]) -> dict[str, float]:
    """Return the shares in percent, counted in the table."""
    inside = {word: np.zeros(len(rows), dtype=bool) for word in ("auto-fail", "auto-pass")}
    for word, item in items.items():
        if item["certified"]:
            sign = 1 if word == "auto-fail" else -1
            inside[word] = sign * rows["score"] <= sign * item["threshold"]
    both = inside["auto-fail"] & inside["auto-pass"]
    found = {word: 100 * float((mine & ~both).mean()) for word, mine in inside.items()}
    decided = sum(found.values())
    return {**found, "decided": decided, "review": 100 - decided}


def said(text: str) -> dict[str, float]:
    """Return the shares that a text says."""
    found = {word: re.search(pattern, text) for word, pattern in SHARES.items()}
    return {word: float(match[1]) for word, match in found.items() if match}


def test_every_surface_says_the_same(surfaces: Surfaces) -> None:
    document, metadata = surfaces.document, surfaces.metadata
    items = issued(document)
    assert issued(metadata["certificate"]) == items
    shares = counted(surfaces.calibration, items)
    assert {word: 100 * metadata[word] for word in shares} == pytest.approx(shares, abs=1e-6)
    if len(items) == 2:
        for key, word in (("decided", "decided"), ("human", "review")):
            assert 100 * document[key] == pytest.approx(shares[word], abs=1e-6)
    bar = re.findall(r"</span> ([a-z-]+) ([\d.]+)\s%<", surfaces.card)
    assert {word: float(share) for word, share in bar} == pytest.approx(
        {word: shares[word] for word in WORDS.values()}, abs=0.051
    )
    certified = {word for word, item in items.items() if item["certified"]}
    sentence = re.search("<strong>(.*?)</strong>", surfaces.card)
    assert sentence and sentence[1] in surfaces.terminal
    average = any(item["promise"] == "average" for item in items.values())
    budget = "on average" if average else r"at most 10\s%"
    texts = (surfaces.terminal, surfaces.summary, surfaces.page, metadata["what it means"])
    for text in (sentence[1], *texts):
        assert not re.search("rejected|released|human review", text)
        assert bool(re.search("[Ee]very run goes to review", text)) == (not certified)
        found = said(text)
        assert found == pytest.approx({word: shares[word] for word in found}, abs=0.051)
        if certified:
            assert found.keys() >= {"decided", "review", *certified}
            assert re.search(budget, text)
    for held_out in surfaces.audit.get("audits", [surfaces.audit]) if certified else []:
        for text in (surfaces.audited, surfaces.page, metadata["held out"]):
            assert held_out["reason"] in text and held_out["verdict"] in text
