from collections import Counter

import numpy as np
import pandas as pd
import pytest

from certify_assets.corpora.embedded import EMBEDDED, embedded_path, load_embedded
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame

BANDS = {"miniwob_weak": (0.15, 0.35), "miniwob_mixed": (0.3, 0.6)}
HARNESS = ("reward", "time left", "last 10", "episodes done", "sync-task-cover")


@pytest.fixture(scope="module", params=EMBEDDED)
def frame(request: pytest.FixtureRequest) -> pd.DataFrame:
    return load_embedded(request.param)


def anova_icc(outcome: np.ndarray, task: np.ndarray) -> float:
    """One-way ANOVA intraclass correlation, written out for this test alone."""
    groups = [outcome[task == name] for name in np.unique(task)]
    sizes = np.array([len(g) for g in groups])
    n0 = (len(outcome) - (sizes**2).sum() / len(outcome)) / (len(groups) - 1)
    between = sum(len(g) * (g.mean() - outcome.mean()) ** 2 for g in groups) / (len(groups) - 1)
    within = sum(((g - g.mean()) ** 2).sum() for g in groups) / (len(outcome) - len(groups))
    return float((between - within) / (between + (n0 - 1) * within))


def test_size_of_the_corpora(frame: pd.DataFrame) -> None:
    from_frame(frame)
    assert 1800 <= len(frame) <= 2200
    assert frame["task_id"].nunique() >= 100
    assert frame["agent"].nunique() >= 3
    assert frame.groupby("task_id").size().min() >= 8
    assert frame["outcome"].notna().all()


def test_success_rate_and_clustering(frame: pd.DataFrame) -> None:
    low, high = BANDS[frame["corpus"].iloc[0]]
    outcome = frame["outcome"].to_numpy(dtype=float)
    assert low <= outcome.mean() <= high
    assert 0.4 <= anova_icc(outcome, frame["task_id"].to_numpy()) <= 0.7
    assert frame.groupby("agent")["outcome"].mean().astype(float).between(0.1, 0.75).all()


def test_few_runs_are_alike(frame: pd.DataFrame) -> None:
    keys = [
        (i, tuple((s["action"], s["observation"]) for s in steps))
        for i, steps in zip(frame["instruction"], frame["steps"], strict=True)
    ]
    alike = sum(count for count in Counter(keys).values() if count > 1)
    assert alike / len(frame) < 0.08


def test_ids_name_corpus_task_agent_and_attempt(frame: pd.DataFrame) -> None:
    expected = (
        frame["corpus"]
        + "/"
        + frame["task_id"]
        + "/"
        + frame["agent"]
        + "/"
        + frame["attempt"].astype(str)
    )
    assert (frame["trajectory_id"] == expected).all()
    assert frame["source_sha256"].nunique() == 1


def test_every_run_ends_with_a_claim_and_one_agent_always_claims_success(
    frame: pd.DataFrame,
) -> None:
    claims = frame["steps"].map(lambda steps: steps[-1]["action"])
    assert claims.str.startswith('claim("').all()
    always = claims.str.contains("success, task complete").groupby(frame["agent"]).mean()
    assert always.max() == 1.0
    assert (always == 0.0).sum() == 3
    # a claim is no verdict: some are wrong on either side
    honest = frame[~frame["agent"].isin(always[always == 1.0].index)]
    said_failed = claims[honest.index].str.contains("not done")
    assert 0 < honest["outcome"][said_failed].mean() < 0.2
    assert honest["outcome"][~said_failed].mean() < 0.95


def test_no_text_of_the_harness(frame: pd.DataFrame) -> None:
    text = " ".join(
        s["action"] + " " + s["observation"] for steps in frame["steps"] for s in steps
    ).lower()
    assert not [word for word in HARNESS if word in text]


def test_files_are_small_and_carry_their_notice() -> None:
    assert sum(embedded_path(name).stat().st_size for name in EMBEDDED) < 1_000_000
    notice = embedded_path(EMBEDDED[0]).with_name("NOTICE").read_text("utf-8")
    assert "The MIT License" in notice
    assert "Farama Foundation" in notice


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="miniwob_mixed, miniwob_weak"):
        load_embedded("webarena")
