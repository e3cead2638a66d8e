"""Jobs of the study: what is made for one corpus, and the tables over all of them."""

import dagster as dg

from certify_assets.defs.names import chains, folder_of, judge_key, key
from certify_assets.judges.specs import HARVEST_JUDGES, JUDGES

# judges of the structure of a run have no stage yet: benchmarks/judges.py compares them
_JUDGES = [name for name in JUDGES if name not in {*HARVEST_JUDGES, "structure", "combined"}]
_TABLES = ("main_table", "certifiability", "simulation", "report")

# pages and monitors of judges are no part of it
study_job = dg.define_asset_job(
    "research_study",
    selection=(
        folder_of("corpora")
        | folder_of("research")
        | chains(*_JUDGES)
        | dg.AssetSelection.assets(key("judges/compact_model"))
    )
    - dg.AssetSelection.assets(
        key("corpora/report"),
        *(key(f"research/{name}") for name in _TABLES),
        *(judge_key(name, part) for name in _JUDGES for part in ("report", "monitor")),
    ),
    description="Make what the study needs of one corpus. `certify research study` runs it on "
    "every corpus, in three parts, without what is up to date.",
)

tables_job = dg.define_asset_job(
    "research_tables",
    selection=dg.AssetSelection.assets(*(key(f"research/{name}") for name in _TABLES)),
    description="Make the tables over all corpora, and the page.",
)
