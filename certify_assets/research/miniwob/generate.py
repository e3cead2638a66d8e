"""Generate the runs of the embedded corpora: the same episodes give the same bytes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.processes import end_with_parent
from certify_assets.research.miniwob.agents import (
    AGENTS,
    MODEL_PREFIX,
    ModelAgent,
    ScriptedAgent,
    instance_seed,
)
from certify_assets.research.miniwob.browser import Browser, list_tasks, require_tools

if TYPE_CHECKING:
    from certify_assets.corpora.schema import Trajectory

EPISODES_FILE = "episodes.jsonl"


def content_sha256(episodes: Iterable[Episode]) -> str:
    """Return the SHA-256 of the episodes in the order of their ids, as canonical JSON lines."""
    ordered = sorted(episodes, key=lambda episode: episode.trajectory_id)
    return sha256_bytes(b"".join(canonical_json(asdict(episode)) for episode in ordered))


def write_corpora(episodes: Iterable[Episode], folder: Path) -> dict[str, Path]:
    """Write one Parquet file a corpus next to the generation file."""
    # here, because every worker imports this module and none needs Arrow
    from certify_assets.corpora.schema import to_frame, write_trajectories

    by_corpus: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_corpus.setdefault(episode.corpus, []).append(episode)
    paths: dict[str, Path] = {}
    for corpus, members in sorted(by_corpus.items()):
        digest = content_sha256(members)
        paths[corpus] = folder / f"{corpus}.parquet"
        write_trajectories(
            paths[corpus], to_frame(trajectory_of(episode, digest) for episode in members)
        )
    return paths


def differing_tasks(one: Path, other: Path) -> list[str]:
    """Return the tasks of which a run differs between two folders of runs."""
    # of 2,000 runs generated twice, by two workers and by one, none differed
    first = {episode.trajectory_id: episode for episode in read_episodes(one / EPISODES_FILE)}
    return sorted(
        {
            episode.task_id
            for episode in read_episodes(other / EPISODES_FILE)
            if first.get(episode.trajectory_id, episode) != episode
        }
    )


def trajectory_of(episode: Episode, digest: str) -> Trajectory:
    """Return an episode as a trajectory; the digest is that of its generation."""
    from certify_assets.corpora.schema import Step, Trajectory

    return Trajectory(
        corpus=episode.corpus,
        task_id=episode.task_id,
        trajectory_id=episode.trajectory_id,
        agent=episode.agent,
        attempt=episode.attempt,
        instruction=episode.instruction,
        steps=tuple(Step(action, observation) for action, observation in episode.steps),
        outcome=episode.outcome,
        source_file=EPISODES_FILE,
        source_sha256=digest,
    )


CORPORA = ("miniwob_weak", "miniwob_mixed")
RETRIES = 2
SILENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished episode as the generation file keeps it: a line of JSON."""

    corpus: str
    task_id: str
    trajectory_id: str
    agent: str
    attempt: int
    instruction: str
    steps: tuple[tuple[str, str], ...]
    outcome: int
    seed: int


@dataclass(frozen=True, slots=True)
class _Job:
    corpus: str
    task: str
    agent: str
    attempt: int

    @property
    def id(self) -> str:
        return f"{self.corpus}/{self.task}/{self.agent}/{self.attempt}"


@dataclass(slots=True)
class Generated:
    """What a generation did: its files, and the episodes that were new, kept, retried, failed."""

    path: Path
    tables: dict[str, Path] = field(default_factory=dict)
    episodes: int = 0
    kept: int = 0
    retries: int = 0
    failed: dict[str, int] = field(default_factory=dict)


def run_episode(
    browser: Browser,
    agent: ScriptedAgent | ModelAgent,
    *,
    corpus: str,
    task: str,
    attempt: int,
    seed: int,
) -> Episode:
    """Run one attempt; the outcome is 1 where the page's raw reward is exactly 1, else 0."""
    page = browser.open(task, instance_seed(seed, task, agent.name, attempt))
    steps = agent.attempt(page, task, attempt)
    outcome = int(page.raw_reward() == 1.0)
    name = f"{corpus}/{task}/{agent.name}/{attempt}"
    return Episode(
        corpus, task, name, agent.name, attempt, page.instruction, tuple(steps), outcome, seed
    )


def read_episodes(path: Path) -> list[Episode]:
    """Read a generation file; a torn last line, as a kill leaves it, is left out."""
    episodes: list[Episode] = []
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            document["steps"] = tuple((action, seen) for action, seen in document["steps"])
            episodes.append(Episode(**document))
        except (ValueError, TypeError, KeyError):
            if number == len(lines):
                break
            raise InputError(
                f"{path} line {number} is not an episode; delete that line and run the generation "
                f"again."
            ) from None
    return episodes


def _serve(pipe: Connection, seed: int) -> None:
    """Run the jobs from the pipe, one Chromium for all until an error or the other side's end."""
    # a page or a model may take minutes to answer, of which a killed parent hears nothing
    end_with_parent()
    browser: Browser | None = None
    try:
        while True:
            job: _Job = pipe.recv()
            try:
                if browser is None:
                    browser = Browser().__enter__()
                agent = _agent(job.agent, seed)
                pipe.send(
                    run_episode(
                        browser,
                        agent,
                        corpus=job.corpus,
                        task=job.task,
                        attempt=job.attempt,
                        seed=seed,
                    )
                )
            except (EOFError, BrokenPipeError):
                raise
            except Exception as error:
                _discard(browser)
                browser = None
                pipe.send(
                    f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[
                        :160
                    ]
                )
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    finally:
        _discard(browser)


def _discard(browser: Browser | None) -> None:
    """End a browser that may already be gone."""
    if browser is not None:
        with contextlib.suppress(Exception):
            browser.__exit__(None, None, None)


def _agent(name: str, seed: int) -> ScriptedAgent | ModelAgent:
    if name.startswith(MODEL_PREFIX):
        return ModelAgent.from_environment()
    return ScriptedAgent(next(agent for agent in AGENTS if agent.name == name), seed=seed)


def _mend(path: Path) -> set[str]:
    """Cut a torn last line off the file and return the ids of the episodes that are in it."""
    if not path.exists():
        return set()
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as stream:
            stream.truncate(len(whole))
    return {episode.trajectory_id for episode in read_episodes(path)}


def _chosen(
    corpora: Sequence[str], tasks: Iterable[str] | None, agents: Iterable[str] | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the tasks and the (corpus, agent) pairs to run, refusing unknown names."""
    known = list_tasks()
    chosen = sorted(set(tasks)) if tasks is not None else known
    for task in chosen:
        if task not in known:
            raise InputError(
                f"MiniWoB++ has no task {task!r}; list them with `certify research "
                "generate-miniwob --list`."
            )
    for corpus in corpora:
        if corpus not in CORPORA:
            raise InputError(
                f"There is no corpus {corpus!r} to generate; choose from {', '.join(CORPORA)}."
            )
    home = {agent.name: agent.corpus for agent in AGENTS}
    pairs: list[tuple[str, str]] = []
    for name in agents if agents is not None else home:
        if name == "model":
            pairs += [(corpus, ModelAgent.from_environment().name) for corpus in corpora]
        elif name not in home:
            raise InputError(
                f"There is no agent {name!r}; choose from {', '.join(home)}, or model."
            )
        elif home[name] in corpora:
            pairs.append((home[name], name))
    return chosen, pairs


def generate(
    output: Path,
    *,
    corpora: Sequence[str] = CORPORA,
    tasks: Iterable[str] | None = None,
    agents: Iterable[str] | None = None,
    attempts: int = 4,
    seed: int = 42,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Generated:
    """Run every missing episode, then write one Parquet file a corpus; resumes after a kill."""
    require_tools()
    chosen, pairs = _chosen(corpora, tasks, agents)
    output.mkdir(parents=True, exist_ok=True)
    path = output / EPISODES_FILE
    finished = _mend(path)
    every = [
        _Job(corpus, task, agent, attempt)
        for task in chosen
        for corpus, agent in pairs
        for attempt in range(attempts)
    ]
    missing = [job for job in every if job.id not in finished]
    result = Generated(path, kept=len(every) - len(missing))
    pool = _Pool(missing, seed=seed, workers=workers)
    for _ in _appended(path, pool.run() if missing else iter(())):
        result.episodes += 1
        if progress is not None:
            progress(result.kept + result.episodes, len(every))
    result.retries, result.failed = pool.retries, dict(pool.failures)
    result.tables = write_corpora(read_episodes(path), output)
    return result


def _appended(path: Path, episodes: Iterator[Episode]) -> Iterator[Episode]:
    """Pass episodes on, each once its line is out of this process's hands."""
    with path.open("ab") as stream:
        for episode in episodes:
            stream.write(
                json.dumps(asdict(episode), ensure_ascii=False, separators=(",", ":")).encode(
                    "utf-8"
                )
                + b"\n"
            )
            stream.flush()
            yield episode
        os.fsync(stream.fileno())


class _Pool:
    """Workers of one job at a time; a silent one is ended and its job tried again."""

    def __init__(self, jobs: Sequence[_Job], *, seed: int, workers: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._waiting = [(job, 0) for job in reversed(jobs)]
        self._seed = seed
        self._count = max(1, min(workers, len(jobs)))
        self._busy: dict[Connection, tuple[Any, _Job, int, float]] = {}
        self.retries = 0
        self.failures: Counter[str] = Counter()

    def run(self) -> Iterator[Episode]:
        """Yield episodes as they are done."""
        try:
            for _ in range(self._count):
                self._start()
            while self._busy:
                for pipe in wait(list(self._busy), timeout=1.0):
                    assert isinstance(pipe, Connection)
                    yield from self._receive(pipe)
                self._end_the_silent()
        finally:
            for pipe, (process, *_) in self._busy.items():
                pipe.close()
                process.kill()

    def _start(self) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, self._seed), daemon=True)
        process.start()
        there.close()
        self._give(here, process)

    def _give(self, pipe: Connection, process: Any) -> None:
        if not self._waiting:
            pipe.close()
            self._busy.pop(pipe, None)
            process.join(timeout=10)
            return
        job, tries = self._waiting.pop()
        self._busy[pipe] = (process, job, tries, time.monotonic())
        try:
            pipe.send(job)
        except OSError:
            self._again(job, tries, "the worker died")
            self._replace(pipe)

    def _receive(self, pipe: Connection) -> Iterator[Episode]:
        process, job, tries, _ = self._busy[pipe]
        try:
            answer = pipe.recv()
        except (EOFError, OSError):
            self._again(job, tries, "the worker died")
            self._replace(pipe)
            return
        if isinstance(answer, Episode):
            yield answer
        else:
            self._again(job, tries, answer)
        self._give(pipe, process)

    def _again(self, job: _Job, tries: int, reason: str) -> None:
        if tries < RETRIES:
            self.retries += 1
            self._waiting.append((job, tries + 1))
        else:
            self.failures[reason.split(":")[0]] += 1

    def _replace(self, pipe: Connection) -> None:
        process, *_ = self._busy.pop(pipe)
        pipe.close()
        process.kill()
        if self._waiting:
            self._start()

    def _end_the_silent(self) -> None:
        for pipe, (_, job, tries, since) in list(self._busy.items()):
            if time.monotonic() - since > SILENCE_S:
                self._again(job, tries, "time-out")
                self._replace(pipe)
