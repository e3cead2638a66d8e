import json
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from certify_assets.certificates import (
    PROCEDURES,
    Certificate,
    Settings,
    certify,
    evaluate,
    observe,
    verify,
)
from certify_assets.certificates.taskboot import draws_needed, taskboot
from certify_assets.errors import InputError
from certify_assets.research.populations import Sample
from certify_assets_tests.builders import CERTIFICATE_KEYS
from certify_assets_tests.populations import fooled, paper_process

OURS = {
    "provenance",
    "selection",
    "covered_trajectories",
    "errors",
    "statement",
    "digest",
}


def sample(seed: int = 0, tasks: int = 50, rho: float = 0.5) -> Sample:
    return paper_process(tasks, rho, seed)


def codes(certificate: Certificate) -> list[str]:
    return [finding["code"] for finding in certificate.findings]


def test_document_has_the_keys_of_the_contract() -> None:
    document = certify(*sample()).to_dict()
    assert set(document) == CERTIFICATE_KEYS | OURS
    assert json.loads(json.dumps(document)) == document


def test_a_certificate_counts_what_is_in_the_table() -> None:
    scores, outcomes, tasks = data = sample()
    found = certify(*data)
    assert found.certified and found.threshold in scores
    inside = scores <= found.threshold
    assert found.covered_trajectories == inside.sum()
    assert found.errors == (inside & (outcomes == 1)).sum()
    assert found.covered_tasks == np.unique(tasks[inside]).size
    assert found.coverage == pytest.approx(inside.mean(), rel=1e-9)
    assert found.selective_error == pytest.approx(outcomes[inside].mean(), rel=1e-9)
    assert found.level == pytest.approx(0.05 / 3) and found.tail <= found.level
    assert found.trajectories == scores.size and found.tasks == 50
    assert found.sha256 == Certificate.from_json(found.to_json()).sha256


@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("procedure", ["guarded_taskboot", "taskboot", "naive"])
def test_release_mirrors_reject(side: str, procedure: str) -> None:
    scores, outcomes, tasks = sample(3)
    one = certify(scores, outcomes, tasks, side=side, procedure=procedure)
    other = certify(
        -scores,
        1 - outcomes,
        tasks,
        side={"reject": "release", "release": "reject"}[side],
        procedure=procedure,
    )
    assert one.certified == other.certified
    assert one.coverage == other.coverage
    assert one.tail == other.tail
    assert one.errors == other.errors
    assert one.threshold is None or one.threshold == -other.threshold


def stripped(certificate: Certificate) -> dict[str, object]:
    """What stays under a map of the scores: everything but the threshold itself and the hashes."""
    document = certificate.to_dict()
    return {
        key: value
        for key, value in document.items()
        if key not in ("threshold", "inputs", "statement", "digest")
    }


def tasks_for(procedure: str, tasks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the tasks, each of one run where the procedure takes no more."""
    return np.arange(tasks.size) if procedure == "average" else tasks


MAPS = {
    "affine": lambda x: 3.0 * x - 7.0,
    "cubic": lambda x: x**3 + x,
    "exp": lambda x: np.exp(x / 4.0),
    "platt": lambda x: 1.0 / (1.0 + np.exp(-0.5 * x - 2.0)),
    "ranks": lambda x: np.searchsorted(np.unique(x), x).astype(float),
}


@pytest.mark.parametrize("name", sorted(MAPS))
@pytest.mark.parametrize("procedure", sorted(PROCEDURES))
def test_rank_invariance(name: str, procedure: str) -> None:
    """Proposition 1 of the paper: a certificate depends on the order of the scores alone."""
    scores, outcomes, tasks = sample(1)
    scores, tasks = np.round(scores, 1), tasks_for(procedure, tasks)
    for side in ("reject", "release"):
        plain = certify(scores, outcomes, tasks, side=side, procedure=procedure)
        mapped = certify(MAPS[name](scores), outcomes, tasks, side=side, procedure=procedure)
        assert stripped(mapped) == stripped(plain)
        if plain.threshold is not None:
            assert np.array_equal(MAPS[name](scores) <= mapped.threshold, scores <= plain.threshold)


@pytest.mark.parametrize("procedure", sorted(PROCEDURES))
@given(st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_row_order_changes_no_byte(procedure: str, seed: int) -> None:
    scores, outcomes, tasks = sample(seed, tasks=45)
    scores, tasks = np.round(scores, 1), tasks_for(procedure, tasks)
    order = np.random.default_rng(seed).permutation(scores.size)
    one = certify(scores, outcomes, tasks, procedure=procedure)
    assert (
        certify(scores[order], outcomes[order], tasks[order], procedure=procedure).to_json()
        == one.to_json()
    )


@pytest.mark.parametrize(
    # those that draw a run of a task by its place among the names
    "procedure",
    sorted(set(PROCEDURES) - {"one_per_task", "one_run", "average"}),
)
@given(st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_task_names_change_nothing_but_the_hash(procedure: str, seed: int) -> None:
    scores, outcomes, tasks = sample(seed, tasks=30)
    names = np.random.default_rng(seed).permutation(30)
    one, other = (
        certify(scores, outcomes, tasks, procedure=procedure),
        certify(scores, outcomes, names[tasks], procedure=procedure),
    )
    assert other.replace(inputs=one.inputs) == one


def test_a_certificate_that_any_judge_would_get_says_so() -> None:
    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(100), 8)
    rare = (rng.random(tasks.size) < 0.05).astype(int)
    for outcomes, side in ((rare, "reject"), (1 - rare, "release")):
        found = certify(rng.normal(size=tasks.size), outcomes, tasks, side=side)
        assert found.certified and "any_judge" in codes(found)
        other = "release" if side == "reject" else "reject"
        assert "any_judge" not in codes(certify(rng.normal(size=800), outcomes, tasks, side=other))
    # a judge that ranks decides more than one that knows nothing where the budget is not had free
    assert "any_judge" not in codes(certify(*sample(0)))


def test_scores_that_rank_the_wrong_way_round_are_told_from_chance() -> None:
    data = sample(0)
    for side in ("reject", "release"):
        found = certify(-data.scores, data.outcomes, data.tasks, side=side)
        assert "scores_look_reversed" in codes(found) and not found.certified
        assert "scores_look_reversed" not in codes(certify(*data, side=side))
    # scores and outcomes that have only their task in common: one-sided 1 % at most, standard
    # error .006 of 300 tables
    for number in (10, 40):
        wrong = 0
        for seed in range(300):
            rng = np.random.default_rng(seed)
            tasks, easy = np.repeat(np.arange(number), 6), rng.beta(0.5, 0.5, number)
            outcomes = (rng.random(tasks.size) < easy[tasks]).astype(int)
            scores = rng.normal(size=number)[tasks] + rng.normal(size=tasks.size)
            found = certify(scores, outcomes, tasks, procedure="deff")
            wrong += "scores_look_reversed" in codes(found)
        assert wrong / 300 <= 0.01 + 2 * 0.006


def test_rows_that_are_there_twice_are_counted() -> None:
    data = sample(0)
    twice = [np.concatenate([column, column[:11]]) for column in data]
    found = certify(*twice)
    (finding,) = [item for item in found.findings if item["code"] == "duplicate_rows"]
    assert finding["message"].startswith(f"11 of {len(twice[0])} rows repeat")
    assert verify(found, *twice) is None
    assert codes(certify(*twice, named=True)) == []
    assert "findings" in str(verify(found, *twice, named=True))
    # stripped of the finding, and with the digest of what is left
    said = verify(found.replace(findings=()).to_json(), *twice)
    assert "duplicate_rows" in str(said)
    # another agent is another run
    agents = np.repeat(["one", "two"], [len(data.scores), 11])
    assert codes(certify(*twice, agents=agents)) == []


def test_the_guard_blocks_what_the_bootstrap_lets_through() -> None:
    tables = {seed: observe(*fooled(40, 0.12, seed)) for seed in range(60)}
    settings = Settings(procedure="guarded_taskboot")
    seeds = [seed for seed, table in tables.items() if evaluate(table, settings).passed_test.any()]
    assert len(seeds) > 5
    for seed in seeds[:6]:
        table = fooled(40, 0.12, seed)
        found = certify(*table, procedure="guarded_taskboot")
        assert not found.certified
        assert {"guard_floor_blocked", "nothing_passes"} <= set(codes(found))
        assert "The guard is the limit" in found.findings[-1]["message"]


def test_nothing_certified() -> None:
    rng = np.random.default_rng(0)
    found = certify(rng.normal(size=400), rng.integers(0, 2, 400), rng.integers(0, 50, 400))
    assert not found.certified and found.threshold is None and found.coverage == 0.0
    assert found.tail is None and found.selective_error is None and found.covered_tasks == 0
    assert found.statement == "Reject: nothing certified."
    assert Certificate.from_json(found.to_json()) == found


@pytest.mark.parametrize("procedure", sorted(PROCEDURES))
@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize(
    "columns",
    [
        ([0.5], [1], ["a"]),
        ([np.nan, np.nan], [1, 0], ["a", "b"]),
        ([0.1, 0.2, 0.3], [1, 1, 1], ["a", "a", "a"]),
        ([0.1, 0.2, 0.3], [0, 0, 0], ["a", "b", "c"]),
        ([0.3] * 50, [0, 1] * 25, list(range(50))),
        ([0.1, np.nan, 0.3], [0, 1, 1], ["a", "b", "c"]),
    ],
)
def test_small_and_odd_tables(
    columns: tuple[list[float], list[int], list[str]], procedure: str, side: str
) -> None:
    if PROCEDURES[procedure].by_rows and len(columns[0]) < 29:
        with pytest.raises(InputError, match=r"needs at least|needs one drawn run"):
            certify(*columns, procedure=procedure, side=side)
        return
    for engine in ("auto",) if PROCEDURES[procedure].calibrated else ("auto", "montecarlo"):
        found = certify(*columns, procedure=procedure, side=side, engine=engine, draws=100)
        assert Certificate.from_json(found.to_json()) == found
        assert found.certified or {"nothing_passes", "pilot_missing"} & set(codes(found))


def test_candidates_divide_the_level_and_the_guard() -> None:
    data = sample(0, tasks=60)
    one, many = certify(*data), certify(*data, candidates=50)
    assert many.level == pytest.approx(one.level / 50) and many.coverage <= one.coverage
    assert many.selection and "50 candidates" in many.selection and one.selection is None
    assert certify(*data, candidates=2, selection="larger coverage").selection == "larger coverage"


@pytest.mark.parametrize("asked", [{}, {"alpha": 0.25, "delta": 0.1, "grid": 10, "seed": 7}])
@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("seed", range(3))
def test_algorithm_1_is_what_is_certified(
    seed: int, side: Literal["reject", "release"], asked: dict[str, Any]
) -> None:
    table = sample(seed)
    found = certify(*table, procedure="taskboot", engine="montecarlo", side=side, **asked)
    assert taskboot(observe(*table), side=side, **asked) == found.threshold
    assert found.certified or side == "release"


def test_few_draws_never_certify() -> None:
    needed = draws_needed(0.05 / 40)
    assert needed == 799
    rng = np.random.default_rng(0)
    for seed in range(20):
        noise = (rng.normal(size=300), rng.integers(0, 2, 300), np.arange(300) % 40)
        found = certify(*noise, engine="montecarlo", draws=1, seed=seed, procedure="taskboot")
        assert not found.certified
        assert f"at least {needed} are needed" in str(found.findings)
    drawn = partial(certify, *sample(4), procedure="guarded_taskboot", engine="montecarlo")
    few = drawn(draws=needed - 1)
    assert not few.certified and "The number of draws is the limit" in few.findings[-1]["message"]
    for found in (drawn(draws=needed), drawn()):
        assert found.certified
        assert found.tail >= 0.999 / (found.settings["draws"] + 1)


def test_one_task_that_holds_nearly_everything_is_refused_and_named() -> None:
    # a task of nearly all rows, and a hundred of five with five errors in a hundred
    rng = np.random.default_rng(3)
    owner = np.concatenate([np.zeros(5_000, int), 1 + np.repeat(np.arange(101), 5)])
    outcomes = np.where(owner == 0, 0, rng.random(owner.size) < 0.05).astype(int)
    table = rng.normal(size=owner.size), outcomes, owner
    found = certify(*table, procedure="guarded_taskboot")
    assert not found.certified
    assert {"guard_floor_blocked", "nothing_passes"} <= set(codes(found))
    plain = certify(*table, procedure="taskboot")
    assert plain.certified and plain.effective_tasks < 1.3
    words = {item["code"]: item["message"] for item in plain.findings}
    assert "29 are needed" in words["few_effective_tasks"]
    assert "times the median of" in words["unequal_tasks"]
