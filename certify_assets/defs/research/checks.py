"""Checks of comparisons, studies and tables."""

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.checks import asked_together, check
from certify_assets.defs.project import Project
from certify_assets.operations import comparison
from certify_assets.operations.checks import Verdict
from certify_assets.research import certifiability
from certify_assets.storage.store import Store


def comparison_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the comparison of a corpus's judges."""
    return asked_together(project, [beats_controls, same_rows])


def research_checks(project: Project) -> list[dg.AssetChecksDefinition]:
    """Return the checks of studies and tables."""
    return asked_together(project, [certifiability_model_honest])


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
def certifiability_model_honest(store: Store) -> Verdict:
    """At least seven corpora, as the paper has, none that carries the fit by itself.

    A₀ is that of the untrained judge. The warning says what the model rests on.
    """
    found = certifiability.doubts(store)
    said = (
        "seven corpora or more, no single one carries the fit, and A₀ is that of the untrained "
        "judge on all."
    )
    return Verdict.of(not found, " ".join(found) or said, otherwise="WARN")
