"""The report of a corpus before a judge reads it; figures not stored are measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import CorpusConfig, Domain, load_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.imported import ImportSummary
from certify_assets.corpora.leakage import LeakChecks, check_leaks
from certify_assets.corpora.profile import CorpusProfile
from certify_assets.corpora.splits import SplitManifest, without_test
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CorpusReport:
    """A corpus as its page shows it."""

    config: CorpusConfig
    imported: ImportSummary
    profile: CorpusProfile
    leak_checks: LeakChecks
    # None where the corpus cannot be split, with the reason in unsplit
    manifest: SplitManifest | None
    unsplit: str
    # runs of every split
    split_runs: dict[str, int]
    # task_id, agent, attempt and outcome of the labelled trajectories outside TEST
    runs: pd.DataFrame
    domain: Domain

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object, without the runs."""
        splits = None
        if self.manifest is not None:
            splits = {
                name: {"tasks": len(tasks), "trajectories": self.split_runs.get(name, 0)}
                for name, tasks in self.manifest.tasks.items()
            }
        return {
            "corpus": self.config.name,
            "domain": {"name": self.domain.name or None, "origin": self.domain.origin},
            "config": asdict(self.config),
            "import": asdict(self.imported),
            "profile": _figures(self.profile),
            "controls": {**_figures(self.leak_checks), "passed": self.leak_checks.passed},
            "splits": splits,
            "manifest_sha256": self.manifest and self.manifest.sha256,
            "unsplit": self.unsplit or None,
        }


def _figures(document: CorpusProfile | LeakChecks) -> JsonObject:
    # the same figures, whether they were stored or are measured anew
    stored = {"schema", "manifest_sha256", "trajectories_sha256"}
    return {name: value for name, value in document.to_dict().items() if name not in stored}


def gather_report(corpus: Corpus) -> CorpusReport:
    """Gather the report; figures that are not stored are measured, but not stored."""
    if not corpus.has("import.json"):
        # of a name that is no corpus, it says so
        load_config(corpus.store, corpus.name)
        if corpus.name not in EMBEDDED:
            raise InputError(
                f"{corpus} is registered but its runs were never read; materialize "
                "corpora/trajectories, or import it again with --replace."
            )
        with TemporaryDirectory() as folder:
            imported = Corpus(Store(folder), corpus.name)
            imported.import_trajectories()
            return gather_report(imported)
    frame, manifest, unsplit = corpus.trajectories, None, ""
    try:
        stored = corpus.has("splits", "manifest.json")
        manifest = corpus.manifest if stored else corpus.plan_splits(frame["task_id"].unique())
    except InputError as error:
        unsplit = str(error)
    readable = frame if manifest is None else without_test(frame, manifest)
    labelled = readable[readable["outcome"].notna()]
    runs = {} if manifest is None else frame["task_id"].map(manifest.assignment).value_counts()
    config = corpus.config
    leak_checks = corpus.current_leak_checks() or check_leaks(
        readable,
        thresholds=config.leak_thresholds,
        accept_structural_leak=config.accept_structural_leak,
    )
    return CorpusReport(
        config=config,
        imported=corpus.import_summary,
        profile=corpus.current_profile() or corpus.measured_profile(manifest),
        leak_checks=leak_checks,
        manifest=manifest,
        unsplit=unsplit,
        split_runs={str(name): int(number) for name, number in runs.items()},
        runs=labelled[["task_id", "agent", "attempt", "outcome"]].reset_index(drop=True),
        domain=corpus.domain,
    )
