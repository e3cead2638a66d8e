import pandas as pd
import pytest

from certify_assets.corpora.embedded import EMBEDDED, embedded_path, load_embedded
from certify_assets_tests.corpora.builders import from_frame

HARNESS = ("reward", "time left", "last 10", "episodes done", "sync-task-cover")


@pytest.fixture(scope="module", params=EMBEDDED)
def frame(request: pytest.FixtureRequest) -> pd.DataFrame:
    return load_embedded(request.param)


def test_ids_name_corpus_task_agent_and_attempt(frame: pd.DataFrame) -> None:
    from_frame(frame)
    columns = ["corpus", "task_id", "agent", "attempt"]
    expected = frame[columns].astype(str).agg("/".join, axis=1)
    assert (frame["trajectory_id"] == expected).all() and frame["outcome"].notna().all()
    assert frame["source_sha256"].nunique() == 1


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
