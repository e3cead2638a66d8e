"""docs/study.md and docs/harvest.md name the tables, profiles, gates and controls that there are."""

import re
from pathlib import Path

from certify_assets.judges.harvest.gate import SMALLEST
from certify_assets.judges.specs import HARVEST_JUDGES
from certify_assets.research import harvest_study as controls
from certify_assets.research.harvest_study import HarvestPlan
from certify_assets.research.pages.study_site import PAGES, study_tables
from certify_assets.research.study import PROFILES
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY

STUDY = (REPOSITORY / "docs/study.md").read_text("utf-8")
HARVEST = (REPOSITORY / "docs/harvest.md").read_text("utf-8")


def test_every_page_and_table_is_named(tmp_path: Path) -> None:
    rows = dict(re.findall(r"^\| `(\w+\.html)` \| (.*) \|$", STUDY, re.MULTILINE))
    assert list(rows) == [page.href for page in PAGES]
    for href, blocks in study_tables(Store(str(tmp_path))).items():
        assert re.findall(r"`(\w+)`", rows[href]) == [block.table.name for block in blocks]


def test_profiles_have_the_numbers_of_the_code() -> None:
    quick, full = PROFILES["quick"], PROFILES["full"]
    assert f"{quick.seeds} split seeds" in STUDY and f"{quick.trials} trials a design" in STUDY
    assert f"{full.seeds} seeds and {full.trials} trials" in STUDY


def test_gates_controls_and_rounds_are_those_of_the_code() -> None:
    gates = re.findall(r"^\| `(\w+)` \| half A|^\| `(\w+)` \| the same", HARVEST, re.MULTILINE)
    assert {name for pair in gates for name in pair if name} == set(HarvestPlan().gates)
    source = Path(str(controls.__file__)).read_text("utf-8")
    for name in ("labels_of_half_a", "verdict", "confidence", "as_many"):
        assert name in source and name in HARVEST
    assert f"at least {SMALLEST} tasks" in HARVEST
    assert all(f"`{name}`" in HARVEST for name in HARVEST_JUDGES)
