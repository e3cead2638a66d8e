"""The runs behind the compact model, and the command that builds it."""

import json
import math
from pathlib import Path

import pytest

from certify_assets.corpora.schema import read_trajectories
from certify_assets.judges.lm.compact.settings import RUNS_FILE, train_tokenizer
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.research.build_compact import PRETRAINING_SEEDS, main, write_runs


def generation(folder: Path, seed: int) -> Path:
    path = folder / f"s{seed}" / "episodes.jsonl"
    path.parent.mkdir()
    episodes = [
        {
            "corpus": "miniwob_weak", "task_id": "click-test",
            "trajectory_id": f"miniwob_weak/click-test/scripted-hasty/{attempt}",
            "agent": "scripted-hasty", "attempt": attempt, "instruction": f"Click {seed}.",
            "steps": [["open the page", "a button"], ['claim("ok, done")', ""]],
            "outcome": attempt, "seed": seed,
        }
        for attempt in (0, 1)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(episode) + "\n" for episode in episodes), "utf-8")
    return path


def test_runs_of_several_seeds_are_one_table_with_unique_ids(tmp_path: Path) -> None:
    generations = [generation(tmp_path, seed) for seed in (7, 8)]
    write_runs(tmp_path / "runs.parquet", generations)
    frame = read_trajectories(tmp_path / "runs.parquet")
    assert len(frame) == frame["trajectory_id"].nunique() == 4
    assert set(frame["corpus"]) == {"miniwob_pretraining"}
    assert set(frame["instruction"]) == {"Click 7.", "Click 8."}
    write_runs(tmp_path / "again.parquet", generations)
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "runs.parquet").read_bytes()


def test_the_shipped_runs_are_two_attempts_of_eight_agents_a_task_and_seed() -> None:
    frame = read_trajectories(RUNS_FILE)
    seeds = frame["trajectory_id"].str.split("/").str[0].astype(int)
    assert set(seeds) == set(PRETRAINING_SEEDS)
    assert set(frame.groupby([seeds, "task_id", "agent"]).size()) == {2}
    assert len(frame) == len(PRETRAINING_SEEDS) * 31 * 8 * 2


def test_equal_texts_give_an_equal_tokenizer_that_reads_every_byte_back() -> None:
    texts = ["click at 68,140 (number 1)\n  nothing visible changed\n"] * 5
    one, two = (train_tokenizer(texts, AuditorPrompt(), size=600) for _ in range(2))
    assert one.backend_tokenizer.to_str() == two.backend_tokenizer.to_str()
    odd = "čaj ☕\n\n  \t«12345» don't\x00"
    assert one.decode(one.encode(odd)) == odd


def test_a_missing_file_of_runs_is_the_users_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "model"), "--runs", str(tmp_path / "absent.parquet")]) == 2
    assert "absent.parquet" in capsys.readouterr().err


def test_the_shipped_curve_falls() -> None:
    record = json.loads((RUNS_FILE.parent / "weights" / "provenance.json").read_text("utf-8"))
    curve = [point["loss"] for point in record["loss_curve"]]
    # the first loss is about that of guessing among all tokens
    assert curve[0] == pytest.approx(math.log(record["settings"]["vocabulary"]), abs=0.7)
    assert sum(curve[-5:]) / 5 < 2
