"""The study of a data root: two jobs, on every corpus, without what is up to date."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from certify_assets.corpora.config import load_config, registered_corpora
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.execution import (
    OpsConfig,
    execute,
    failures,
    instance_with,
    job_named,
    observe_sources,
    one_writer,
)
from certify_assets.defs.names import VERSION, is_stored, key, stored_version
from certify_assets.errors import InputError
from certify_assets.judges.specs import JUDGES
from certify_assets.processes import in_processes
from certify_assets.research.seed_study import seeds_key
from certify_assets.research.simulation_study import SIMULATION_KEY
from certify_assets.research.study import (
    ALL,
    COMMANDS,
    PROFILES,
    THERE,
    Outcome,
    Profile,
    save_outcomes,
)
from certify_assets.storage.store import Store, default_root

STUDY, TABLES, REPORT = "research_study", "research_tables", key("research/report")
_SPLITS = (
    "trajectories split_manifest sft_split rl_split cal_split test_split profile leak_controls"
)
Found = dict[tuple[str, str], Outcome]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """Assets that the study reports together."""

    name: str
    # 0 needs nothing of other corpora, 1 their splits, 2 every judge there is, 3 all corpora
    phase: int
    assets: tuple[dg.AssetKey, ...]
    # stages without which it cannot be
    needs: tuple[str, ...] = ()
    # whether a language model is trained
    language: bool = False

    def left_out(self, profile: Profile, corpus: str, language: Sequence[str]) -> str:
        """Say why a profile leaves this stage out; "" where it does not."""
        if self.language and not profile.language:
            return "a language model takes minutes to hours; --profile full runs it."
        if self.language and corpus not in language:
            return (
                "language models run on the embedded corpora; name this corpus on the command "
                "line to run them here."
            )
        return ""


def _stage(name: str, phase: int, assets: str, *needs: str, language: bool = False) -> Stage:
    return Stage(name, phase, tuple(map(key, assets.split())), needs, language)


def _judge(name: str) -> Stage:
    spec = JUDGES[name]
    parts = " ".join(
        f"judges/{name}/{part}" for part in ("model", "scores", "certificate", "audit")
    )
    compact = "judges/compact_model " if name == "base" else ""
    needs = ("splits", *([spec.start] if spec.start else []))
    phase = 1 if spec.needs_other_corpora else 0
    # what is untrained is read in a minute, and the law needs it
    language = spec.uses_language_model and not spec.untrained
    return _stage(name, phase, compact + parts, *needs, language=language)


STAGES: tuple[Stage, ...] = (
    _stage("splits", 0, " ".join(f"corpora/{name}" for name in _SPLITS.split())),
    _judge("lexical"),
    _judge("lexical_weighted"),
    _stage("seeds", 0, "research/seed_study", "splits"),
    _stage("harvests", 0, "research/harvests", "splits"),
    _judge("base"),
    _judge("sft"),
    _judge("grpo"),
    _stage("harvests_sft", 0, "research/harvests_lm", "splits", language=True),
    *(_judge(name) for name in JUDGES if JUDGES[name].needs_other_corpora),
    _stage("harvests_transfer", 1, "research/harvests_transfer", "splits"),
    _stage("agents", 2, "corpora/agent_disjoint", "lexical"),
    _stage("real_scores", 2, "research/real_scores", "lexical"),
    _stage("comparison", 2, "corpora/comparison", "lexical"),
    _stage("main_table", 3, "research/main_table"),
    _stage("law", 3, "research/certifiability"),
    _stage("simulation", 3, "research/simulation"),
)


def run_study(
    corpora: Sequence[str] = (),
    *,
    profile: str = "quick",
    workers: int = 2,
    stages: Sequence[Stage] | None = None,
    say: Say = lambda _: None,
) -> list[Outcome]:
    """Run every stage on every corpus of this process's data root; return what became of each."""
    # all registered corpora where none is named, and language models on the embedded ones alone;
    # a process a corpus, on whose number the documents do not depend
    if profile not in PROFILES:
        raise InputError(f"there is no profile {profile!r}; give one of {', '.join(PROFILES)}.")
    store = Store(default_root())
    for name in corpora:
        load_config(store, name)
    chosen = tuple(STAGES if stages is None else stages)
    names = sorted(set(corpora)) or registered_corpora(store)
    language = tuple(sorted(set(corpora))) or EMBEDDED
    with instance_with(names):
        pass
    found: Found = {}
    for phase in (0, 1, 2):
        wanted = tuple(stage for stage in chosen if stage.phase == phase)
        asked = [(name, PROFILES[profile], language, wanted, dict(found)) for name in names]
        for outcomes in _each_corpus(asked if wanted else [], workers):
            for outcome in outcomes:
                found[outcome.corpus, outcome.stage] = outcome
                _tell(outcome, say)
    tables = tuple(stage for stage in chosen if stage.phase == 3)
    for outcome in _part(ALL, PROFILES[profile], language, tables, found, workers=workers):
        found[ALL, outcome.stage] = outcome
        _tell(outcome, say)
    order = [(name, stage.name) for name in (*names, ALL) for stage in chosen]
    ordered = [found[place] for place in order if place in found]
    changed = save_outcomes(store, profile, names, ordered)
    with dg.DagsterInstance.get() as instance:
        # the site shows what was not run, so it depends on the outcomes too
        if changed or stale(instance, [REPORT], ""):
            execute(TABLES, instance, selection=[REPORT])
    return ordered


def _tell(outcome: Outcome, say: Say) -> None:
    done = f" ({outcome.seconds:.1f} s)" if outcome.status == "done" else ""
    say(
        f"{outcome.corpus}: {outcome.stage} {outcome.status}"
        + (f": {outcome.reason}" if outcome.reason else done)
    )


Asked = tuple[str, Profile, Sequence[str], Sequence[Stage], Found]


def _each_corpus(asked: Sequence[Asked], workers: int) -> Iterator[list[Outcome]]:
    """Run a phase on every corpus, in processes where there may be several."""
    if workers == 1 or len(asked) < 2:
        yield from map(_one_corpus, asked)
        return
    with dg.DagsterInstance.get() as instance:
        # a process takes seconds to start, and a corpus with nothing to do takes none
        idle = [one for one in asked if not _due(instance, one)]
    yield from map(_one_corpus, idle)
    busy = [one for one in asked if one not in idle]
    if len(busy) < 2:
        yield from map(_one_corpus, busy)
        return
    for _, outcomes in in_processes(
        _one_corpus, busy, workers=workers, prepare=_prepare, fresh=True
    ):
        yield outcomes


def _due(instance: dg.DagsterInstance, asked: Asked) -> bool:
    corpus, profile, language, stages, found = asked
    observe_sources(instance, corpus)
    chosen = _candidates(corpus, profile, language, stages, found)
    keys = [item for stage in chosen for item in stage.assets]
    return bool(stale(instance, keys, corpus, profile))


def _one_corpus(asked: Asked) -> list[Outcome]:
    corpus, profile, language, stages, found = asked
    with one_writer(corpus):
        return _part(corpus, profile, language, stages, found)


def _candidates(
    corpus: str,
    profile: Profile,
    language: Sequence[str],
    stages: Sequence[Stage],
    found: Mapping[tuple[str, str], Outcome],
) -> list[Stage]:
    """Return the stages that the profile has and whose needs are there."""
    return [
        stage
        for stage in stages
        if not stage.left_out(profile, corpus, language) and not _absent(stage, corpus, found)
    ]


def _absent(stage: Stage, corpus: str, found: Mapping[tuple[str, str], Outcome]) -> str:
    before = (found.get((corpus, name)) for name in stage.needs)
    absent = next((one for one in before if one is not None and one.status not in THERE), None)
    if absent is None:
        return ""
    became = "failed" if absent.status == "failed" else "was skipped"
    return f"it needs {absent.stage}, which {became}."


def _part(
    corpus: str,
    profile: Profile,
    language: Sequence[str],
    stages: Sequence[Stage],
    found: Mapping[tuple[str, str], Outcome],
    *,
    workers: int = 1,
) -> list[Outcome]:
    """Run what is stale of some stages as one run of a job; return what became of each."""
    partition = "" if corpus == ALL else corpus
    chosen = _candidates(corpus, profile, language, stages, found)
    keys = [item for stage in chosen for item in stage.assets]
    with dg.DagsterInstance.get() as instance:
        observe_sources(instance, partition)
        selection = stale(instance, keys, partition, profile)
        result = None
        if selection:
            result = execute(
                STUDY if partition else TABLES,
                instance,
                partition,
                selection,
                config=_config(selection, profile, workers),
                quiet=False,
                label=f"{partition} " if partition else "",
                lines=True,
            )
        fresh = {
            stage.name
            for stage in stages
            if stage not in chosen and not stale(instance, stage.assets, partition, profile)
        }
    seen = _Events(result)
    outcomes: dict[tuple[str, str], Outcome] = dict(found)
    for stage in stages:
        status, reason, seconds = "kept", "", 0.0
        if stage in chosen:
            status, reason, seconds = seen.outcome(stage, selection)
            if status == "skipped" and not reason:
                reason = _absent(stage, corpus, outcomes) or "a step that it needs did not end."
        elif stage.name not in fresh:
            status = "skipped"
            reason = stage.left_out(profile, corpus, language) or _absent(stage, corpus, outcomes)
        command = COMMANDS[stage.name].replace("CORPUS", corpus)
        outcomes[corpus, stage.name] = Outcome(
            corpus, stage.name, status, reason, command, round(seconds, 1)
        )
    return [outcomes[corpus, stage.name] for stage in stages]


class _Events:
    """What became of assets in a run."""

    def __init__(self, result: dg.JobExecutionResult | None) -> None:
        self.made: set[dg.AssetKey] = set()
        self.closed: dict[dg.AssetKey, str] = {}
        self.seconds: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        if result is None:
            return
        self.failed = failures(result)
        for event in result.all_events:
            if event.is_step_materialization and event.asset_key is not None:
                self.made.add(event.asset_key)
            elif event.event_type == dg.DagsterEventType.ASSET_OBSERVATION:
                noted = event.asset_observation_data.asset_observation
                if "gate_closed" in noted.metadata:
                    self.closed[noted.asset_key] = str(noted.metadata["gate_closed"].value)
            elif event.is_step_success and event.step_key is not None:
                place = event.step_key.split(".")[0]
                took = event.step_success_data.duration_ms / 1000
                self.seconds[place] = self.seconds.get(place, 0.0) + took

    def outcome(self, stage: Stage, selection: Collection[dg.AssetKey]) -> tuple[str, str, float]:
        """Return status, reason and seconds of a stage whose stale assets were selected."""
        selected = [item for item in stage.assets if item in selection]
        seconds = sum(self.seconds.get(item.to_python_identifier(), 0.0) for item in selected)
        if not selected:
            return "kept", "", 0.0
        for item in selected:
            for place, text in self.failed.items():
                # of a step, or "CHECK of ASSET"
                named = place.split(".")[0] == item.to_python_identifier()
                if named or place.endswith(f" of {item.to_user_string()}"):
                    return "failed", text, seconds
        if missing := [item for item in selected if item not in self.made]:
            reason = next((self.closed[item] for item in missing if item in self.closed), "")
            return "skipped", reason, seconds
        return "done", "", seconds


def stale(
    instance: dg.DagsterInstance,
    keys: Sequence[dg.AssetKey],
    corpus: str,
    profile: Profile | None = None,
) -> set[dg.AssetKey]:
    """Return those of the assets that are not up to date, and those after them."""
    # up to date is what Dagster says is, by code and data versions, and whose documents are those
    # that were materialized: a killed study resumes, and a second one makes nothing
    # the resolver behind the UI's "unsynced", and behind RunRequest(stale_assets_only=True)
    from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
    from dagster._core.loader import LoadingContextForTest

    graph = job_named(STUDY).asset_layer.asset_graph.source_asset_graph
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    store, wanted = Store(default_root()), set(keys)
    found: set[dg.AssetKey] = set()
    for item in graph.toposorted_asset_keys:
        if item not in wanted:
            continue
        partition = corpus if graph.get(item).is_partitioned else None
        if (
            graph.get(item).parent_keys & found
            or resolver.get_status(item, partition) != StaleStatus.FRESH
            or not _intact(instance, store, item, partition, profile)
        ):
            found.add(item)
    return found


def _intact(
    instance: dg.DagsterInstance,
    store: Store,
    item: dg.AssetKey,
    corpus: str | None,
    profile: Profile | None,
) -> bool:
    """Whether an asset's documents are those of its last materialization, and large enough."""
    version = stored_version(store, item, corpus or "")
    if version is None:
        return True
    made = _materialized(instance, item, corpus)
    if made is None or (made.tags or {}).get(VERSION) != version.value:
        return False
    if profile is None or not is_stored(store, item, corpus or ""):
        return True
    if item == key("research/seed_study"):
        return len(store.read_json(seeds_key(corpus or ""))["plan"]["seeds"]) >= profile.seeds
    if item == key("research/simulation"):
        trials = store.read_json(SIMULATION_KEY)["trials"]
        return bool(trials >= profile.trials)
    return True


def _materialized(
    instance: dg.DagsterInstance, item: dg.AssetKey, corpus: str | None
) -> dg.AssetMaterialization | None:
    where = dg.AssetRecordsFilter(asset_key=item, asset_partitions=[corpus] if corpus else None)
    records = instance.fetch_materializations(where, limit=1).records
    return records[0].asset_materialization if records else None


def _config(selection: Collection[dg.AssetKey], profile: Profile, workers: int) -> OpsConfig:
    wanted = {
        key("research/seed_study"): {"seeds": profile.seeds},
        key("research/simulation"): {"trials": profile.trials, "workers": workers},
    }
    return {
        item.to_python_identifier(): {"config": config}
        for item, config in wanted.items()
        if item in selection
    }


def _prepare() -> None:
    # an interrupt from the keyboard ends every process; what was finished is kept
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # as many corpora at once as cores: threads of their own would only wait for one another
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
