"""Every format is read without its labels where none are needed."""

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import FORMATS, gather_new_runs
from certify_assets.corpora.schema import to_frame
from certify_assets_tests.corpora.eval_files import unpacked, zip_bytes
from certify_assets_tests.corpora.formats import load_formats

FORMS = {form.name: form for form in load_formats()}
ABOUT_LABELS = {"no_label", "label_without_trace", "not_evaluated", "run_rejected"}


@dataclass(frozen=True)
class Labels:
    """Where the hand-made source of a format holds outcomes, and what is left without them."""

    runs: int
    keys: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


LABELS = {
    "agent_reward_bench": Labels(4, ("summary_info",), ("annotations.csv", "judgments/**/*.json")),
    "browsergym": Labels(4, ("cum_reward", "cum_raw_reward", "reward", "raw_reward")),
    "deepeval": Labels(5, ("success", "metricsData", "metrics_data")),
    "harbor": Labels(6, ("verifier_result",), ("verifier/*",)),
    "inspect": Labels(12, ("scores", "results")),
    "langfuse": Labels(7, ("scores",), ("scores.jsonl",)),
    "langsmith": Labels(6, files=("feedback.jsonl",)),
    "lm_eval": Labels(4, ("metrics", "acc", "exact_match")),
    "mlflow": Labels(7, ("assessments",)),
    "openhands": Labels(4, ("report", "test_result")),
    "openinference": Labels(6, files=("annotations.parquet",)),
    # events hold messages as well; the calls of tools are spans of their own
    "otlp": Labels(7, ("events",)),
    "promptfoo": Labels(6, ("success", "componentResults")),
    "swe_agent": Labels(8, files=("*report.json", "results.json")),
    "swe_rebench": Labels(8, ("resolved", "target")),
    "table": Labels(5, ("outcome",)),
    "tau2": Labels(4, ("reward_info", "reward")),
    "taubench_v1": Labels(4, ("reward", "reward_info")),
    "terminal_bench": Labels(7, ("is_resolved", "parser_results", "accuracy")),
}


def removed(value: Any, keys: Iterable[str]) -> Any:
    if isinstance(value, list):
        return [removed(item, keys) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: removed(item, keys) for key, item in value.items() if key not in keys}


def write_unlabelled(root: Path, name: str) -> Path:
    """Write the source of a format and take out everything that holds an outcome."""
    FORMS[name].write(root, None)
    for pattern in LABELS[name].files:
        for path in [*root.rglob(pattern)]:
            path.unlink()
    for path in (path for path in root.rglob("*") if path.is_file()):
        path.write_bytes(_changed(path, lambda value: removed(value, LABELS[name].keys)))
    return root


def _changed(path: Path, change: Callable[[Any], Any]) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(change(pq.read_table(path).to_pylist())), path)
        return path.read_bytes()
    if path.suffix == ".eval":
        members = unpacked(data)
        return zip_bytes({name: _json(member, change) for name, member in members.items()})
    if path.name.endswith(".json.gz"):
        return gzip.compress(_json(gzip.decompress(data), change))
    if path.suffix == ".jsonl":
        return b"\n".join(_json(line, change) for line in data.splitlines())
    return _json(data, change)


def _json(data: bytes, change: Callable[[Any], Any]) -> bytes:
    try:
        return json.dumps(change(json.loads(data))).encode()
    except ValueError:
        return data


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_new_runs_need_no_label(name: str, tmp_path: Path) -> None:
    root = write_unlabelled(tmp_path / "runs", name)
    with gather_new_runs([root], name="c") as (runs, facts):
        frame = to_frame(runs.trajectories())
    left = set(facts.dropped) - {"file_other_format"}
    expected = set(FORMS[name].counts.dropped) - ABOUT_LABELS
    if name == "agent_reward_bench":
        # an annotation without its run
        expected.remove("no_trajectory")
    assert facts.format == name and left == expected, facts.examples
    assert len(frame) == LABELS[name].runs and frame["outcome"].isna().all()
    assert all(frame["steps"].map(len) > 0) and all(frame["task_id"])


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_new_runs_may_have_some_labels(name: str, tmp_path: Path) -> None:
    """What a report leaves out is no reason to drop a run."""
    FORMS[name].write(tmp_path / "runs", None)
    with gather_new_runs([tmp_path / "runs"], format=name, name="c") as (runs, facts):
        kept = len(runs.rows)
    assert kept == LABELS[name].runs, facts.examples
    assert not {"no_label", "not_evaluated", "ambiguous_label"} & set(facts.dropped)
