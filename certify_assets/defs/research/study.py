"""The study of a data root: two jobs, on every corpus, without what is up to date."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

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
from certify_assets.defs.names import VERSION, judge_of, key, name_of, stored_version
from certify_assets.errors import InputError
from certify_assets.judges.specs import JUDGES
from certify_assets.research.simulation_study import SIMULATION_KEY
from certify_assets.research.study import PROFILES, Outcome, Profile
from certify_assets.storage.store import Store, default_root

STUDY, TABLES = "research_study", "research_tables"
_SIMULATION = "research/simulation"
# what reads every judge there is
_LAST = {"corpora/agent_disjoint", "corpora/comparison", "research/real_scores"}
_WAITED = "a step that it needs did not end."
Say = Callable[[str], None]


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
    spec = JUDGES.get(judge_of(item))
    return spec is not None and spec.uses_language_model and not spec.untrained


def _part(item: dg.AssetKey) -> int:
    spec = JUDGES.get(judge_of(item))
    if name_of(item) in _LAST:
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
            trials = {"config": {"trials": profile.trials}}
            result = execute(
                job,
                instance,
                corpus,
                selection,
                config={key(_SIMULATION).to_python_identifier(): trials}
                if key(_SIMULATION) in selection
                else None,
                quiet=False,
                label=f"{corpus} " if corpus else "",
            )
    outcomes = [
        _outcome(corpus, item, result)
        if result is not None and item in selection
        else Outcome(corpus, name_of(item), "kept")
        for item in sorted(keys)
    ]
    for outcome in outcomes:
        if outcome.reason not in ("", _WAITED):
            place = f"{corpus}: " if corpus else ""
            say(f"{place}{outcome.asset} {outcome.status}: {outcome.reason}")
    return outcomes


def _outcome(corpus: str, item: dg.AssetKey, result: dg.JobExecutionResult) -> Outcome:
    for place, text in failures(result).items():
        # of a step, or "CHECK of ASSET"
        step = place.split(".")[0] == item.to_python_identifier()
        if step or place.endswith(f" of {item.to_user_string()}"):
            return Outcome(corpus, name_of(item), "failed", text)
    reason = _WAITED
    for event in result.all_events:
        if event.asset_key != item:
            continue
        if event.is_step_materialization:
            return Outcome(corpus, name_of(item), "done")
        if event.event_type == dg.DagsterEventType.ASSET_OBSERVATION:
            noted = event.asset_observation_data.asset_observation.metadata
            reason = str(noted["gate_closed"].value) if "gate_closed" in noted else reason
    return Outcome(corpus, name_of(item), "skipped", reason)


def stale(
    instance: dg.DagsterInstance,
    keys: Collection[dg.AssetKey],
    corpus: str,
    profile: Profile = PROFILES["quick"],
) -> set[dg.AssetKey]:
    """Return those of the assets that are not up to date, and those after them.

    Up to date is what Dagster says is, by code and data versions, and whose documents are those
    that were materialized. So a killed study resumes, and a second one makes nothing.
    """
    # the resolver behind the UI's "unsynced", and behind RunRequest(stale_assets_only=True)
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    graph = job_named(STUDY).asset_layer.asset_graph.source_asset_graph
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    store, found = Store(default_root()), set[dg.AssetKey]()
    for item in graph.toposorted_asset_keys:
        if item not in keys:
            continue
        partition = corpus if graph.get(item).is_partitioned else None
        if (
            graph.get(item).parent_keys & found
            or resolver.get_status(item, partition) != StaleStatus.FRESH
            or not _intact(instance, store, item, partition)
            or (partition is None and _preceded(instance, item, graph.get(item).parent_keys))
            or (name_of(item) == _SIMULATION and _trials(store) < profile.trials)
        ):
            found.add(item)
    return found


def _trials(store: Store) -> int:
    document: Mapping[str, int] = store.read_json(SIMULATION_KEY)
    return document["trials"]


def _intact(
    instance: dg.DagsterInstance, store: Store, item: dg.AssetKey, corpus: str | None
) -> bool:
    """Whether an asset's documents are those of its last materialization."""
    version = stored_version(store, item, corpus or "")
    if version is None:
        return True
    record = _newest(instance, item, corpus)
    made = record.asset_materialization if record else None
    return made is not None and (made.tags or {}).get(VERSION) == version.value


def _preceded(
    instance: dg.DagsterInstance, item: dg.AssetKey, parents: Collection[dg.AssetKey]
) -> bool:
    """Whether a partition of a parent was made after it: Dagster overlooks the first one."""
    made = _newest(instance, item)
    later = (_newest(instance, parent) for parent in parents)
    return made is None or any(found and found.storage_id > made.storage_id for found in later)


def _newest(
    instance: dg.DagsterInstance, item: dg.AssetKey, corpus: str | None = None
) -> dg.EventLogRecord | None:
    where = dg.AssetRecordsFilter(asset_key=item, asset_partitions=[corpus] if corpus else None)
    records = instance.fetch_materializations(where, limit=1).records
    return records[0] if records else None
