"""From a registered corpus to verified splits. Each function is one asset: it reads the data root, does one thing, writes, and says what it did."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import EMBEDDED, CorpusConfig
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.leak_thresholds import complete_thresholds
from certify_assets.corpora.schema import (
    read_trajectories,
    to_frame,
    validate_frame,
    write_trajectories,
)
from certify_assets.corpora.splits import (
    SPLITS,
    SplitManifest,
    make_manifest,
    select,
    verify_manifest,
)
from certify_assets.corpora.trajectory_file import SMALL_COLUMNS, outlines, read_columns
from certify_assets.errors import InputError, LeakError, ManifestError
from certify_assets.storage.snapshot import remembered
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.formats import Imported, ImportFacts
    from certify_assets.corpora.quality import QualityReport, QualityResult
    from certify_assets.corpora.rendering import Outline

__all__ = [
    "ImportSummary",
    "ground",
    "import_trajectories",
    "leak_controls",
    "make_splits",
    "name_leaks",
    "no_trajectories",
    "open_corpus",
    "open_split",
    "plan_splits",
    "profile",
    "quality",
    "quality_report",
    "read_corpus",
    "read_import",
    "read_outlines",
    "read_small",
    "require_leak_controls",
    "task_universe",
    "without_test",
    "write_split",
]


@dataclass(frozen=True)
class ImportSummary:
    """What an import brought in.

    Parameters
    ----------
    trajectories, tasks : int
        Rows and clusters.
    agents : tuple of str
        Sorted.
    dropped : dict of str to int
        Records that are not in the table, by reason.
    files : dict of str to str
        SHA-256 of each source file.
    sha256 : str
        Of the Parquet table.
    format : str
        What the source was read as.
    examples : dict of str to str
        For every reason in `dropped`, a sentence on the first case.
    notes : dict of str to int
        What was left out of records that were kept.
    label_source : str
        Where the outcomes come from.
    label_facts : dict of str to number
        What the source says of its labels.
    """

    trajectories: int
    tasks: int
    agents: tuple[str, ...]
    dropped: dict[str, int]
    files: dict[str, str]
    sha256: str
    format: str
    examples: dict[str, str]
    notes: dict[str, int]
    label_source: str
    label_facts: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {**asdict(self), "agents": list(self.agents)}


def import_trajectories(corpus: Corpus) -> ImportSummary:
    """Read a corpus's source again and store its trajectories as one table."""
    from certify_assets.corpora.formats import gather_corpus

    config, key = corpus.config, _table_key(corpus.name)
    if config.format == "embedded":
        imported = _embedded_import(corpus.name)
        summary = _summary_of(imported, _store_trajectories(corpus.store, key, imported.frame))
    else:
        paths = [Path(path) for path in config.paths]
        with gather_corpus(
            paths, format=config.format, name=corpus.name, options=dict(config.options)
        ) as (runs, facts):
            summary = _summary(
                facts,
                (len(runs.rows), runs.tasks(), runs.agents()),
                corpus.store.write_stream(key, runs.write),
            )
    corpus.store.write_json(corpus.key("import.json"), summary.to_dict())
    return summary


def _table_key(corpus: str) -> str:
    return f"corpora/{corpus}/trajectories.parquet"


def _summary_of(imported: Imported, sha256: str) -> ImportSummary:
    frame = imported.frame
    return _summary(
        imported,
        (len(frame), int(frame["task_id"].nunique()), tuple(sorted(frame["agent"].unique()))),
        sha256,
    )


def _summary(
    facts: ImportFacts, size: tuple[int, int, tuple[str, ...]], sha256: str
) -> ImportSummary:
    return ImportSummary(
        *size,
        dropped=facts.dropped,
        files=facts.files,
        sha256=sha256,
        format=facts.format,
        examples=facts.examples,
        notes=facts.notes,
        label_source=facts.label_source,
        label_facts=facts.label_facts,
    )


def read_import(corpus: Corpus) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a corpus's trajectories with the document of their import; an embedded corpus need not be in the data root.

    Raises
    ------
    InputError
        If the corpus is not embedded and was never imported.
    """
    key = corpus.key("import.json")
    if corpus.store.exists(key):
        return read_corpus(corpus), {
            "examples": {},
            "notes": {},
            "label_source": "",
            "label_facts": {},
            **corpus.store.read_json(key),
        }
    if corpus.name not in EMBEDDED:
        raise InputError(
            f"{corpus} is registered but its runs were never read; materialize trajectories, or import it again with --replace."
        )
    imported = _embedded_import(corpus.name)
    return imported.frame.reset_index(drop=True), _summary_of(imported, "").to_dict()


@remembered
def read_corpus(corpus: Corpus) -> pd.DataFrame:
    """Return a corpus's trajectories, checked against the schema."""
    return _load_trajectories(corpus.store, _table_key(corpus.name))


def read_small(corpus: Corpus, columns: Sequence[str] = SMALL_COLUMNS) -> pd.DataFrame:
    """Return columns of a corpus's trajectories, those but the steps where none are named; in order, not checked again."""
    with corpus.store.as_file(_table_key(corpus.name)) as path:
        return read_columns(path, columns)


def no_trajectories() -> pd.DataFrame:
    """Return a table of trajectories without a row: its columns and their types."""
    return to_frame([])


def read_outlines(corpus: Corpus) -> list[Outline]:
    """Render a corpus's trajectories one after the other, and return what its figures need of every rendering."""
    with corpus.store.as_file(_table_key(corpus.name)) as path:
        return outlines(path)


def make_splits(corpus: Corpus) -> SplitManifest:
    """Assign the corpus's tasks to splits by its profile and seed, and store the manifest."""
    manifest = plan_splits(corpus.config, read_small(corpus, ["task_id"])["task_id"].unique())
    corpus.store.write_json(corpus.key("splits/manifest.json"), manifest.to_dict())
    return manifest


def plan_splits(config: CorpusConfig, tasks: Iterable[str]) -> SplitManifest:
    """Assign tasks to splits by a configuration; store nothing."""
    return make_manifest(
        tasks,
        config.name,
        config.profile,
        config.seed,
        train_rl=config.rl,
        universe=task_universe(config.name),
    )


def write_split(corpus: Corpus, split: str) -> pd.DataFrame:
    """Store one split's trajectories; refuse where the manifest does not hold."""
    frame, manifest = open_corpus(corpus)
    chosen = select(frame, manifest, split)
    if len(chosen) and not chosen["steps"].map(len).any():
        raise InputError(
            f"no trajectory of split {split} of {corpus} has a step: labels alone cannot be judged; import the runs too."
        )
    _store_trajectories(corpus.store, corpus.key(f"splits/{split}.parquet"), chosen)
    return chosen


@remembered
def open_corpus(corpus: Corpus) -> tuple[pd.DataFrame, SplitManifest]:
    """Return the trajectories and their manifest, verified against each other.

    Raises
    ------
    ManifestError
        If the manifest was altered, or is not of these trajectories. A blocking check guards only the run that it is in; this guards
        every reader.
    """
    frame, manifest = read_corpus(corpus), _manifest(corpus)
    verify_manifest(manifest, frame)
    return frame, manifest


@remembered
def _manifest(corpus: Corpus) -> SplitManifest:
    return SplitManifest.from_dict(corpus.store.read_json(corpus.key("splits/manifest.json")))


@remembered
def open_split(corpus: Corpus, split: str) -> tuple[pd.DataFrame, SplitManifest]:
    """Return one stored split, after checking that it is what the manifest says.

    Raises
    ------
    ManifestError
        If the stored split holds other trajectories than the manifest gives it, or shares a task with another split.
    """
    frame, manifest = open_corpus(corpus)
    expected = select(frame, manifest, split)
    key = corpus.key(f"splits/{split}.parquet")
    stored = _load_trajectories(corpus.store, key, strict=False)
    if set(stored["trajectory_id"]) != set(expected["trajectory_id"]) or set(
        stored["task_id"]
    ) != set(expected["task_id"]):
        other = sorted(set(stored["task_id"]) - set(expected["task_id"]))
        example = f", for example task {other[0]!r}" if other else ""
        raise ManifestError(
            f"{corpus.store.locate(key)} does not hold the {split} split of the manifest{example}; materialize {split}_split again."
        )
    if not stored.equals(expected.reset_index(drop=True)):
        raise ManifestError(
            f"{corpus.store.locate(key)} differs from the corpus's trajectories; materialize {split}_split again."
        )
    return stored, manifest


def profile(corpus: Corpus) -> dict[str, Any]:
    """Profile the corpus and its splits, store and return the document."""
    from certify_assets.corpora.profile import profile_corpus

    frame, manifest = read_small(corpus), _manifest(corpus)
    verify_manifest(manifest, frame)
    dropped = corpus.store.read_json(corpus.key("import.json"))["dropped"]
    measured = profile_corpus(frame, manifest, dropped=dropped, rendered=read_outlines(corpus))
    document = {**measured.to_dict(), **ground(corpus, manifest)}
    corpus.store.write_json(corpus.key("profile.json"), document)
    return document


def leak_controls(corpus: Corpus) -> dict[str, Any]:
    """Measure the leak controls on everything but TEST, store and return the document."""
    from certify_assets.corpora.leakage import controls

    frame, manifest = open_corpus(corpus)
    config = corpus.config
    document = controls(
        without_test(frame, manifest),
        thresholds=config.leak_thresholds,
        accept_structural_leak=config.accept_structural_leak,
    ).to_dict()
    corpus.store.write_json(corpus.key("controls.json"), {**document, **ground(corpus, manifest)})
    return document


def ground(corpus: Corpus, manifest: SplitManifest) -> dict[str, str]:
    """Return the hashes that profile and controls stand on: trajectories as they are stored, and their manifest."""
    return {
        "manifest_sha256": manifest.sha256,
        "trajectories_sha256": corpus.store.sha256(_table_key(corpus.name)),
    }


def without_test(frame: pd.DataFrame, manifest: SplitManifest) -> pd.DataFrame:
    """Return the rows whose outcomes may be read at any time: those of every split but TEST."""
    return frame[frame["task_id"].map(manifest.assignment) != "test"].reset_index(drop=True)


def require_leak_controls(corpus: Corpus, manifest_sha256: str) -> str | None:
    """Refuse to go on where the outcome can be told without reading and nobody accepted that.

    Returns
    -------
    str or None
        The finding that every certificate carries where a structural leak was accepted: what was measured, and the reason.

    Raises
    ------
    LeakError
        If a structural leak was measured and not accepted, or nothing was measured for this manifest and configuration.
    """
    document, config = corpus.store.read_json(corpus.key("controls.json")), corpus.config
    if document["manifest_sha256"] != manifest_sha256:
        raise LeakError(
            f"the leak controls of {corpus} were measured under other splits; materialize leak_controls again."
        )
    if document.get("trajectories_sha256") != corpus.store.sha256(_table_key(corpus.name)):
        raise LeakError(
            f"the leak controls of {corpus} were measured on other trajectories; materialize leak_controls again."
        )
    declared = (complete_thresholds(config.leak_thresholds), config.accept_structural_leak)
    if (document.get("thresholds"), document["accepted"]) != declared:
        raise LeakError(
            f"the leak controls of {corpus} were measured under another leak_thresholds or accept_structural_leak than its configuration has "
            "now; materialize leak_controls again."
        )
    if not document["passed"]:
        raise LeakError(
            f"{name_leaks(document)} alone tells the outcome of {corpus}; a judge would certify that, not the work: remove the leak, or set "
            "accept_structural_leak to the reason for going on."
        )
    return f"{name_leaks(document)}; accepted: {document['accepted']}" if document["over"] else None


def name_leaks(controls: Mapping[str, Any]) -> str:
    """Name the controls that are over, each with its AUROC and threshold."""
    measured = {
        "length": controls["length_auroc"],
        "steps": controls["step_auroc"],
        "agent": controls["agent_auroc"],
    }
    measured |= {f"phrase {name}": value for name, value in controls["phrases"].items()}
    limits = {
        name: controls["thresholds"]["phrases" if name.startswith("phrase ") else name]
        for name in controls["over"]
    }
    return ", ".join(
        f"{name} (AUROC {measured[name]:.3f}, threshold {limit:g})"
        for name, limit in limits.items()
    )


def quality(corpus: Corpus, *, stored_splits: bool) -> list[QualityResult]:
    """Run the data-quality suites on the corpus, or on its stored splits as well: the results of `quality_report`."""
    return list(quality_report(corpus, stored_splits=stored_splits).results)


def quality_report(corpus: Corpus, *, stored_splits: bool) -> QualityReport:
    """Run the data-quality suites and keep what Great Expectations renders of them.

    Notes
    -----
    The tables are read as they are stored: a suite is there to find what is wrong with them.
    """
    from certify_assets.corpora.quality import evaluate_suites

    frame = _load_trajectories(corpus.store, _table_key(corpus.name), strict=False)
    if not stored_splits:
        return evaluate_suites(frame)
    manifest = _manifest(corpus)
    splits = {
        name: _load_trajectories(corpus.store, corpus.key(f"splits/{name}.parquet"), strict=False)
        for name in SPLITS
    }
    return evaluate_suites(frame, manifest, splits=splits)


def task_universe(corpus: str) -> list[str]:
    """Return the tasks of the corpora that share this one's tasks, so that all have one assignment for a seed."""
    if corpus not in EMBEDDED:
        return []
    others = [name for name in EMBEDDED if name != corpus]
    return sorted({str(task) for name in others for task in _embedded(name)["task_id"].unique()})


def _embedded_import(corpus: str) -> Imported:
    from certify_assets.corpora.formats import Imported

    frame = _embedded(corpus)
    files = dict(zip(frame["source_file"], frame["source_sha256"], strict=True))
    source = "the reward of the MiniWoB++ page"
    return Imported(
        frame=frame,
        dropped={},
        format="embedded",
        files=files,
        examples={},
        notes={},
        label_source=source,
    )


def _embedded(corpus: str) -> pd.DataFrame:
    from certify_assets.corpora.embedded import load_embedded

    if corpus not in EMBEDDED:
        raise InputError(
            f"{corpus!r} does not come with the package; embedded corpora are {', '.join(EMBEDDED)}."
        )
    return load_embedded(corpus)


def _store_trajectories(store: Store, key: str, frame: pd.DataFrame) -> str:
    with tempfile.TemporaryDirectory() as folder:
        data = write_trajectories(Path(folder) / "trajectories.parquet", frame)
    return store.write_bytes(key, data)


def _load_trajectories(store: Store, key: str, *, strict: bool = True) -> pd.DataFrame:
    with store.as_file(key) as path:
        frame = read_trajectories(path)
    if strict:
        validate_frame(frame)
    return frame.reset_index(drop=True)
