"""A corpus of the data root, opened for one operation: its documents and how to make them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from certify_assets.corpora.config import (
    CorpusConfig,
    Domain,
    complete_thresholds,
    corpus_file,
    format_domain,
    load_config,
    plan_splits,
    save_config,
)
from certify_assets.corpora.deliveries import Delivered, Deliveries, run_table
from certify_assets.corpora.embedded import load_embedded
from certify_assets.corpora.imported import ImportFacts, ImportSummary, import_sha256
from certify_assets.corpora.rendering import outlines
from certify_assets.corpora.schema import (
    SMALL_COLUMNS,
    parquet_bytes,
    read_columns,
    read_runs,
    read_trajectories,
)
from certify_assets.corpora.splits import SPLITS, SplitManifest, verify_manifest
from certify_assets.errors import InputError, IntegrityError, LeakError, ManifestError
from certify_assets.storage.events import Event, Payload
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Store
from certify_assets.storage.urls import is_url, local_copies

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.formats.gathering import Gathered
    from certify_assets.corpora.leakage import LeakChecks
    from certify_assets.corpora.profile import CorpusProfile, TaskOverlap

#: is called with the runs of the corpus after a delivery, as `run_table`, and their splits, before
#: anything is stored; raises to refuse the delivery
DeliveryCheck: TypeAlias = "Callable[[pd.DataFrame, SplitManifest | None], None]"


P = TypeVar("P", bound=Payload)
# what the decisions of a judge depend on
_DECIDING: Final = ("corpus.json", "import.json", "controls.json", "trajectories.parquet", "splits")


@dataclass(frozen=True, init=False)
class Corpus:
    """One corpus, as one operation sees it: every stored file in one version."""

    store: Store
    name: str

    def __init__(self, store: Store, name: str) -> None:
        # a plain store starts a new snapshot, a snapshot is shared
        object.__setattr__(self, "store", store.now())
        object.__setattr__(self, "name", name)

    def __str__(self) -> str:
        return self.name

    @property
    def identity(self) -> tuple[str, ...]:
        """Name of the corpus among the views of a snapshot."""
        return (self.name,)

    @property
    def current(self) -> Corpus:
        """The corpus as it is stored now, in the same operation."""
        return Corpus(self.store.unpinned, self.name)

    def key(self, *parts: str) -> str:
        """Return the storage key of a file of the corpus."""
        return corpus_file(self.name, *parts)

    @property
    def areas(self) -> list[str]:
        """Keys and folders of all files that the decisions of a judge depend on."""
        return [self.key(name) for name in _DECIDING]

    def has(self, *parts: str) -> bool:
        """Whether a file of the corpus is stored."""
        return self.store.exists(self.key(*parts))

    def split_key(self, split: str) -> str:
        """Return the storage key of the trajectories of a split."""
        return self.key("splits", f"{split}.parquet")

    def events(
        self, kind: type[P], subject: str | None = None, *, watched: bool = True
    ) -> list[Event[P]]:
        """Return the events of a kind, as `Store.events`."""
        return self.store.events(self.name, kind, subject, watched=watched)

    def last(
        self, kind: type[P], subject: str | None = None, *, watched: bool = True
    ) -> Event[P] | None:
        """Return the last event of a kind, as `Store.last`."""
        return self.store.last(self.name, kind, subject, watched=watched)

    def append(self, *payloads: Payload) -> None:
        """Append events to the chain of the corpus."""
        self.store.append(self.name, *payloads)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Commit everything that the block stores at its end, or nothing."""
        with self.store.step():
            yield

    # What is stored, verified as it is read

    @property
    def config(self) -> CorpusConfig:
        """Registered configuration."""
        return load_config(self.store, self.name)

    @property
    def domain(self) -> Domain:
        """Domain from the configuration, or else from the format."""
        config = self.config
        if config.domain:
            return Domain(config.domain, "stated")
        imported = config.format == "auto" and self.has("import.json")
        return format_domain(self.import_summary.format if imported else config.format)

    @property
    @remembered
    def trajectories(self) -> pd.DataFrame:
        """All trajectories, checked against the schema, but not against the manifest."""
        return self._load(self.key("trajectories.parquet"))

    @property
    def trajectories_sha256(self) -> str:
        """Hash of the stored trajectories."""
        return self.store.sha256(self.key("trajectories.parquet"))

    def columns(self, names: Sequence[str] = SMALL_COLUMNS) -> pd.DataFrame:
        """Return columns of the trajectories, by default all but the steps."""
        with self.store.as_file(self.key("trajectories.parquet")) as path:
            return read_columns(path, names)

    @property
    def deliveries(self) -> Deliveries:
        """Versions of the corpus."""
        return Deliveries(self.store, self.name)

    @property
    def version(self) -> Delivered:
        """Version of the stored trajectories; number 0 if no delivery brought them."""
        sha256, versions = self.trajectories_sha256, self.deliveries.read()
        if versions and versions[-1].trajectories_sha256 == sha256:
            return versions[-1]
        return Delivered(number=0, trajectories_sha256=sha256)

    @property
    def runs(self) -> pd.DataFrame:
        """Id, task, agent, outcome and hashes of the texts of every run, as `run_table`."""
        sha256 = self.trajectories_sha256
        for version in self.deliveries.read():
            if version.trajectories_sha256 == sha256:
                return self.deliveries.runs(version)
        with self.store.as_file(self.key("trajectories.parquet")) as path:
            return run_table(read_runs(path))

    def run_contents(self, split: str) -> list[str]:
        """Return the hashes that identify the runs of a split, independent of their names."""
        runs = self.runs
        runs = runs[runs["task_id"].isin(self.manifest.tasks[split])]
        return sorted({*runs["content"], *runs["letters"]} - {""})

    @property
    def import_summary(self) -> ImportSummary:
        """Summary of the import."""
        document = self.store.read_json(self.key("import.json"))
        lists = {name: tuple(document[name]) for name in ("agents", "read_as", "paths")}
        return ImportSummary(**document | lists)

    @property
    @remembered
    def stored_manifest(self) -> SplitManifest:
        """Split manifest as it is stored, not verified."""
        return SplitManifest.from_dict(self.store.read_json(self.key("splits/manifest.json")))

    @property
    @remembered
    def manifest(self) -> SplitManifest:
        """Split manifest, verified against the trajectories."""
        # a blocking check protects only the run it is part of; this protects every reader
        verify_manifest(self.stored_manifest, self.columns())
        return self.stored_manifest

    @property
    def assignment(self) -> Mapping[str, str]:
        """Split of every task, verified as `manifest` is."""
        return self.manifest.assignment

    @remembered
    def split(self, split: str) -> pd.DataFrame:
        """Return one stored split, verified against the manifest and the trajectories."""
        stored, key = self._load(self.split_key(split)), self.split_key(split)
        if not stored.equals(self.runs_of(split)):
            raise ManifestError(
                f"{self.store.locate(key)} does not hold the {split} split that the manifest and "
                f"the trajectories give; materialize corpora/{split}_split again."
            )
        return stored

    @property
    def profile(self) -> CorpusProfile:
        """Stored profile."""
        from certify_assets.corpora.profile import CorpusProfile

        return CorpusProfile.from_dict(self.store.read_json(self.key("profile.json")))

    @property
    def leak_checks(self) -> LeakChecks:
        """Stored leak checks."""
        from certify_assets.corpora.leakage import LeakChecks

        return LeakChecks.from_dict(self.store.read_json(self.key("controls.json")))

    @property
    def hashes(self) -> dict[str, str]:
        """Hashes that profile and leak checks depend on: manifest and stored trajectories."""
        return {
            "manifest_sha256": self.stored_manifest.sha256,
            "trajectories_sha256": self.trajectories_sha256,
        }

    # Steps, each of them an asset: read the data root, do one thing, write, return it

    def prepare(self) -> None:
        """Import, split, profile and check for leaks: all steps before a judge."""
        self.prepare_splits()
        self.measure_profile()
        self.measure_leaks()

    def prepare_splits(self) -> SplitManifest:
        """Import the trajectories, assign the tasks to splits and store every split."""
        self.import_trajectories()
        manifest = self.make_splits()
        self.write_splits()
        return manifest

    def import_trajectories(
        self, given: CorpusConfig | None = None, *, check: DeliveryCheck | None = None
    ) -> ImportSummary:
        """Read the source again and store its trajectories as one table.

        If the source of a registered corpus is unchanged or gone, its runs stay as imported.
        """
        if given is None and (self.missing_source or self._is_imported):
            return self.import_summary
        config = given or self.config
        with self.writing():
            self.deliveries.require_kept()
            summary = self._imported(config, check)
            if not self.version.number:
                runs = self.runs
                manifest = self._planned(runs, config)
                self.deliveries.record(self.trajectories_sha256, runs, manifest, summary.files)
            self.store.write_json(self.key("import.json"), asdict(summary))
            if given is not None:
                save_config(self.store, given)
        return summary

    @property
    def _is_imported(self) -> bool:
        """Whether the stored runs are those of the present source."""
        if not (self.has("import.json") and self.has("trajectories.parquet")):
            return False
        then, now = self.import_summary, _import_sha256(self.config)
        read = (then.import_sha256, then.sha256)
        return bool(now and self.version.number) and read == (now, self.trajectories_sha256)

    def _imported(self, config: CorpusConfig, check: DeliveryCheck | None) -> ImportSummary:
        key = self.key("trajectories.parquet")
        if config.format == "embedded":
            frame = load_embedded(self.name)
            return ImportSummary(
                trajectories=len(frame),
                tasks=int(frame["task_id"].nunique()),
                agents=tuple(sorted(frame["agent"].unique())),
                sha256=self._store(key, frame),
                format="embedded",
                files=dict(zip(frame["source_file"], frame["source_sha256"], strict=True)),
                label_source="the reward of the MiniWoB++ page",
            )
        # before it is read: what changes meanwhile is read the next time
        source = _import_sha256(config)
        with self._gathered(config) as (runs, facts):
            if check is not None:
                table = run_table(runs.trajectories())
                check(table, self._planned(table, config))
            return ImportSummary(
                trajectories=len(runs.rows),
                tasks=runs.tasks(),
                agents=runs.agents(),
                sha256=self.store.write_stream(key, runs.write),
                paths=config.paths,
                import_sha256=source,
                **vars(facts),
            )

    @property
    def missing_source(self) -> str:
        """A path of the source that is gone although its runs are stored; else empty."""
        gone = [path for path in self.config.paths if not is_url(path) and _is_gone(Path(path))]
        if not gone or not self.has("import.json"):
            return ""
        imported = self.store.read_json(self.key("import.json")).get("paths")
        return gone[0] if imported == list(self.config.paths) else ""

    @contextmanager
    def _gathered(self, config: CorpusConfig) -> Iterator[tuple[Gathered, ImportFacts]]:
        """Read a source; refuse a format that differs from the earlier one, unless it is named."""
        from certify_assets.corpora.formats import gather_corpus

        known = self.import_summary.format if self.has("import.json") else "embedded"
        with (
            local_copies(config.paths) as roots,
            gather_corpus(
                roots, format=config.format, name=self.name, options=dict(config.options)
            ) as (runs, facts),
        ):
            other = known not in ("embedded", facts.format)
            if other and config.format == "auto":
                raise InputError(
                    f"{self} was read as {known} and these files are {facts.format}; import them "
                    "as another corpus, or name their format to replace it."
                )
            yield runs, facts

    def _planned(self, table: pd.DataFrame, config: CorpusConfig) -> SplitManifest | None:
        try:
            return self.plan_splits(table["task_id"].unique(), config)
        except InputError:
            # too few tasks for splits: the steps that need them say so
            return None

    def make_splits(self) -> SplitManifest:
        """Assign the tasks to splits by the configured profile and seed; store the manifest.

        Tasks that the stored manifest has keep their splits.
        """
        manifest = self.plan_splits(self.columns(["task_id"])["task_id"].unique())
        self.store.write_json(self.key("splits/manifest.json"), manifest.to_dict())
        return manifest

    def plan_splits(
        self, tasks: Iterable[str], config: CorpusConfig | None = None
    ) -> SplitManifest:
        """Assign tasks to splits as `make_splits` does, without storing the result."""
        earlier = self.stored_manifest if self.has("splits", "manifest.json") else None
        return plan_splits(config or self.config, tasks, earlier)

    def write_split(self, split: str) -> pd.DataFrame:
        """Store one split's trajectories; refuse where the manifest does not hold."""
        chosen = self.runs_of(split)
        self._store(self.split_key(split), chosen)
        return chosen

    def write_splits(self) -> None:
        """Store every split."""
        for split in SPLITS:
            self.write_split(split)

    def measured_profile(self, manifest: SplitManifest | None) -> CorpusProfile:
        """Profile the corpus, and its splits if there is a manifest, without storing the result."""
        from certify_assets.corpora.profile import profile_corpus

        # one text at a time, so that a corpus larger than memory can be profiled
        with self.store.as_file(self.key("trajectories.parquet")) as path:
            return profile_corpus(
                read_columns(path, SMALL_COLUMNS),
                manifest,
                dropped=self.import_summary.dropped,
                outlines=outlines(path),
                settings=self.config,
            )

    def measure_profile(self) -> CorpusProfile:
        """Profile the corpus and its splits, and store the profile."""
        profile = self.measured_profile(self.stored_manifest).replace(**self.hashes)
        self.store.write_json(self.key("profile.json"), profile.to_dict())
        return profile

    def current_profile(self) -> CorpusProfile | None:
        """Return the stored profile of these runs and splits, or None."""
        if not (self.has("profile.json") and self.has("splits", "manifest.json")):
            return None
        profile = self.profile
        return profile if profile == profile.replace(**self.hashes) else None

    def measure_leaks(self) -> LeakChecks:
        """Run the leak checks on everything but TEST, and store them."""
        from certify_assets.corpora.leakage import check_leaks

        config = self.config
        checks = check_leaks(
            self.runs_of(*(split for split in SPLITS if split != "test")),
            thresholds=config.leak_thresholds,
            accept_structural_leak=config.accept_structural_leak,
        ).replace(**self.hashes)
        self.store.write_json(self.key("controls.json"), checks.to_dict())
        return checks

    def current_leak_checks(self) -> LeakChecks | None:
        """Return the stored leak checks of these runs and settings, or None."""
        if not (self.has("controls.json") and self.has("splits", "manifest.json")):
            return None
        config, checks = self.config, self.leak_checks
        current = checks.replace(
            **self.hashes,
            thresholds=complete_thresholds(config.leak_thresholds),
            accepted=config.accept_structural_leak,
        )
        return checks if checks == current else None

    def require_leak_checks(self) -> str | None:
        """Refuse a corpus with a structural leak; return the finding if the leak was accepted."""
        checks = self.current_leak_checks()
        if checks is None:
            raise LeakError(
                f"the leak controls of {self} were measured on other runs, splits or settings "
                "than it has now; materialize corpora/leak_controls again."
            )
        if self.obstacle:
            raise LeakError(self.obstacle)
        return f"{checks.leaks}; accepted: {checks.accepted}" if checks.over else None

    @property
    def obstacle(self) -> str:
        """Known reason why nothing can be certified on the stored runs, or empty."""
        # what was measured on something else is measured again by the next run
        checks = self.current_leak_checks()
        if checks is None or checks.passed:
            return ""
        return (
            f"{checks.leaks} alone predicts the outcome of {self}, so a judge need not read the "
            "work. Remove the leak, or set accept_structural_leak to the reason for accepting it."
        )

    def task_overlap(self) -> TaskOverlap:
        """Compare the tasks of the corpus with one another."""
        from certify_assets.corpora.profile import TaskOverlap

        return TaskOverlap.of(self.runs)

    def require_separate_tasks(self) -> str | None:
        """Refuse a corpus that counts tasks twice; return the finding if that was accepted."""
        found = " ".join(self.task_overlap().sentences)
        accepted = self.config.accept_shared_tasks
        if found and not accepted:
            raise IntegrityError(
                f"{self} cannot be certified: {found} Or say why the tasks are separate: "
                "certify corpus import … --replace --set accept_shared_tasks=REASON"
            )
        return f"{found} Accepted: {accepted}" if found else None

    def harness_keys(self) -> list[str]:
        """Return the keys by which harnesses record outcomes that texts of runs quote, sorted."""
        from certify_assets.corpora.leakage import LEAK_KEYS, quoted_keys

        return sorted(set(LEAK_KEYS).intersection(quoted_keys(self.trajectories)))

    def runs_of(self, *splits: str) -> pd.DataFrame:
        """Return the imported runs of some splits, without holding those of the others."""
        tasks = {task for task, split in self.assignment.items() if split in splits}
        return self._load(self.key("trajectories.parquet"), tasks=tasks)

    def _load(self, key: str, *, tasks: Container[str] | None = None) -> pd.DataFrame:
        with self.store.as_file(key) as path:
            return read_trajectories(path, tasks=tasks)

    def _store(self, key: str, frame: pd.DataFrame) -> str:
        return self.store.write_bytes(key, parquet_bytes(frame))


def _is_gone(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _import_sha256(config: CorpusConfig) -> str:
    return import_sha256(config.paths, config.format, config.options)
