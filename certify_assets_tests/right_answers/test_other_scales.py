"""The next table's scores are on the scale of the certificate's, or somebody hears of it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets import InputError, certify
from certify_assets_tests.cli.calling import Answer, Call

SCALES = {
    "log-odds": lambda score: score,
    "probability": lambda score: 1 / (1 + np.exp(-score)),
    "percent": lambda score: 100 / (1 + np.exp(-score)),
    "rating": lambda score: np.clip(np.round(3 + score / 2), 1, 5),
}
#: what a user may hand in instead
MISTAKES = {
    "negated": lambda score, of: -of(score),
    "one minus": lambda score, of: 1 - of(score),
    "reversed": lambda score, of: of(-score),
    "permuted": lambda score, of: np.random.default_rng(0).permutation(of(score)),
}


def runs(
    seed: int, *, tasks: int = 80, attempts: int = 4, rate: float = 0.3, bias: float = 0.0
) -> pd.DataFrame:
    """Return runs of an agent with log-odds that say mostly how they went."""
    rng = np.random.default_rng(seed)
    effect = np.repeat(rng.normal(0, 1.5, tasks), attempts)
    base = np.log(rate / (1 - rate))
    right = (rng.random(effect.size) < 1 / (1 + np.exp(-base - effect))).astype(int)
    score = 2 * (2 * right - 1) + base / 2 + effect / 2 + rng.normal(bias, 1, effect.size)
    names = [f"{seed}-{task}" for task in np.repeat(np.arange(tasks), attempts)]
    return pd.DataFrame({"task_id": names, "score": score, "outcome": right})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scales")


@pytest.fixture(params=SCALES)
def certificate(request: pytest.FixtureRequest, call: Call, folder: Path) -> tuple[str, Path]:
    path = folder / f"{request.param}.json"
    if not path.exists():
        table = runs(1)
        table.assign(score=SCALES[request.param](table["score"])).to_csv(folder / "cal.csv")
        assert call(f"certificate {folder}/cal.csv --alpha .2 --out {path}").code == 0
    return request.param, path


def ask(call: Call, command: str, path: Path, table: pd.DataFrame, more: str = "") -> Answer:
    table.to_csv(path.with_name("next.csv"), index=False)
    return call(f"{command} {path} {path.parent}/next.csv --json {more}")


@pytest.mark.parametrize("other", SCALES)
@pytest.mark.parametrize("permuted", [False, True])
def test_another_scale_is_refused_or_warned_of(
    call: Call, certificate: tuple[str, Path], other: str, permuted: bool
) -> None:
    scale, path = certificate
    table = runs(2, tasks=60)
    scores = SCALES[other](table["score"]).to_numpy()
    scores = np.random.default_rng(0).permutation(scores) if permuted else scores
    found = ask(call, "decide", path, table.assign(score=scores))
    # the scores of a judge that knows nothing are on its scale, too
    assert (found.code == 0 and "warning" not in found.err) == (other == scale), found.err
    # grades may be the log-odds of an agent that always succeeds
    assert found.code == 2 or other == scale or (scale, other) == ("log-odds", "rating")
    if found.code:
        assert str(path) in found.err and "next.csv" in found.err
        assert "--set score_scale" in found.err


@pytest.mark.parametrize("mistake", ["negated", "one minus", "reversed"])
def test_reversed_scores_are_refused_or_warned_of(
    call: Call, certificate: tuple[str, Path], mistake: str
) -> None:
    scale, path = certificate
    table = runs(2, tasks=60)
    wrong = table.assign(score=MISTAKES[mistake](table["score"], SCALES[scale]))
    for command in ("decide", "audit", "monitor"):
        found = ask(call, command, path, wrong)
        # an audit and a monitor have outcomes, which show it as well
        assert found.code != 0 or "warning" in found.err, found
    if found.code == 2:
        right = ask(call, "decide", path, wrong, f"--set score_scale={said(found)}")
        assert right.code == 0, right.err


def test_percentages_of_probabilities_are_read(call: Call, folder: Path) -> None:
    table = runs(5)
    table["score"] = SCALES["probability"](table["score"])
    table.to_csv(folder / "probabilities.csv")
    path = folder / "probabilities.json"
    assert call(f"certificate {folder}/probabilities.csv --alpha .2 --out {path}").code == 0
    percent = table.assign(score=100 * table["score"])
    refused = ask(call, "decide", path, percent)
    assert refused.code == 2 and said(refused) == "probability"
    found = ask(call, "decide", path, percent, "--set score_scale=probability")
    assert found.json == ask(call, "decide", path, table).json


def said(refused: Answer) -> str:
    return refused.err.rpartition("--set score_scale=")[2].split()[0]


def test_an_honest_later_table_is_not_refused(call: Call, certificate: tuple[str, Path]) -> None:
    # another agent, 20 points more or less successful, scored a little otherwise, on 30 tasks
    scale, path = certificate
    refused = warned = 0
    for seed in range(60):
        rate, bias = (0.1, 0.5)[seed % 2], np.random.default_rng(seed).normal(0, 0.3)
        table = runs(100 + seed, tasks=30, rate=rate, bias=bias)
        found = ask(call, "decide", path, table.assign(score=SCALES[scale](table["score"])))
        refused += found.code == 2
        warned += "warning" in found.err
    # of 240 tables of four scales; none was refused
    assert refused == 0 and warned <= 15


def test_python_refuses_the_scores_of_a_frame() -> None:
    table = runs(1)
    found = certify(table, alpha=0.2)
    later = runs(2)
    assert set(found.decide(later)["decision"]) >= {"reject", "human"}
    with pytest.raises(InputError, match="the certificate was issued on scores from"):
        found.decide(later.assign(score=SCALES["probability"](later["score"])))
    with pytest.warns(UserWarning, match="fit that range where they are negated"):
        found.decide(later.assign(score=-later["score"]))
    # of an array nobody says what it is
    assert len(found.decide(-later["score"].to_numpy())) == len(later)


def test_an_agent_that_always_fails_is_not_refused(
    call: Call, certificate: tuple[str, Path]
) -> None:
    scale, path = certificate
    later = runs(4, tasks=120)
    failed = later[later["outcome"] == 0]
    found = ask(call, "decide", path, failed.assign(score=SCALES[scale](failed["score"])))
    assert found.code == 0, found.err


@pytest.mark.parametrize(("score", "share"), [(9.0, "0.0"), (-9.0, "100.0")])
def test_all_or_nothing_decided_is_a_warning(
    call: Call, certificate: tuple[str, Path], score: float, share: str
) -> None:
    scale, path = certificate
    table = runs(3, tasks=40).assign(score=SCALES[scale](np.array(score)))
    for tasks in (1, 40):
        found = ask(call, "decide", path, table.head(4 * tasks))
        said = f"{share} % of the scored runs are decided on the reject side"
        assert found.code == 0 and (said in found.err) == (tasks > 1), found.err
