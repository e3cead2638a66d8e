"""Checks of comparisons, studies and tables."""

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.checks import asked_together
from certify_assets.defs.project import Project
from certify_assets.operations import comparison
from certify_assets.operations.checks import Verdict
from certify_assets.research import certifiability
from certify_assets.storage.store import Store


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
