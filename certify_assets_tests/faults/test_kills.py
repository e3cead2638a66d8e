"""kill -9 at random points of a full materialization and of the runs that resume it: nothing
finished is lost, a rerun completes, the bytes are those of an undisturbed run."""

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.storage.care import collect, verify
from certify_assets.storage.store import Store
from certify_assets_tests.faults.small import command, environment, made, prepare, results, run
from certify_assets_tests.paths import REPOSITORY

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("CERTIFY_TEST_KILLS", "8"))
#: kills of one data root, each of a run that resumes the one before
IN_TURN = 8
#: kills come before the last steps of the pipeline, which has a few more
STEPS = 24
#: the seed of the points: change it to try others
SEED = 7
_STEP = re.compile(r"^\s*(\d+)/(\d+) (\S+) done")


@dataclass
class Outcome:
    """What one kill left."""

    after: int
    delay: float
    told_done: int
    documents: int
    kept: int = 0
    lost: int = 0
    differing: int = 0
    again: int = 0


@pytest.fixture(scope="module")
def table() -> Iterator[list[Outcome]]:
    found: list[Outcome] = []
    yield found
    print(
        f"\n{'kill after':>11}{'delay':>7}{'steps done':>11}{'documents':>10}{'kept':>6}{'lost':>6}{'differing':>10}{'made again':>11}"
    )
    for item in found:
        print(
            f"{item.after:11d}{item.delay:7.2f}{item.told_done:11d}{item.documents:10d}{item.kept:6d}{item.lost:6d}{item.differing:10d}"
            f"{item.again:11d}"
        )
    print(
        f"{len(found)} kills, {sum(item.lost for item in found)} documents lost, {sum(item.differing for item in found)} differing"
    )


def _points(root: int) -> list[tuple[int, float]]:
    """Steps of the pipeline to wait for and seconds after that, one kill in each part of it; the
    first before any step."""
    draw = random.Random(SEED + root)
    edges = [round(STEPS * part / (IN_TURN - 1)) for part in range(IN_TURN)]
    later = [draw.randrange(low, high) for low, high in pairwise(edges)]
    return [(after, draw.uniform(0.0, 1.5)) for after in (0, *later)]


def _killed(root: Path, after: int, delay: float) -> list[str]:
    """Run until so many steps are done and some time more, then kill the group; return the steps that were told done."""
    victim = subprocess.Popen(
        command(),
        env=environment(root),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert victim.stderr is not None
    done: list[str] = []
    if after:
        for line in victim.stderr:
            if found := _STEP.match(line):
                done.append(found.group(3))
            if len(done) >= after:
                break
    else:
        # the libraries are there: a second later the first steps are done
        time.sleep(0.5)
    time.sleep(delay)
    if victim.poll() is None:
        os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    done += [
        found.group(3) for line in victim.stderr.read().splitlines() if (found := _STEP.match(line))
    ]
    victim.stderr.close()
    return done


@pytest.mark.parametrize("number", range(-(-KILLS // IN_TURN)))
def test_a_kill_loses_nothing_and_a_rerun_ends_with_the_same_bytes(
    number: int, reference: Path, table: list[Outcome], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    prepare(root, source=reference.parent / "small.jsonl")
    wanted = results(reference)
    outcomes: list[Outcome] = []
    for after, delay in _points(number)[: KILLS - number * IN_TURN]:
        before = made(root)
        # the runs before this one have done some, and more than they waited for
        told = _killed(root, max(after - sum(item.told_done for item in outcomes), 0), delay)
        # every key names a whole object, and the chain is whole
        verify(Store(str(root)))
        _compare(outcomes[-1:], root, before)
        outcomes.append(Outcome(after, delay, len(told), len(made(root))))
    before = made(root)
    done = run(root)
    assert done.returncode == 0, done.stderr
    _compare(outcomes[-1:], root, before)
    now = results(root)
    for outcome in outcomes:
        outcome.differing = sum(now.get(name) != data for name, data in wanted.items())
    outcomes[-1].again = _made_again(root)
    table.extend(outcomes)
    assert all(outcome.lost == 0 and outcome.differing == 0 for outcome in outcomes)
    assert set(now) == set(wanted)
    assert "resuming a run that was stopped" in done.stderr
    *_, last = filter(None, map(_STEP.match, done.stderr.splitlines()))
    more = int(last.group(1)) - int(last.group(2))
    assert 0 <= more <= outcomes[-1].again, "only what every run before left is told as to do"
    collect(Store(str(root)), older_days=-1)
    verify(Store(str(root)))


def _compare(killed: list[Outcome], root: Path, before: dict[str, int]) -> None:
    """Note what the run after a kill kept of what the kill left."""
    now = made(root)
    for outcome in killed:
        outcome.kept = sum(now.get(name) == sequence for name, sequence in before.items())
        outcome.lost = sum(name not in now for name in before)


def _made_again(root: Path) -> int:
    """Assets that were made more than once: those whose checks were not evaluated when the kill
    came."""
    with dg.DagsterInstance.from_config(str(root / "dagster")) as instance:
        made = Counter(
            entry.dagster_event.asset_key.to_user_string()
            for run in instance.get_runs()
            for entry in instance.all_logs(
                run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
            )
            if entry.dagster_event is not None and entry.dagster_event.asset_key is not None
        )
    return sum(times > 1 for times in made.values())


def test_a_kill_after_the_last_step_leaves_nothing_to_resume(
    reference: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    prepare(root, source=reference.parent / "small.jsonl")
    _killed(root, after=3, delay=0)
    for resumed in (True, False):
        done = run(root)
        assert done.returncode == 0, done.stderr
        assert ("resuming" in done.stderr) == resumed
        with dg.DagsterInstance.from_config(str(root / "dagster")) as instance:
            # as the next command marks a run whose process is gone
            instance.report_run_failed(instance.get_runs(limit=1)[0])
