"""The study of a data root: every declared stage on every corpus, skipped where what it left still stands, each corpus in a process of its own.

A stage leaves a record with its key, the hash of everything that its documents depend on, and the hashes of the documents. A stage whose record has
the key of now, and whose documents are those of the record, is kept. A killed study goes on at the stage in which it was killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from certify_assets.corpora.config import load_config, registered_corpora
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.errors import CertifyError, GateClosedError, InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.research.study import ALL, PROFILES, RUN_KEY, Outcome, Profile
from certify_assets.research.study_stages import STAGES, Stage, Work
from certify_assets.storage.shards import ONE_THREAD, chosen_engine, run_shards
from certify_assets.storage.store import Store

_SCHEMA = "certify_assets/study_run/1"
_THERE = ("done", "kept")
_Say = Callable[[str], None]


def stage_record_key(corpus: str, stage: str) -> str:
    """Return where the record of a stage is stored."""
    return f"study/stages/{corpus}/{stage}.json"


def run_full_study(
    store: Store,
    corpora: Sequence[str] = (),
    *,
    profile: str = "quick",
    workers: int = 2,
    stages: Sequence[Stage] | None = None,
    say: _Say = lambda _: None,
) -> list[Outcome]:
    """Run every stage on every corpus, store what became of each, and return it.

    Parameters
    ----------
    store : Store
    corpora : sequence of str
        All registered ones where none is named; language models run on those that are named, else on the embedded ones.
    profile : {"quick", "full"}
    workers : int
        Processes; the documents do not depend on it. They write their progress to stderr themselves.
    stages : sequence of Stage, optional
    say : callable

    Raises
    ------
    InputError
        If a corpus or profile is unknown; what a stage raises is its outcome.
    """
    if profile not in PROFILES:
        raise InputError(f"there is no profile {profile!r}; give one of {', '.join(PROFILES)}.")
    for name in corpora:
        load_config(store, name)
    stages = STAGES if stages is None else stages
    names = sorted(set(corpora)) or registered_corpora(store)
    chosen, language = PROFILES[profile], tuple(sorted(set(corpora))) or EMBEDDED
    found: dict[tuple[str, str], Outcome] = {}
    works = [Work(store, name, chosen, language, say=say) for name in names]
    for phase in (0, 1):
        for outcomes in _each_corpus(
            works, found, [stage for stage in stages if stage.phase == phase], workers
        ):
            found |= {(outcome.corpus, outcome.stage): outcome for outcome in outcomes}
    whole = Work(store, ALL, chosen, language, workers, say)
    for stage in (stage for stage in stages if stage.phase == 2):
        found[ALL, stage.name] = run_stage(whole, stage, found)
    order = {(name, stage.name): None for name in (*names, ALL) for stage in stages}
    ordered = [found[place] for place in order if place in found]
    store.write_json(RUN_KEY, _document(store, profile, names, ordered))
    return ordered


def run_stage(work: Work, stage: Stage, found: Mapping[tuple[str, str], Outcome]) -> Outcome:
    """Run one stage, or say why not; an error is the stage's outcome and stops no other.

    Parameters
    ----------
    work : Work
    stage : Stage
    found : mapping
        Outcomes of the stages before it, by corpus and name.
    """
    started = time.monotonic()
    status, reason = _attempted(work, stage, found)
    seconds = time.monotonic() - started
    words = f": {reason}" if reason else f" ({seconds:.1f} s)" if status == "done" else ""
    work.say(f"{work.corpus}: {stage.name} {status}{words}")
    return Outcome(
        work.corpus,
        stage.name,
        status,
        reason,
        stage.command.replace("CORPUS", work.corpus),
        round(seconds, 1),
    )


def _attempted(
    work: Work, stage: Stage, found: Mapping[tuple[str, str], Outcome]
) -> tuple[str, str]:
    if reason := stage.left_out(work):
        return ("kept", "") if _kept(work, stage) else ("skipped", reason)
    before = (found.get((work.corpus, name)) for name in stage.needs)
    absent = next(
        (outcome for outcome in before if outcome is not None and outcome.status not in _THERE),
        None,
    )
    if absent is not None:
        return (
            "skipped",
            f"it needs {absent.stage}, which {'failed' if absent.status == 'failed' else 'was skipped'}.",
        )
    try:
        if _kept(work, stage):
            return "kept", ""
        key = _key(work, stage)
        if reason := stage.run(work):
            return "skipped", reason
        documents = {name: work.store.sha256(name) for name in stage.documents(work)}
        work.store.write_json(
            stage_record_key(work.corpus, stage.name),
            {"stage": stage.name, "key": key, "documents": documents},
        )
    except GateClosedError as closed:
        return "skipped", str(closed)
    except CertifyError as error:
        return "failed", str(error)
    except Exception as error:  # the other stages go on whatever one of them meets
        return "failed", f"{type(error).__name__}: {error}"
    return "done", ""


def _kept(work: Work, stage: Stage) -> bool:
    """Whether what stands was made from what is stored now, by this profile or a larger one."""
    where = stage_record_key(work.corpus, stage.name)
    if not work.store.exists(where):
        return False
    record = work.store.read_json(where)
    larger = list(PROFILES.values())[list(PROFILES).index(work.profile.name) :]
    if record["key"] not in {_key(_with(work, profile), stage) for profile in larger}:
        return False
    return all(
        work.store.exists(name) and work.store.sha256(name) == digest
        for name, digest in record["documents"].items()
    )


def _with(work: Work, profile: Profile) -> Work:
    return Work(work.store, work.corpus, profile, work.language, work.workers, work.say)


def _key(work: Work, stage: Stage) -> str:
    return sha256_bytes(canonical_json({"stage": stage.name, "inputs": dict(stage.inputs(work))}))


def _each_corpus(
    works: Sequence[Work],
    found: Mapping[tuple[str, str], Outcome],
    stages: Sequence[Stage],
    workers: int,
) -> Iterator[list[Outcome]]:
    """Run stages on every corpus, each corpus in a process of its own where there may be several."""
    engine = chosen_engine(workers)
    if not stages or (engine != "ray" and (workers == 1 or len(works) < 2)):
        yield from (_one_corpus(work, found, stages) for work in works)
        return
    names, known = tuple(stage.name for stage in stages), dict(found)
    asked = [
        (work.store.root, work.corpus, work.profile.name, work.language, names, known)
        for work in works
    ]
    for _, outcomes in run_shards(
        _in_process, asked, engine=engine, workers=workers, prepare=_one_thread, fresh=True
    ):
        yield outcomes


def _in_process(
    asked: tuple[str, str, str, tuple[str, ...], Sequence[str], Mapping[tuple[str, str], Outcome]],
) -> list[Outcome]:
    root, corpus, profile, language, names, found = asked
    work = Work(Store(root), corpus, PROFILES[profile], language, say=_say_while_watched)
    return _one_corpus(work, found, [stage for stage in STAGES if stage.name in names])


def _say_while_watched(text: str) -> None:
    """Say it on stderr; where the process that waits for the answer was killed, end at this place, so that its successor works alone."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None and not parent.is_alive():
        raise KeyboardInterrupt
    print(text, file=sys.stderr, flush=True)


def _one_corpus(
    work: Work, found: Mapping[tuple[str, str], Outcome], stages: Sequence[Stage]
) -> list[Outcome]:
    known = dict(found)
    for stage in stages:
        known[work.corpus, stage.name] = run_stage(work, stage, known)
    return [known[work.corpus, stage.name] for stage in stages]


def _one_thread() -> None:
    import signal

    # an interrupt from the keyboard ends every process; what was finished is kept
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)


def _document(
    store: Store, profile: str, corpora: Sequence[str], outcomes: Sequence[Outcome]
) -> dict[str, Any]:
    """Return what is stored of a run: no time, and a kept stage is as good as a done one, so that a second run leaves the same bytes."""
    stages = []
    for outcome in outcomes:
        item = {name: value for name, value in asdict(outcome).items() if name != "seconds"}
        stages.append(item | {"status": "done" if outcome.status in _THERE else outcome.status})
    return {"schema": _SCHEMA, "profile": profile, "corpora": list(corpora), "stages": stages}
