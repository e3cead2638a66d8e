"""Studies of one corpus, a partition each, and tables over all corpora."""

from collections.abc import Mapping
from dataclasses import asdict

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.assets import AssetStep, Made, asset
from certify_assets.defs.names import RESEARCH_GROUP, RESULTS_GROUP, code_version
from certify_assets.defs.policies import KEPT_CURRENT
from certify_assets.defs.project import Project
from certify_assets.files import canonical_json
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import comparison
from certify_assets.reports import comparison_page
from certify_assets.research import certifiability, real_scores, tables
from certify_assets.research import simulation_study as simulations

_SIMULATION = {
    "trials": dg.Field(int, default_value=300, description="Calibration sets a design."),
    "seed": dg.Field(int, default_value=42, description="Seed of all draws."),
    "workers": dg.Field(
        int, default_value=1, description="Processes; results do not depend on it."
    ),
}


def comparison_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return the judges of a corpus side by side, and the table over all corpora."""
    return [plan.definition(project) for plan in (comparison_of_judges, main_table_of_judges)]


def study_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return what the study makes, but for the comparison."""
    plans = (real_scores_of_judges, certifiability_model, simulation_study, study_report)
    return [plan.definition(project) for plan in plans]


@asset(
    "corpora/comparison",
    RESULTS_GROUP,
    deps=["judges/*/certificate", "judges/*/audit", "corpora/leak_controls"],
    kinds={"json", "html"},
    automation_condition=KEPT_CURRENT,
)
def comparison_of_judges(step: AssetStep) -> Made:
    """Compare every judge that scored the corpus with the leak controls.

    Shows AUROC with its interval, also within tasks, certified coverage, audit and cost. Names
    the best judge for each measure, judges that add nothing, and judges that are missing.
    """
    store, corpus = step.store, step.corpus.name
    document = comparison.write_comparison(Corpus(store, corpus))
    comparison_page.write_comparison_page(store, [document], corpus=corpus)
    metrics = comparison_page.comparison_metrics(document)
    metadata = {
        "judges": dg.MetadataValue.md(comparison_page.best_markdown([document])),
        "findings": [item["message"] for item in document["findings"]],
        "missing": dg.MetadataValue.json(document["missing"]),
        **comparison_page.plotted(metrics),
    }
    page = comparison.comparison_key(corpus, "comparison.html")
    return step.made(metadata, documents=_by_judge(metrics), page=page)


@asset(
    "research/main_table",
    RESEARCH_GROUP,
    deps=["corpora/comparison"],
    kinds={"json", "html"},
    automation_condition=KEPT_CURRENT,
    partitions_def=None,
)
def main_table_of_judges(step: AssetStep) -> Made:
    """Compare every judge on every corpus of the data root.

    Shows AUROC, certified coverage at both budgets, audit and cost.
    """
    document = comparison.write_main_table(step.store)
    page = comparison_page.write_comparison_page(
        step.store, document["corpora"], document["left_out"]
    )
    metadata = {
        "corpora": dg.MetadataValue.md(comparison_page.best_markdown(document["corpora"])),
        "rows": sum(len(item["rows"]) for item in document["corpora"]),
        "left_out": dg.MetadataValue.json(document["left_out"]),
    }
    return step.made(metadata, page=page)


@asset(
    "research/real_scores",
    RESEARCH_GROUP,
    deps=[f"judges/{name}/audit" for name in JUDGES],
    kinds={"json"},
)
def real_scores_of_judges(step: AssetStep) -> Made:
    """Run every procedure on the scores of every audited judge.

    Certifies on CAL and on TEST itself. Adds the task-resampling audit of the naive procedure and
    the three gates. Judges without an audit are skipped.
    """
    found = real_scores.write_real_scores(step.corpus, run_id=step.run_id)
    by_judge = {
        f"auroc_test_{item.judge}": item.auroc_test
        for item in found.judges
        if item.auroc_test is not None
    }
    missing = [asdict(item) for item in found.missing]
    metadata = {"judges": len(found.judges), "missing": missing, **by_judge}
    return step.made(metadata, documents=_by_judge(by_judge))


@asset(
    "research/certifiability",
    RESEARCH_GROUP,
    code_version=code_version(schema=certifiability.CERTIFIABILITY_SCHEMA),
    deps=["judges/*/certificate"],
    kinds={"json"},
    partitions_def=None,
)
def certifiability_model(step: AssetStep) -> Made:
    """Fit certified coverage against (1−π)(2A₀−1) over every corpus with certificates.

    Leaves out each corpus in turn, compares other forms, and says how far the fit can be
    trusted. With fewer than three corpora, only the points are stored.
    """
    found, fit = certifiability.write_certifiability(step.store), {}
    if found.law is not None:
        fit = {"slope": found.law.slope, "intercept": found.law.intercept}
    metadata = {
        "corpora": len(found.measured),
        "findings": [message for _, message in found.findings],
        "left_out": dict(found.left_out),
    }
    return step.made(metadata, metrics=fit)


@asset(
    "research/simulation",
    RESEARCH_GROUP,
    kinds={"json"},
    partitions_def=None,
    config_schema=_SIMULATION,
)
def simulation_study(step: AssetStep) -> Made:
    """Measure violation and coverage of every procedure on simulated data.

    Covers the paper's process, three adversarial designs, and designs in which the score cannot
    show the errors. True errors are computed by quadrature. Takes about ten CPU minutes.
    """
    simulations.run_study(
        step.store,
        **step.config,
        progress=lambda cell, done, total: step.context.log.info(
            f"{done:,} of {total:,}: {cell.title}"
        ),
    )
    return step.made({}, params=step.config)


@asset(
    "research/report",
    RESEARCH_GROUP,
    deps=["corpora/profile", "research/real_scores", "research/simulation"],
    kinds={"html"},
    partitions_def=None,
)
def study_report(step: AssetStep) -> Made:
    """Draw the tables of the paper next to ours, as one page and as CSV.

    Missing parts are marked as not run.
    """
    tables.write_study(step.store)
    return step.made({}, page=tables.STUDY_PAGE)


def _by_judge(figures: Mapping[str, float | None]) -> dict[str, str]:
    """Return them as a document: MLflow sorts no judges by metrics that have their names."""
    return {"by_judge.json": canonical_json(dict(figures)).decode("utf-8")}
