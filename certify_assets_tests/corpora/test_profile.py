from dataclasses import replace

import pytest

from certify_assets.certificates.clustering import ClusterSummary
from certify_assets.corpora.profile import certification_gate, cluster_summary, profile_corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import make_manifest, select
from certify_assets_tests.corpora.builders import corpus, trajectory


def summary(tasks: int, n_eff: float = 1000.0) -> ClusterSummary:
    return ClusterSummary(tasks * 8, tasks, 0.5, 8.0, 0.3, 3.1, n_eff)


def test_a_corpus_is_described() -> None:
    frame = corpus(tasks=60, attempts=6)
    manifest = make_manifest(frame["task_id"], "made")
    profile = profile_corpus(frame, manifest, dropped={"duplicate": 2})
    assert (profile.corpus, profile.trajectories, profile.tasks) == ("made", 360, 60)
    assert (profile.unlabelled, profile.attempts) == (0, (6, 6))
    assert profile.agents == {"agent0": 120, "agent1": 120, "agent2": 120}
    assert profile.success_rate == pytest.approx(frame["outcome"].astype(float).mean())
    assert profile.deff == pytest.approx(1 + 5 * profile.icc)
    assert profile.n_eff == pytest.approx(360 / profile.deff)
    assert profile.splits["cal"] == cluster_summary(select(frame, manifest, "cal"))
    gates = [(gate.split, gate.alpha) for gate in profile.gates]
    assert gates == [(split, alpha) for split in ("rl and cal", "test") for alpha in (0.1, 0.2)]
    assert profile.to_dict()["dropped"] == {"duplicate": 2}


def test_copies_and_shared_instructions_are_reported() -> None:
    rows = [trajectory(n, instruction="one" if n < 2 else f"other {n}") for n in range(4)]
    rows.append(replace(rows[0], trajectory_id="copy"))
    profile = profile_corpus(to_frame(rows))
    assert profile.duplicates == 1
    assert profile.same_instruction == (("task0", "task1"),)


def test_unlabelled_runs_count_for_nothing_but_themselves() -> None:
    rows = [trajectory(n, outcome=None if n >= 10 else n % 2) for n in range(15)]
    profile = profile_corpus(to_frame(rows))
    assert (profile.trajectories, profile.unlabelled) == (10, 5)
    assert (profile.success_rate, profile.attempts) == (0.5, (3, 3))
    nothing = profile_corpus(to_frame(rows[10:]))
    assert (nothing.trajectories, nothing.tasks, nothing.gates[0].possible) == (0, 0, False)


@pytest.mark.parametrize(("alpha", "needed"), [(0.1, 39), (0.2, 19)])
def test_gates_are_the_arithmetic_of_the_default(alpha: float, needed: int) -> None:
    gate = certification_gate(summary(needed), alpha, split="cal")
    assert (gate.floor_tasks, gate.possible, gate.enough_samples) == (needed, True, True)
    assert (1 - alpha) ** needed <= 0.05 / 3 < (1 - alpha) ** (needed - 1)
    below = certification_gate(summary(needed - 1), alpha, split="cal")
    assert not below.possible and "Bring 1 more task " in below.reason
    few = certification_gate(summary(needed, n_eff=needed - 0.5), alpha, split="cal")
    assert few.possible and not few.enough_samples and "good judge" in few.reason
