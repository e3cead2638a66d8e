"""Studies of one corpus, a partition each, and tables over all corpora."""

from collections.abc import Mapping
from dataclasses import asdict

import dagster as dg
from pydantic import Field

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.assets import MaterializeResult, asset_step
from certify_assets.defs.checks import asked_together
from certify_assets.defs.names import RESEARCH_GROUP, RESULTS_GROUP, code_version
from certify_assets.defs.policies import KEPT_CURRENT
from certify_assets.defs.project import Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.files import canonical_json
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import comparison
from certify_assets.operations.checks import Verdict
from certify_assets.reports import comparison_page
from certify_assets.research import certifiability, real_scores, tables
from certify_assets.research import simulation_study as simulations
from certify_assets.storage.store import Store


class SimulationConfig(dg.Config):
    """What a run configures of the simulation."""

    trials: int = Field(300, description="Calibration sets a design.")
    seed: int = Field(42, description="Seed of all draws.")
    workers: int = Field(1, description="Processes; results do not depend on it.")


def comparison_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return the judges of a corpus side by side, and the table over all corpora."""

    @dg.asset(
        **project.about("corpora/comparison", RESULTS_GROUP),
        deps=[
            *(*project.every("certificate"), *project.every("audit")),
            project.key("corpora/leak_controls"),
        ],
        kinds={"json", "html"},
        automation_condition=KEPT_CURRENT,
    )
    def compared(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Compare every judge that scored the corpus with the leak controls.

        Shows AUROC with its interval, also within tasks, certified coverage, audit and cost. Names
        the best judge for each measure, judges that add nothing, and judges that are missing.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            corpus = step.corpus.name
            document = comparison.write_comparison(step.corpus)
            comparison_page.write_comparison_page(step.store, [document], corpus=corpus)
            metrics = comparison_page.comparison_metrics(document)
            metadata = {
                "judges": dg.MetadataValue.md(comparison_page.best_markdown([document])),
                "findings": [item["message"] for item in document["findings"]],
                "missing": dg.MetadataValue.json(document["missing"]),
                **comparison_page.plotted(metrics),
            }
            page = comparison.comparison_key(corpus, "comparison.html")
            return step.made(metadata, documents=_by_judge(metrics), page=page)

    @dg.asset(
        **project.about("research/main_table", RESEARCH_GROUP, partitions=None),
        deps=[compared],
        kinds={"json", "html"},
        automation_condition=KEPT_CURRENT,
    )
    def main_table(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Compare every judge on every corpus of the data root.

        Shows AUROC, certified coverage at both budgets, audit and cost.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            document = comparison.write_main_table(step.store)
            corpora, left_out = document["corpora"], document["left_out"]
            page = comparison_page.write_comparison_page(step.store, corpora, left_out)
            metadata = {
                "corpora": dg.MetadataValue.md(comparison_page.best_markdown(corpora)),
                "rows": sum(len(item["rows"]) for item in corpora),
                "left_out": dg.MetadataValue.json(left_out),
            }
            return step.made(metadata, page=page)

    return [compared, main_table]


def study_assets(project: Project) -> list[dg.AssetsDefinition]:
    """Return what the study makes, but for the comparison."""

    @dg.asset(
        **project.about("research/real_scores", RESEARCH_GROUP),
        deps=[project.key(f"judges/{name}/audit") for name in JUDGES],
        kinds={"json"},
    )
    def real_scores_of_judges(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Run every procedure on the scores of every audited judge.

        Certifies on CAL and on TEST itself. Adds the task-resampling audit of the naive procedure
        and the three gates. Judges without an audit are skipped.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            found = real_scores.write_real_scores(step.corpus, run_id=context.run.run_id)
            by_judge = {
                f"auroc_test_{item.judge}": item.auroc_test
                for item in found.judges
                if item.auroc_test is not None
            }
            missing = [asdict(item) for item in found.missing]
            metadata = {"judges": len(found.judges), "missing": missing, **by_judge}
            return step.made(metadata, documents=_by_judge(by_judge))

    @dg.asset(
        **project.about(
            "research/certifiability",
            RESEARCH_GROUP,
            code_version(schema=certifiability.CERTIFIABILITY_SCHEMA),
            partitions=None,
        ),
        deps=project.every("certificate"),
        kinds={"json"},
    )
    def certifiability_model(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Fit certified coverage against (1−π)(2A₀−1) over every corpus with certificates.

        Leaves out each corpus in turn, compares other forms, and says how far the fit can be
        trusted. With fewer than three corpora, only the points are stored.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            found, fit = certifiability.write_certifiability(step.store), {}
            if found.law is not None:
                fit = {"slope": found.law.slope, "intercept": found.law.intercept}
            metadata = {
                "corpora": len(found.measured),
                "findings": [message for _, message in found.findings],
                "left_out": dict(found.left_out),
            }
            return step.made(metadata, metrics=fit)

    @dg.asset(
        **project.about("research/simulation", RESEARCH_GROUP, partitions=None),
        kinds={"json"},
    )
    def simulation(
        context: dg.AssetExecutionContext,
        config: SimulationConfig,
        data_root: DataRoot,
        mlflow: MlflowTracker,
    ) -> MaterializeResult:
        """Measure violation and coverage of every procedure on simulated data.

        Covers the paper's process, three adversarial designs, and designs in which the score cannot
        show the errors. True errors are computed by quadrature. Takes about ten CPU minutes.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            simulations.run_study(
                step.store,
                **config.model_dump(),
                progress=lambda cell, done, total: context.log.info(
                    f"{done:,} of {total:,}: {cell.title}"
                ),
            )
            return step.made({}, params=config.model_dump())

    @dg.asset(
        **project.about("research/report", RESEARCH_GROUP, partitions=None),
        deps=[project.key("corpora/profile"), real_scores_of_judges, simulation],
        kinds={"html"},
    )
    def report(
        context: dg.AssetExecutionContext, data_root: DataRoot, mlflow: MlflowTracker
    ) -> MaterializeResult:
        """Draw the tables of the paper next to ours, as one page and as CSV.

        Missing parts are marked as not run.
        """
        with asset_step(project, context, data_root, mlflow) as step:
            tables.write_study(step.store)
            return step.made({}, page=tables.STUDY_PAGE)

    return [real_scores_of_judges, certifiability_model, simulation, report]


def _by_judge(figures: Mapping[str, float | None]) -> dict[str, str]:
    """Return them as a document: MLflow sorts no judges by metrics that have their names."""
    return {"by_judge.json": canonical_json(dict(figures)).decode("utf-8")}


def comparison_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the comparison of a corpus's judges."""
    return [asked_together(project, {"corpora/comparison": [beats_controls, same_rows]})]


def research_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of studies and tables."""
    asked = {"research/certifiability": [certifiability_model_honest]}
    return [asked_together(project, asked, partitioned=False)]


def beats_controls(corpus: Corpus) -> Verdict:
    """Every judge of a language model, or of the structure of a run, ranks better than controls.

    Its interval must lie above length alone and agent alone; for structure also above steps alone.
    A judge that fails this may have learnt a leak.
    """
    document = corpus.store.read_json(comparison.comparison_key(corpus.name))
    said = comparison.beaten_by_controls(document)
    read = ", ".join(comparison.controls_to_beat(document))
    above = (
        f"{read}: above all controls that they must beat."
        if read
        else "no judge of a language model or of structure has scored this corpus."
    )
    return Verdict.of(not said, " ".join(said) or above, otherwise="WARN")


def same_rows(corpus: Corpus) -> Verdict:
    """All judges scored the same labelled CAL rows, all of them."""
    document = corpus.store.read_json(comparison.comparison_key(corpus.name))
    said = comparison.unscored_sentences(document)
    every = f"{document['cal']['trajectories']:,} rows, scored by every judge."
    return Verdict.of(not said, " ".join(said) or every, otherwise="WARN")


def certifiability_model_honest(store: Store) -> Verdict:
    """The fit has at least seven corpora, as in the paper, and depends on no single one.

    A₀ must be that of the untrained judge. WARN says which of this does not hold.
    """
    found = certifiability.doubts(store)
    said = (
        "seven corpora or more, the fit depends on no single one, and A₀ is that of the untrained "
        "judge on all."
    )
    return Verdict.of(not found, " ".join(found) or said, otherwise="WARN")
