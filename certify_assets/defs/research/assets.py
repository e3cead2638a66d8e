"""Studies of one corpus, a partition each, and tables over all corpora."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.assets import AssetStep, Made, asset
from certify_assets.defs.automation import KEPT_CURRENT
from certify_assets.defs.corpora.assets import skip
from certify_assets.defs.judges.training import attempted, progress_lines
from certify_assets.defs.names import CORPORA_GROUP, RESEARCH_GROUP, code_version, judge_key, key
from certify_assets.defs.pool import on_device, on_device_of_any_judge
from certify_assets.defs.setup import judges
from certify_assets.evaluation import agent_folds, comparison
from certify_assets.files import canonical_json
from certify_assets.judges.specs import JUDGES
from certify_assets.reports import comparison_page
from certify_assets.reports.wording import home_of
from certify_assets.research import certifiability, study
from certify_assets.research import simulation_study as simulations
from certify_assets.research.pages import law_page

_compared = partial(asset, "corpora", CORPORA_GROUP)
_table = partial(asset, "research", RESEARCH_GROUP, partitions_def=None)
_study = partial(asset, "research", RESEARCH_GROUP, kinds={"json"})
_GROUND = [key(f"corpora/{name}") for name in ("trajectories", "split_manifest", "leak_controls")]


class AgentFoldsConfig(dg.Config):
    """What is trained without some agents."""

    judges: list[str] = Field(
        default=["lexical"],
        description="Judges that are trained on SFT; those that have not scored the corpus are "
        "passed over. A language model trains once a fold, minutes each.",
    )
    folds: int = Field(default=4, description="Groups of agents, 2 to 4.")
    seed: int = Field(default=42, description="Seed of the groups.")


class SeedConfig(dg.Config):
    """What is drawn."""

    seeds: int = Field(default=20, description="Split seeds, from 42 on.")


class SimulationConfig(dg.Config):
    """What the study runs."""

    trials: int = Field(default=300, description="Calibration sets a design.")
    seed: int = Field(default=42, description="Seed of all draws.")
    workers: int = Field(default=1, description="Processes; results do not depend on it.")
    tasks: list[int] = Field(
        default=[], description="Tasks in a calibration set; empty for each design's own."
    )
    rhos: list[float] = Field(
        default=[], description="Nominal label ICCs; empty for each design's own."
    )
    procedures: list[str] = Field(
        default=list(simulations.KEPT_PROCEDURES),
        description="As `certify research simulate --procedure` takes them.",
    )


def comparison_assets() -> list[dg.AssetsDefinition]:
    """Return the judges of a corpus side by side, and the table over all corpora."""
    return [agent_disjoint, comparison_of_judges, main_table_of_judges]


def study_assets() -> list[dg.AssetsDefinition]:
    """Return the studies of a corpus."""
    return [seed_study, harvests, harvests_lm, harvests_transfer, real_scores]


def table_assets() -> list[dg.AssetsDefinition]:
    """Return what is made over all corpora, but for the main table."""
    return [certifiability_model, simulation_study, study_report]


def _by_judge(figures: Mapping[str, float | None]) -> dict[str, str]:
    """Return them as a document: MLflow sorts no judges by metrics that have their names."""
    return {"by_judge.json": canonical_json(dict(figures)).decode("utf-8")}


@_compared(
    deps=[judge_key(name, "scores") for name in agent_folds.fold_judges() if name in judges()]
    + [key("corpora/sft_split"), key("corpora/cal_split")],
    kinds={"json"},
    **on_device_of_any_judge(),
    description="Evaluate judges on runs of agents they have never seen: trained on the SFT runs "
    "of some agents, read on CAL runs of the others, next to the judge trained on all, on the "
    "same rows.",
)
def agent_disjoint(step: AssetStep, config: AgentFoldsConfig) -> Made:
    """Evaluate the judges that are there; what is missing is listed."""
    found, left_out = agent_folds.evaluate_scored(
        step.corpus, config.judges, folds=config.folds, seed=config.seed
    )
    metrics = {f"unseen_{item['judge']}": item["disjoint"]["auroc"]["value"] for item in found}
    said = " ".join(item["sentence"] for item in found)
    metadata = {
        "unseen_agents": dg.MetadataValue.md(comparison_page.folds_markdown(found)),
        "said": dg.MetadataValue.text(
            said or "no judge that trains on SFT has scored this corpus."
        ),
        **{name: value for name, value in metrics.items() if value is not None},
        "left_out": dg.MetadataValue.json(left_out),
    }
    params = {"folds": config.folds, "seed": config.seed}
    return step.made(metadata, params=params, documents=_by_judge(metrics))


@_compared(
    name="comparison",
    # those of the user's document too
    deps=[judge_key(name, part) for name in judges() for part in ("certificate", "audit")]
    + [agent_disjoint, key("corpora/leak_controls")],
    kinds={"json", "html"},
    automation_condition=KEPT_CURRENT,
    description="Compare every judge that scored the corpus with the leak controls: AUROC and its "
    "interval, within tasks too, certified coverage, audit, cost; which is best at what, and what "
    "does not help. Judges that are not there are named, not waited for.",
)
def comparison_of_judges(step: AssetStep) -> Made:
    """Compare what is stored in the data root."""
    store, corpus = step.store, step.corpus.name
    document = comparison.write_comparison(Corpus(store, corpus))
    home = comparison_page.comparison_home(corpus)
    page = comparison_page.render_comparison([document], home=home)
    metrics = comparison_page.comparison_metrics(document)
    location = comparison_page.write_comparison_page(store, page, corpus)
    metadata = {
        "judges": dg.MetadataValue.md(comparison_page.comparison_markdown(document)),
        "findings": dg.MetadataValue.json([item["message"] for item in document["findings"]]),
        "missing": dg.MetadataValue.json(document["missing"]),
        **comparison_page.plotted(metrics),
    }
    documents = {"comparison.html": page, **_by_judge(metrics)}
    return step.made(metadata, documents=documents, page=location)


@_table(
    name="main_table",
    # every partition: the table is over all corpora
    deps=[comparison_of_judges],
    kinds={"json", "html"},
    automation_condition=KEPT_CURRENT,
    description="Compare every judge on every corpus of the data root: AUROC, certified coverage "
    "at both budgets, audit, cost; as page, CSV, Markdown and LaTeX.",
)
def main_table_of_judges(step: AssetStep) -> Made:
    """Compare every corpus again, so that the table is of what is stored now."""
    document = comparison.write_main_table(step.store)
    page = comparison_page.render_comparison(
        document["corpora"], document["left_out"], home=comparison_page.comparison_home()
    )
    comparison_page.write_main_exports(step.store, document["corpora"])
    metadata = {
        "corpora": dg.MetadataValue.md(comparison_page.table_markdown(document["corpora"])),
        "rows": sum(len(item["rows"]) for item in document["corpora"]),
        "left_out": dg.MetadataValue.json(document["left_out"]),
    }
    location = comparison_page.write_comparison_page(step.store, page)
    return step.made(metadata, documents={"main_table.html": page}, page=location)


@_study(
    deps=_GROUND,
    description="Split, judge, certify and audit the corpus again for every seed: how often each "
    "procedure issued a certificate, and how often that was true on TEST. Registered before TEST "
    "is read; a killed study resumes.",
)
def seed_study(step: AssetStep, config: SeedConfig) -> Made:
    """Run the lexical judge over split seeds."""
    from certify_assets.research.pages.study_site import seeds_metrics
    from certify_assets.research.seed_study import SeedPlan, run_seeds

    found = run_seeds(
        step.corpus,
        SeedPlan(seeds=tuple(range(42, 42 + config.seeds))),
        run_id=step.run_id,
        say=step.context.log.info,
    )
    metrics = seeds_metrics(found)
    return step.made(metrics, params=config.model_dump(), metrics=metrics)


@_study(
    deps=_GROUND,
    description="Compare every harvest of the lexical judge: three gates, both budgets and sides, "
    "both split profiles, two rounds; with labels spent on training instead, cuts without a "
    "certificate, contamination by the withheld labels, and how far each harvest is from its "
    "pool.",
)
def harvests(step: AssetStep) -> Made:
    """Run the study of harvests of one corpus."""
    from certify_assets.reports.harvest_table import harvest_markdown
    from certify_assets.research.harvest_study import run_harvests

    document = run_harvests(step.corpus, run_id=step.run_id, say=step.context.log.info)
    counts = {
        "harvests": document["harvests"],
        "within_budget": document["within_budget"],
        "beyond_chance": document["beyond_chance"],
        "gates_closed": document["gates_closed"],
    }
    metadata = {"table": dg.MetadataValue.md(harvest_markdown(document)), **counts}
    return step.made(metadata, metrics=counts)


@_study(
    deps=[*_GROUND, judge_key("sft", "model")],
    **on_device("compact"),
    description="Harvest once with the fine-tuned language model: minutes on two cores.",
)
def harvests_lm(step: AssetStep) -> Made:
    """Run one loop with the language model."""
    with attempted(step.context):
        study.run_language_harvests(
            step.corpus,
            run_id=step.run_id,
            report=progress_lines(step.context),
            say=step.context.log.info,
        )
    return step.made({})


@_study(
    deps=[
        *_GROUND,
        dg.AssetDep(key("corpora/sft_split"), partition_mapping=dg.AllPartitionMapping()),
    ],
    output_required=False,
    description="Harvest from a judge that saw no row of the corpus; skipped where no other "
    "corpus is split.",
)
def harvests_transfer(step: AssetStep) -> Iterator[Any]:
    """Harvest from the transfer judge."""
    corpus = step.corpus
    if reason := study.run_transfer_harvests(corpus, run_id=step.run_id):
        skip(step, reason)
        return
    yield step.made({})


@_study(
    deps=[judge_key(name, "audit") for name in JUDGES],
    description="Run every procedure on the scores of every audited judge, on CAL and on TEST's "
    "own, with the task-resampling audit of the naive one and the three gates. Judges that are "
    "not there are passed over.",
)
def real_scores(step: AssetStep) -> Made:
    """Run every procedure on real scores."""
    from certify_assets.research.real_scores import write_real_scores

    corpus = step.corpus
    found = write_real_scores(corpus, run_id=step.run_id)
    by_judge = {
        f"auroc_test_{item.judge}": item.auroc_test
        for item in found.judges
        if item.auroc_test is not None
    }
    missing = dg.MetadataValue.json([asdict(item) for item in found.missing])
    metadata = {"judges": len(found.judges), "missing": missing, **by_judge}
    return step.made(metadata, documents=_by_judge(by_judge))


@_table(
    name="certifiability",
    code_version=code_version(schema=certifiability.CERTIFIABILITY_SCHEMA),
    # every partition of each: the model is over all corpora
    deps=[judge_key(judge, "certificate") for judge in judges()],
    kinds={"json", "html"},
    description="Fit certified coverage against (1−π)(2A₀−1) over every corpus with "
    "certificates: leave-one-corpus-out, other forms, the influence of each corpus, and how far "
    "the fit can be trusted. With fewer than three corpora it shows the points and says so.",
)
def certifiability_model(step: AssetStep) -> Made:
    """Fit the certifiability law to the data root."""
    found = certifiability.write_certifiability(step.store)
    page = law_page.render_law(found, home=home_of(law_page.LAW_PAGE))
    metrics = law_page.law_metrics(found)
    metadata = {
        "law": dg.MetadataValue.md(law_page.law_markdown(found)),
        **metrics,
        "corpora": len(found.measured),
        "left_out": dg.MetadataValue.json(dict(found.left_out)),
    }
    location = law_page.write_law_page(step.store, page)
    documents = {"certifiability.html": page}
    return step.made(metadata, metrics=metrics, documents=documents, page=location)


@_table(
    name="simulation",
    kinds={"json", "html"},
    description="Measure violation and coverage of every procedure on the paper's process, three "
    "adversarial designs, and designs in which the score cannot see the errors; the truth by "
    "quadrature, checked against large draws. About ten CPU minutes; an interrupted run resumes "
    "cell by cell.",
)
def simulation_study(step: AssetStep, config: SimulationConfig) -> Made:
    """Run the study, store the document and draw its page."""
    from certify_assets.research.pages.simulation_page import study_markdown, write_simulation_page

    plan = simulations.SimulationPlan(
        trials=config.trials,
        seed=config.seed,
        workers=config.workers,
        tasks=tuple(config.tasks),
        rhos=tuple(config.rhos),
        procedures=tuple(config.procedures),
    )
    simulation, truth = simulations.run_study(
        step.store,
        plan,
        lambda cell, done, total: step.context.log.info(f"{done} of {total}: {cell.title}"),
    )
    metrics = simulations.study_metrics(simulation, truth)
    location = write_simulation_page(step.store)
    metadata = {
        **metrics,
        "study": dg.MetadataValue.md(study_markdown(simulation, truth)),
    }
    return step.made(
        metadata,
        params=config.model_dump(),
        metrics=metrics,
        page=location,
        documents={"simulation.html": step.read_text(simulations.PAGE)},
    )


@_table(
    name="report",
    # every partition of what has one: the report is over all corpora
    deps=[
        *study_assets(),
        agent_disjoint,
        comparison_of_judges,
        main_table_of_judges,
        certifiability_model,
        simulation_study,
    ],
    kinds={"html"},
    description="Draw every table of the paper next to ours, as a site that opens from disk and "
    "as Markdown, LaTeX and CSV; what was not run says so.",
)
def study_report(step: AssetStep) -> Made:
    """Draw the site from the stored documents."""
    from certify_assets.research.pages import study_site
    from certify_assets.research.study import SITE

    location = study_site.write_study_site(step.store)
    blocks = [block for found in study_site.study_tables(step.store).values() for block in found]
    counts = {"tables": len(blocks), "not_run": sum(len(block.missing) for block in blocks)}
    documents = {"study.html": step.read_text(f"{SITE}/index.html")}
    return step.made(counts, metrics=counts, documents=documents, page=location)
