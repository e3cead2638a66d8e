"""Everything that is known of a corpus before a judge reads it, gathered from the data root; what is not stored yet is measured, not stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.corpora import preparation as corpus_steps
from certify_assets.corpora.config import CorpusConfig
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.domains import Domain, corpus_domain
from certify_assets.corpora.leak_thresholds import complete_thresholds
from certify_assets.corpora.splits import SplitManifest, verify_manifest
from certify_assets.errors import InputError
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CorpusReport", "gather_report"]


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
    frame, imported = corpus_steps.read_import(corpus)
    manifest, unsplit = _manifest(corpus.store, config, frame)
    readable = frame if manifest is None else corpus_steps.without_test(frame, manifest)
    labelled = readable[readable["outcome"].notna()]
    return CorpusReport(
        config=config,
        imported=imported,
        profile=_profile(corpus, frame, manifest, imported["dropped"]),
        controls=_controls(corpus.store, config, readable, manifest),
        manifest=manifest,
        unsplit=unsplit,
        runs=labelled[["task_id", "agent", "attempt", "outcome"]].reset_index(drop=True),
        domain=corpus_domain(corpus),
    )


def _manifest(
    store: Store, config: CorpusConfig, frame: pd.DataFrame
) -> tuple[SplitManifest | None, str]:
    key = f"corpora/{config.name}/splits/manifest.json"
    if store.exists(key):
        manifest = SplitManifest.from_dict(store.read_json(key))
        verify_manifest(manifest, frame)
        return manifest, ""
    try:
        return corpus_steps.plan_splits(config, frame["task_id"].unique()), ""
    except InputError as error:
        return None, str(error)


def _profile(
    corpus: Corpus, frame: pd.DataFrame, manifest: SplitManifest | None, dropped: dict[str, int]
) -> dict[str, Any]:
    from certify_assets.corpora.profile import profile_corpus

    key = corpus.key("profile.json")
    if manifest is not None and corpus.store.exists(key):
        stored: dict[str, Any] = corpus.store.read_json(key)
        if all(
            stored.get(name) == value
            for name, value in corpus_steps.ground(corpus, manifest).items()
        ):
            return stored
    return profile_corpus(frame, manifest, dropped=dropped).to_dict()


def _controls(
    store: Store, config: CorpusConfig, readable: pd.DataFrame, manifest: SplitManifest | None
) -> dict[str, Any]:
    from certify_assets.corpora.leakage import controls

    key = f"corpora/{config.name}/controls.json"
    if manifest is not None and store.exists(key):
        stored: dict[str, Any] = store.read_json(key)
        declared = {
            "thresholds": complete_thresholds(config.leak_thresholds),
            "accepted": config.accept_structural_leak,
        }
        wanted = {**corpus_steps.ground(Corpus(store, config.name), manifest), **declared}
        if all(stored.get(name) == value for name, value in wanted.items()):
            return stored
    return controls(
        readable,
        thresholds=config.leak_thresholds,
        accept_structural_leak=config.accept_structural_leak,
    ).to_dict()
