"""The study of a data root: two jobs, on every corpus, without what is up to date."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from certify_assets.corpora.config import load_config, registered_corpora
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.execution import (
    execute,
    failures,
    instance_with,
    job_named,
    observe_sources,
    one_run,
)
from certify_assets.defs.jobs import STUDY, TABLES
from certify_assets.defs.names import VERSION, document_of, stored_version
from certify_assets.defs.project import this_project
from certify_assets.errors import InputError
from certify_assets.judges.specs import JUDGES
from certify_assets.research.simulation_study import SIMULATION_KEY
from certify_assets.research.tables import Outcome
from certify_assets.storage.root import default_root
from certify_assets.storage.store import Store

_SIMULATION = "research/simulation"
# what reads every judge there is
_LAST = {"corpora/comparison", "research/real_scores"}
_WAITED = "a step that it needs did not end."
Say = Callable[[str], None]


@dataclass(frozen=True)
class Profile:
    """How much is run."""

    # calibration sets a design of the simulation
    trials: int
    # whether the language-model judges are trained: minutes each
    language: bool


#: what a larger one made is kept by a smaller one
PROFILES = {"quick": Profile(20, language=False), "full": Profile(300, language=True)}


def run_study(
    corpora: Sequence[str] = (), *, profile: str = "quick", say: Say = lambda _: None
) -> list[Outcome]:
    """Make what is not up to date on every corpus of this process's data root, then the tables.

    All registered corpora where none is named; language models are trained on the named ones,
    else on the embedded ones.
    """
    if profile not in PROFILES:
        raise InputError(f"there is no profile {profile!r}; give one of {', '.join(PROFILES)}.")
    store, asked = Store(default_root()), PROFILES[profile]
    for name in corpora:
        load_config(store, name)
    names = sorted(set(corpora)) or registered_corpora(store)
    trained = set(corpora or EMBEDDED) if asked.language else set()
    with instance_with(names):
        pass
    made = job_keys(STUDY)
    outcomes: list[Outcome] = []
    # judges by transfer come after all corpora are split; what reads every judge has a run of its
    # own, since a judge that is skipped would skip it
    for part in range(3):
        for name in names:
            keys = [
                item
                for item in made
                if _part(item) == part and (name in trained or not _trains(item))
            ]
            with one_run(name):
                outcomes += _make(STUDY, keys, name, asked, say)
    return outcomes + _make(TABLES, list(job_keys(TABLES)), "", asked, say)


def job_keys(job: str) -> Collection[dg.AssetKey]:
    """Return the assets of a job."""
    return set(job_named(job).asset_layer.executable_asset_keys)


def _trains(item: dg.AssetKey) -> bool:
    """Whether it belongs to a trained language model, which takes minutes to hours."""
    spec = JUDGES.get(this_project().judge_of(item))
    return spec is not None and spec.uses_language_model and not spec.untrained


def _part(item: dg.AssetKey) -> int:
    spec = JUDGES.get(this_project().judge_of(item))
    if this_project().name_of(item) in _LAST:
        return 2
    return int(spec is not None and spec.needs_other_corpora)


def _make(
    job: str, keys: Sequence[dg.AssetKey], corpus: str, profile: Profile, say: Say
) -> list[Outcome]:
    """Make what is stale of some assets as one run of a job; return what became of each."""
    result = None
    with dg.DagsterInstance.get() as instance:
        observe_sources(instance, corpus)
        selection = stale(instance, keys, corpus, profile)
        if selection:
            simulation = this_project().key(_SIMULATION)
            trials = {"config": {"trials": profile.trials}}
            result = execute(
                job,
                instance,
                corpus,
                selection,
                config={simulation.to_python_identifier(): trials}
                if simulation in selection
                else None,
                shown="lines",
                label=f"{corpus} " if corpus else "",
            )
    outcomes = [
        _outcome(corpus, item, result)
        if result is not None and item in selection
        else Outcome(corpus, this_project().name_of(item), "kept")
        for item in sorted(keys)
    ]
    for outcome in outcomes:
        if outcome.reason not in ("", _WAITED):
            place = f"{corpus}: " if corpus else ""
            say(f"{place}{outcome.asset} {outcome.status}: {outcome.reason}")
    return outcomes


def _outcome(corpus: str, item: dg.AssetKey, result: dg.JobExecutionResult) -> Outcome:
    for place, text in failures(result.all_events).items():
        # of a step, or "CHECK of ASSET"
        step = place.split(".")[0] == item.to_python_identifier()
        if step or place.endswith(f" of {item.to_user_string()}"):
            return Outcome(corpus, this_project().name_of(item), "failed", text)
    reason = _WAITED
    for event in result.all_events:
        if event.asset_key != item:
            continue
        if event.is_step_materialization:
            return Outcome(corpus, this_project().name_of(item), "done")
        if event.event_type == dg.DagsterEventType.ASSET_OBSERVATION:
            noted = event.asset_observation_data.asset_observation.metadata
            reason = str(noted["gate_closed"].value) if "gate_closed" in noted else reason
    return Outcome(corpus, this_project().name_of(item), "skipped", reason)


def stale(
    instance: dg.DagsterInstance,
    keys: Collection[dg.AssetKey],
    corpus: str,
    profile: Profile = PROFILES["quick"],
) -> set[dg.AssetKey]:
    """Return those of the assets that are not up to date, and those after them.

    Up to date is what has the code and the inputs that Dagster recorded, and the documents that
    were materialized. So a killed study resumes, and a second one makes nothing.
    """
    graph = job_named(STUDY).asset_layer.asset_graph.source_asset_graph
    store, found = Store(default_root()), set[dg.AssetKey]()
    for item in graph.toposorted_asset_keys:
        if item in keys and (
            graph.get(item).parent_keys & found
            or not _is_current(instance, store, graph, item, corpus)
            or (this_project().name_of(item) == _SIMULATION and _trials(store) < profile.trials)
        ):
            found.add(item)
    return found


def _trials(store: Store) -> int:
    document: Mapping[str, int] = store.read_json(SIMULATION_KEY)
    return document["trials"]


def _is_current(
    instance: dg.DagsterInstance, store: Store, graph: Any, item: dg.AssetKey, corpus: str
) -> bool:
    """Whether code, inputs and documents are those of the last materialization."""
    node = graph.get(item)
    partition = corpus if node.is_partitioned else ""
    made = _newest(instance, item, partition)
    if made is None:
        return False
    name = this_project().name_of(item)
    tags, now = _tags(made), stored_version(store, name, partition)
    if tags.get("dagster/code_version") != node.code_version:
        return False
    if now is None and document_of(name, partition) is not None:
        return False
    if now is not None and tags.get(VERSION) != now.value:
        return False
    for parent in node.parent_keys:
        about, mapping = graph.get(parent), graph.get_partition_mapping(item, parent)
        whole = isinstance(mapping, dg.AllPartitionMapping)
        read = _newest(instance, parent, partition if about.is_partitioned and not whole else "")
        recorded = tags.get(f"dagster/input_data_version/{parent.to_user_string()}")
        if read is None:
            continue
        if whole or not about.is_executable:
            # of all corpora, or written by others: what was there before is what was read
            current = read.storage_id < made.storage_id
        else:
            current = recorded == _tags(read).get(VERSION)
        if not current:
            return False
    return True


def _tags(record: dg.EventLogRecord) -> Mapping[str, str]:
    event = record.asset_materialization or record.asset_observation
    return (event.tags if event is not None else None) or {}


def _newest(
    instance: dg.DagsterInstance, item: dg.AssetKey, corpus: str
) -> dg.EventLogRecord | None:
    """Return the last materialization of an asset; of one that no run makes what was observed."""
    where = dg.AssetRecordsFilter(asset_key=item, asset_partitions=[corpus] if corpus else None)
    records = instance.fetch_materializations(where, limit=1).records
    records = records or instance.fetch_observations(where, limit=1).records
    return records[0] if records else None
