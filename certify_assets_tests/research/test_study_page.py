"""The page of the study: numbers are those of the documents, what is not there says so."""

import csv
import io
from pathlib import Path

import pytest

from certify_assets.research.tables import STUDY_PAGE, study_tables, table_key, write_study
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.study_builders import studied

HOSTILE = "<script>alert(1)</script>|_$"


def rows_of(store: Store, name: str) -> list[dict[str, str]]:
    text = store.read_bytes(table_key(name)).decode("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("study_page")
    found = Store(str(folder / "root"))
    register_runs(found, "c", write_runs(folder / "c.jsonl", tasks=130, attempts=4), rl=True)
    studied(found, ["c"])
    scores = found.read_json("real_scores/c.json")
    scores["judges"].append({**scores["judges"][0], "judge": HOSTILE})
    found.write_json("real_scores/c.json", scores)
    write_study(found)
    return found


@pytest.mark.slow
def test_our_rows_are_those_of_the_documents(store: Store) -> None:
    judge = store.read_json("real_scores/c.json")["judges"][0]
    cells = {
        cell["procedure"]: cell
        for cell in judge["cells"]
        if (cell["side"], cell["alpha"]) == ("reject", 0.1)
    }
    main = {row["procedure"]: row for row in rows_of(store, "main") if row["corpus"] == "c"}
    assert main["taskboot"]["AUROC sft"] == "not run"
    shown = {
        row["scores"]: row for row in rows_of(store, "procedures") if row["judge"] == "lexical"
    }
    pairs = [(main["taskboot"]["AUROC lexical"], judge["auroc_test"])]
    for name in ("taskboot", "pseudo_task"):
        pairs.append((main[name]["coverage lexical"], cells[name]["test_coverage"]))
    for name in ("naive", "taskboot", "guarded_taskboot", "betting"):
        pairs.append((shown["TEST"][name], cells[name]["on_test"]))
        pairs.append((shown["CAL"][name], cells[name]["coverage"]))
    for text, value in pairs:
        assert float(text) == pytest.approx(value, abs=6e-4)


@pytest.mark.slow
def test_the_page_escapes_texts_and_links_its_tables(store: Store) -> None:
    page = store.read_bytes(STUDY_PAGE).decode("utf-8")
    assert "<script" not in page and "&lt;script&gt;alert" in page
    for item in study_tables(store):
        assert all(len(row) == len(item.table.columns) for row in item.table.rows)
        assert f'href="tables/{item.table.name}.csv"' in page
    before = store.sha256(STUDY_PAGE)
    write_study(store)
    assert store.sha256(STUDY_PAGE) == before


def test_an_empty_root_holds_the_papers_rows_and_the_commands(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_study(store)
    tables = {item.table.name: item for item in study_tables(store)}
    assert {row[0] for row in tables["main"].table.rows} == {"paper"}
    assert all(item.missing for item in tables.values())
    assert any(
        "certify research study miniwob_mixed" in item and "not run" in item
        for item in tables["main"].missing
    )
