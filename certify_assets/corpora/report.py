"""Everything that is known of a corpus before a judge reads it, gathered from the data root; what is not stored yet is measured, not stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import CorpusConfig, Domain, complete_thresholds
from certify_assets.corpora.corpus import Corpus, ImportSummary, embedded_import
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import SplitManifest, plan_splits, without_test
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CorpusReport:
    """A corpus as its page shows it.

    Parameters
    ----------
    config : CorpusConfig
    imported : dict
        The document of the import: files, what was dropped with an example, notes, labels.
    profile, controls : dict
        Documents of corpus profile and leak controls.
    manifest : SplitManifest or None
        None where the corpus cannot be split.
    unsplit : str
        Why it cannot; empty where it can.
    runs : pandas.DataFrame
        task_id, agent, attempt and outcome of the labelled trajectories outside TEST.
    domain : Domain
        What kind of work the runs are, and how that is known.
    """

    config: CorpusConfig
    imported: dict[str, Any]
    profile: dict[str, Any]
    controls: dict[str, Any]
    manifest: SplitManifest | None
    unsplit: str
    runs: pd.DataFrame
    domain: Domain

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object, without the runs."""
        shares = (
            None
            if self.manifest is None
            else {name: len(tasks) for name, tasks in self.manifest.tasks.items()}
        )
        return {
            "corpus": self.config.name,
            "domain": {"name": self.domain.name or None, "origin": self.domain.origin},
            "config": self.config.to_dict(),
            "import": self.imported,
            "profile": self.profile,
            "controls": self.controls,
            "split_tasks": shares,
            "unsplit": self.unsplit or None,
        }


def gather_report(corpus: Corpus) -> CorpusReport:
    """Gather the report.

    Raises
    ------
    InputError
        If the corpus is unknown or was never imported.
    ManifestError
        If the stored manifest does not hold.
    """
    config = corpus.config
    frame, summary = _imported(corpus)
    manifest, unsplit = _manifest(corpus, frame)
    readable = frame if manifest is None else without_test(frame, manifest)
    labelled = readable[readable["outcome"].notna()]
    return CorpusReport(
        config=config,
        imported=summary.to_dict(),
        profile=_profile(corpus, frame, manifest, summary.dropped),
        controls=_controls(corpus, readable, manifest),
        manifest=manifest,
        unsplit=unsplit,
        runs=labelled[["task_id", "agent", "attempt", "outcome"]].reset_index(drop=True),
        domain=corpus.domain,
    )


def _imported(corpus: Corpus) -> tuple[pd.DataFrame, ImportSummary]:
    if corpus.store.exists(corpus.key("import.json")):
        return corpus.trajectories, corpus.import_summary
    if corpus.name not in EMBEDDED:
        raise InputError(
            f"{corpus} is registered but its runs were never read; materialize corpora/trajectories, "
            "or import it again with --replace."
        )
    imported = embedded_import(corpus.name)
    return imported.frame.reset_index(drop=True), ImportSummary.of_embedded(imported)


def _manifest(corpus: Corpus, frame: pd.DataFrame) -> tuple[SplitManifest | None, str]:
    if corpus.store.exists(corpus.key("splits/manifest.json")):
        return corpus.manifest, ""
    try:
        return plan_splits(corpus.config, frame["task_id"].unique()), ""
    except InputError as error:
        return None, str(error)


def _stored(
    corpus: Corpus, name: str, manifest: SplitManifest | None, declared: dict[str, Any]
) -> dict[str, Any] | None:
    """Return a stored document of the corpus if it was measured on what is stored now."""
    if manifest is None or not corpus.store.exists(corpus.key(name)):
        return None
    wanted = {
        "manifest_sha256": manifest.sha256,
        "trajectories_sha256": corpus.trajectories_sha256,
        **declared,
    }
    stored: dict[str, Any] = corpus.store.read_json(corpus.key(name))
    return stored if all(stored.get(key) == value for key, value in wanted.items()) else None


def _profile(
    corpus: Corpus, frame: pd.DataFrame, manifest: SplitManifest | None, dropped: dict[str, int]
) -> dict[str, Any]:
    from certify_assets.corpora.profile import profile_corpus

    stored = _stored(corpus, "profile.json", manifest, {})
    return stored or profile_corpus(frame, manifest, dropped=dropped).to_dict()


def _controls(
    corpus: Corpus, readable: pd.DataFrame, manifest: SplitManifest | None
) -> dict[str, Any]:
    from certify_assets.corpora.leakage import controls

    config = corpus.config
    declared = {
        "thresholds": complete_thresholds(config.leak_thresholds),
        "accepted": config.accept_structural_leak,
    }
    stored = _stored(corpus, "controls.json", manifest, declared)
    return (
        stored
        or controls(
            readable,
            thresholds=config.leak_thresholds,
            accept_structural_leak=config.accept_structural_leak,
        ).to_dict()
    )
