"""What pages, overview and comparison say of a harvest judge, and of one whose gate closed."""

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import StaleCertificateError
from certify_assets.operations.audit import audit_judge, overview
from certify_assets.operations.certifier import load_certificates
from certify_assets.operations.comparison import compare, unscored_sentences
from certify_assets.reports.comparison_page import comparison_tables
from certify_assets.reports.index_page import write_index
from certify_assets.reports.judge_page import write_page
from certify_assets.research.certifiability import gather_points
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, score_as_base
from certify_assets_tests.conftest import copy_world
from certify_assets_tests.judges.harvest.test_loop import FIRST, made, prepared

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shown")
    store = prepared(folder, tasks=160)
    for judge in ("lexical", FIRST):
        made(store, judge)
        audit_judge(judged(store, "c", judge))
        write_page(judged(store, "c", judge))
    return folder / "root"


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    return copy_world(template, tmp_path)


def test_page_index_overview_and_comparison_say_half_b_and_pseudo_labels(store: Store) -> None:
    size = store.read_json(f"judges/{FIRST}/c/adapter.json")["harvest"]["size"]
    page, home = (
        store.read_bytes(f"judges/{name}/c/page.html").decode() for name in (FIRST, "lexical")
    )
    for words in (
        "half B of CAL",
        f"{size} runs of RL were taken as failures",
        f"and {size} runs of RL with pseudo-labels",
        "was wrong on half B of CAL",
    ):
        assert words in page and words not in home
    assert "tasks in CAL;" not in page and "effective runs in CAL" not in page
    write_index(store)
    assert store.read_bytes("index.html").decode().count("Certified on half B of CAL alone.") == 1
    shown = {judge["judge"]: judge for judge in overview(Corpus(store, "c"))["judges"]}
    assert shown[FIRST]["certified_on"] == "cal_half_b"
    assert shown["lexical"]["certified_on"] == "rl and cal"
    document = compare(Corpus(store, "c"))
    found = {item["code"]: item["message"] for item in document["findings"]}
    assert FIRST in found["half_of_cal"]
    counted = {row["judge"]: row for row in document["rows"]}
    assert counted[FIRST]["unscored"] > 0 == counted["lexical"]["unscored"]
    (other,) = unscored_sentences(document)
    scored = counted[FIRST]["rows"] - counted[FIRST]["unscored"]
    assert f"alone: {scored} of" in other and other.startswith(FIRST) and "half B" in other
    tables = {table.name: table for table in comparison_tables([document])}
    rows = {row[1]: row for row in tables["certified"].rows}
    assert (rows["lexical"][-1], rows[FIRST][-1]) == ("80 (RL and CAL)", "32 (half B)")
    assert {row[1] for row in tables["ranking"].rows if "(trained on)" in row[6]} == {FIRST}


def test_a_stale_judge_or_a_gate_that_closed_hides_no_other(store: Store) -> None:
    score_as_base(store, "c")
    before = {item.point.corpus: item for item in gather_points(store)[0]}["c"]
    store.delete(f"judges/{FIRST}/c/adapter.json")
    key = f"judges/{FIRST}/c/harvest.json"
    store.write_json(key, {**store.read_json(key), "reason": "too few tasks."})
    with pytest.raises(
        StaleCertificateError, match="is closed now, so there is no such judge: too few tasks"
    ):
        load_certificates(judged(store, "c", FIRST))
    found = overview(Corpus(store, "c"))
    assert [judge["judge"] for judge in found["judges"]] == ["lexical"]
    assert "closed now" in found["stale"][FIRST]
    now = {item.point.corpus: item for item in gather_points(store)[0]}["c"]
    assert now.point.auroc == before.point.auroc and FIRST in now.without
    assert (before.judges, now.judges) == (2, 1)
    write_index(store)
    assert "closed now" in store.read_bytes("index.html").decode()
