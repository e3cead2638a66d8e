"""Assets over all corpora: the certifiability model."""

from typing import Any

import dagster as dg

from certify_assets.defs.names import OWNERS, RESEARCH_GROUP, judge_key
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.defs.study.full import full_study_assets
from certify_assets.defs.study.whole import study_run
from certify_assets.judges.specs import judges
from certify_assets.research import certifiability
from certify_assets.research.pages import law_page

__all__ = ["study_assets"]

_STUDY: dict[str, Any] = {
    "key_prefix": "research",
    "group_name": RESEARCH_GROUP,
    "owners": OWNERS,
    "code_version": "1",
}


@dg.asset(
    name="certifiability",
    # every partition of each: the model is over all corpora
    deps=[judge_key(judge, "certificate") for judge in judges()],
    kinds={"json", "html"},
    description=(
        "Certified coverage against (1−π)(2A₀−1) over every corpus with certificates: the fit leave-one-corpus-out, the forms beside the "
        "paper's, what each corpus does to it, and how far it can be trusted. With fewer than three corpora it shows the points and says so."
    ),
    **_STUDY,
)
def certifiability_model(
    context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
) -> dg.MaterializeResult[Any]:
    """Fit the certifiability law to the data root."""
    store = data_root.store()
    found = certifiability.write_certifiability(store)
    page = law_page.render_law(found)
    metrics = law_page.law_metrics(found)
    return dg.MaterializeResult(
        metadata={
            "law": dg.MetadataValue.md(law_page.law_markdown(found)),
            **metrics,
            "corpora": len(found.measured),
            "left_out": dg.MetadataValue.json(dict(found.left_out)),
            "page": dg.MetadataValue.path(law_page.write_law_page(store, page)),
            **mlflow.record(
                context, store, metrics=metrics, documents={"certifiability.html": page}
            ),
        }
    )


def study_assets() -> list[dg.AssetsDefinition]:
    """Return every asset of this domain."""
    return [certifiability_model, *full_study_assets(), study_run]
