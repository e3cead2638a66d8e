"""Checks of comparisons, studies and tables."""

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.checks import asked_together, check
from certify_assets.defs.project import Project
from certify_assets.judges.specs import PROCEDURES
from certify_assets.operations import comparison
from certify_assets.operations.checks import Verdict
from certify_assets.research import certifiability
from certify_assets.research import simulation_study as study
from certify_assets.storage.store import Snapshot


def comparison_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the comparison of a corpus's judges."""
    return asked_together(project, [beats_controls, same_rows])


def research_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of studies and tables."""
    return asked_together(
        project, [certifiability_model_honest, validity_within_delta, matches_the_paper]
    )


@check("corpora/comparison")
def beats_controls(corpus: Corpus) -> Verdict:
    """Every judge of a language model, or of the structure of a run, ranks better than controls.

    Its interval is above length alone and agent alone, of structure also above steps alone. One
    that is not has learnt a leak.
    """
    document = corpus.store.read_json(comparison.comparison_key(corpus.name))
    said = comparison.beaten_by_controls(document)
    read = ", ".join(comparison.controls_to_beat(document))
    above = (
        f"{read}: above what each must beat."
        if read
        else "no judge of a language model or of structure has scored this corpus."
    )
    return Verdict.of(not said, " ".join(said) or above, otherwise="WARN")


@check("corpora/comparison")
def same_rows(corpus: Corpus) -> Verdict:
    """All judges scored the same labelled CAL rows, all of them."""
    document = corpus.store.read_json(comparison.comparison_key(corpus.name))
    said = comparison.unscored_sentences(document)
    every = f"{document['cal']['trajectories']} rows, scored by every judge."
    return Verdict.of(not said, " ".join(said) or every, otherwise="WARN")


@check("research/certifiability", partitioned=False)
def certifiability_model_honest(store: Snapshot) -> Verdict:
    """At least seven corpora, as the paper has, none that carries the fit by itself.

    A₀ is that of the untrained judge. The warning says what the model rests on.
    """
    found = certifiability.doubts(store)
    said = (
        "seven corpora or more, no single one carries the fit, and A₀ is that of the untrained "
        "judge on all."
    )
    return Verdict.of(not found, " ".join(found) or said, otherwise="WARN")


@check("research/simulation", partitioned=False)
def validity_within_delta(store: Snapshot) -> Verdict:
    """The default procedure is wrong in at most δ of the trials.

    Designs whose errors the score cannot see are left out. ERROR where the lower 95 % bound is
    above.
    """
    simulation = study.load_study(store)
    proved, seen = study.beyond_delta(simulation), study.beyond_delta(simulation, proved=False)
    tested = [
        cell for cell in simulation.cells if not cell.fooled and cell.of(PROCEDURES[0]) is not None
    ]
    named = "; ".join(
        f"{cell.title}: {rates.violations} of {cell.trials} trials" for cell, rates in seen
    )
    within = f"within δ in all {len(tested)} designs." if tested else "it was not run."
    return Verdict.of(
        bool(tested) and not seen, named or within, otherwise="ERROR" if proved else "WARN"
    )


@check("research/simulation", partitioned=False)
def matches_the_paper(store: Snapshot) -> Verdict:
    """Every figure of the paper's table is met within .03, but for one cell at the edge."""
    simulation = study.load_study(store)
    compared = sum(
        rates.paper is not None for cell in simulation.cells for rates in cell.procedures
    )
    far = study.far_from_the_paper(simulation)
    unknown = [found for found in far if not study.is_exception(found[0], found[1])]
    named = "; ".join(
        f"{cell.title}, {rates.procedure}: {text}"
        f"{' (known)' if study.is_exception(cell, rates) else ''}"
        for cell, rates, text in far
    )
    met = f"{compared} printed pairs are met within {study.TOLERANCE}."
    return Verdict.of(
        bool(compared) and not unknown,
        named or (met if compared else "no printed cell was run."),
        # with fewer trials than the paper's 300 a distance of .03 says little
        otherwise="ERROR" if simulation.trials >= 300 else "WARN",
    )
