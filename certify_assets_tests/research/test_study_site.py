"""The site of the study: numbers are those of the documents, what is not there says so, everything
is escaped, and a browser opens it from disk.
"""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.research import paper
from certify_assets.research.harvest_study import HarvestPlan, run_harvests
from certify_assets.research.pages.study_site import PAGES, study_tables, write_study_site
from certify_assets.research.seed_study import SeedPlan, run_seeds
from certify_assets.research.study import RUN_KEY, SITE
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.pages import assert_fits
from certify_assets_tests.paths import assert_painted, benchmark
from certify_assets_tests.study_builders import named, studied

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>|_$"


def rows_of(store: Store, name: str) -> list[dict[str, str]]:
    return list(
        csv.DictReader(io.StringIO(store.read_bytes(f"{SITE}/tables/{name}.csv").decode("utf-8")))
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("site")
    found = Store(str(folder / "root"))
    register_runs(found, "c", write_runs(folder / "c.jsonl", tasks=130, attempts=4), rl=True)
    names = ("splits", "lexical", "agents", "real_scores", "comparison", "law")
    studied(found, ["c"], named(*names))
    run_seeds(
        Corpus(found, "c"), SeedPlan(seeds=(42, 43), procedures=("naive", "guarded_taskboot"))
    )
    run_harvests(
        Corpus(found, "c"),
        HarvestPlan(
            alphas=(0.2,), gates=("guarded_taskboot",), sides=("reject",), profiles=("certify",)
        ),
    )
    agents = found.read_json("comparison/c/agent_disjoint_lexical.json")
    agents["folds"][0]["agents"] = [HOSTILE]
    found.write_json("comparison/c/agent_disjoint_lexical.json", agents)
    run = found.read_json(RUN_KEY)
    run["stages"][0]["reason"] = HOSTILE
    found.write_json(RUN_KEY, run)
    write_study_site(found)
    return found


def test_our_rows_are_those_of_the_documents(store: Store) -> None:
    document = store.read_json("real_scores/c.json")
    judge = document["judges"][0]
    cells = {(cell["side"], cell["alpha"], cell["procedure"]): cell for cell in judge["cells"]}
    main = {row["procedure"]: row for row in rows_of(store, "main") if row["corpus"] == "c"}
    for procedure in ("taskboot", "pseudo_task"):
        assert float(main[procedure]["coverage lexical"]) == pytest.approx(
            cells["reject", 0.1, procedure]["test_coverage"], abs=6e-4
        )
    assert float(main["taskboot"]["AUROC lexical"]) == pytest.approx(judge["auroc_test"], abs=6e-4)
    assert main["taskboot"]["AUROC sft"] == "not run"
    seeds = {
        (row["side"], row["α"], row["procedure"], row["certified on"]): row
        for row in rows_of(store, "seeds")
    }
    frequencies = store.read_json("seeds/c.json")["frequencies"]
    for found in frequencies:
        place = found["side"], f"{found['alpha']:g}", found["procedure"], found["rows"]
        assert seeds[place]["certified"] == f"{found['certified']} of 2"
    totals = {(row["procedure"], row["certified on"]): row for row in rows_of(store, "seed_totals")}
    assert len(totals) == 4
    for (procedure, rows), total in totals.items():
        mine = [one for one in frequencies if (one["procedure"], one["rows"]) == (procedure, rows)]
        assert total["certified"] == f"{sum(one['certified'] for one in mine)} of 8"
        mean = sum(one["coverage"] for one in mine) / 4
        assert float(total["mean coverage"]) == pytest.approx(mean, abs=6e-5)
        guarded = float(totals["guarded_taskboot", "cal"]["mean coverage"])
        assert float(total["of guarded, CAL"]) == pytest.approx(mean / guarded, abs=0.006)
    loop = store.read_json("harvests/c/lexical.json")["loops"][0]
    made = [row for row in loop["rounds"] if row.get("harvest", {}).get("size")]
    assert [row["harvest"] for row in rows_of(store, "harvests") if row["whose"] == "ours"] == [
        f"{row['harvest']['size']}/{row['harvest']['pool']}" for row in made
    ]
    assert made
    hours = next(
        row
        for row in rows_of(store, "cost")
        if row["whose"] == "ours" and row["procedure"] == "taskboot"
    )
    assert float(hours["reviewer-hours saved"]) == pytest.approx(
        100 * cells["reject", 0.1, "taskboot"]["test_coverage"], abs=0.06
    )


def test_every_table_names_its_documents_and_their_hashes(store: Store) -> None:
    for blocks in study_tables(store).values():
        for block in blocks:
            assert (
                block.sources
                or not any(row[0] == "ours" for row in block.table.rows)
                or block.table.name == "frontier"
            ), block.table.name
            for key, digest in block.sources:
                assert store.sha256(key) == digest
            assert all(len(row) == len(block.table.columns) for row in block.table.rows), (
                block.table.name
            )
    page = store.read_bytes(f"{SITE}/seeds.html").decode("utf-8")
    assert store.sha256("seeds/c.json") in page


def test_the_same_documents_give_the_same_bytes(store: Store) -> None:
    names = [f"{SITE}/{name}" for name in store.names(SITE) if "." in name] + [
        f"{SITE}/tables/{name}" for name in store.names(f"{SITE}/tables")
    ]
    before = {name: store.sha256(name) for name in names}
    write_study_site(store)
    assert {name: store.sha256(name) for name in names} == before and len(names) > 60


def test_text_from_data_is_escaped_everywhere(store: Store) -> None:
    for name in store.names(SITE):
        text = store.read_bytes(f"{SITE}/{name}").decode("utf-8") if name.endswith(".html") else ""
        assert "<script" not in text
    assert "&lt;script&gt;" in store.read_bytes(f"{SITE}/transfer.html").decode("utf-8")
    assert "&lt;script&gt;" in store.read_bytes(f"{SITE}/run.html").decode("utf-8")
    assert r"\<script\>" in store.read_bytes(f"{SITE}/tables/agents.md").decode("utf-8")
    assert r"\_\$" in store.read_bytes(f"{SITE}/tables/agents.tex").decode("utf-8")


def test_an_empty_root_holds_the_papers_rows_and_the_commands(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_study_site(store)
    blocks = {block.table.name: block for found in study_tables(store).values() for block in found}
    assert {row[0] for row in blocks["main"].table.rows} == {"paper"}
    assert any(
        "certify research study miniwob_mixed" in item and "not run" in item
        for item in blocks["main"].missing
    )
    for name in (
        "corpora",
        "gates",
        "procedures",
        "naive_audit",
        "audits",
        "seeds",
        "self_training",
        "transfer",
        "arms",
        "simulation",
        "cost",
        "stages",
    ):
        assert blocks[name].missing, name
    assert "needs a hosted model" in blocks["frontier"].table.rows[0]


def test_the_papers_rows_are_those_that_are_computed_with() -> None:
    coverages = benchmark("paper_facts").coverages
    words = {"base": 0, "SFT": 1}
    for corpus, aurocs, shares, *_ in paper.table("main_rows"):
        for judge, place in words.items():
            known = coverages().get((corpus, judge))
            assert known is None or shares[place] == known
        assert aurocs[0] == paper.corpora()[corpus].auroc
    for corpus, judge, shares in paper.table("real_rows"):
        known = coverages(on_test=True).get((corpus, judge.split(",")[0]))
        assert known is None or shares[-1] == known
    for found in paper.corpora().values():
        assert round(found.rows / found.deff) == pytest.approx(found.n_eff, rel=0.03)
    for corpus, hours in paper.table("costs"):
        row = next(row for row in paper.table("main_rows") if row[0] == corpus)
        assert float(hours) == pytest.approx(100 * (row[2][2] or 0.0), abs=0.01)


@pytest.mark.slow
def test_arms_are_those_of_their_audit(arms_store: Store) -> None:
    document = arms_store.read_json("judges/grpo/small/arms_audit.json")
    table = next(
        block.table
        for block in study_tables(arms_store)["results.html"]
        if block.table.name == "arms"
    )
    ours = [row for row in table.rows if row[0] == "ours"]
    names = [
        candidate["name"] for cell in document["plan"]["cells"] for candidate in cell["candidates"]
    ]
    assert [row[4] for row in ours] == names
    assert sum(row[-1] == "chosen on CAL" for row in ours) == len(document["plan"]["cells"])
    first = document["results"][names[0]]["audits"][0]
    assert float(ours[0][6].replace("–", "0")) == pytest.approx(first["coverage"] or 0.0, abs=6e-4)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 420])
def test_the_site_opens_from_disk_and_every_link_leads_somewhere(
    browser: Any, store: Store, tmp_path: Path, width: int
) -> None:
    context = browser.new_context(
        java_script_enabled=False, viewport={"width": width, "height": 900}
    )
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    site = Path(store.locate(SITE))
    for name in ("index.html", *(item.href for item in PAGES)):
        asked.clear()
        page.goto((site / name).as_uri())
        assert asked == [(site / name).as_uri()], "a page loads nothing else"
        assert_fits(page, width)
        targets = [link.get_attribute("href") for link in page.locator("a[href]").all()]
        assert targets
        assert all(target.startswith("#") or (site / target).is_file() for target in targets)
        assert page.get_by_role("heading", level=1).count() == 1
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="Validity over split seeds").click()
    page.get_by_role("heading", name="Validity over split seeds", level=1).wait_for()
    page.goto((site / "results.html").as_uri())
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert_painted(tmp_path / "page.png")
    if width > 1000:
        # what lies between the margins of A4 on its side, at 96 dots an inch
        page.set_viewport_size({"width": 1024, "height": 900})
        page.emulate_media(media="print")
        for item in PAGES:
            page.goto((site / item.href).as_uri())
            assert_fits(page, 1024)
        page.goto((site / "results.html").as_uri())
        paper = page.pdf(prefer_css_page_size=True, print_background=True)
        assert paper.startswith(b"%PDF") and len(re.findall(rb"/Type /Page\n", paper)) >= 2
    context.close()
