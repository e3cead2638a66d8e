"""Labelled audit samples in the data root: what is read, what is refused, and the status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import certifier
from certify_assets.operations.deployment import strictest_certificates
from certify_assets.operations.monitoring import load_monitor, monitor_judge, read_audit_sample
from certify_assets.reports.monitor_page import (
    monitor_markdown,
    monitor_metrics,
    write_monitor_page,
)
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs

JUDGE = "lexical"
FOLDER = f"monitoring/c/{JUDGE}"


def judge_of(store: Store) -> JudgedCorpus:
    return JudgedCorpus(Corpus(store, "c"), JUDGE)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitoring")
    store = Store(str(folder / "root"))
    # with the labels of RL the release side certifies as well
    runs = write_runs(folder / "runs.jsonl", tasks=60)
    register_runs(store, "c", runs, rl_labels="choose")
    Corpus(store, "c").prepare_splits()
    Corpus(store, "c").measure_leaks()
    judge_of(store).train()
    judge_of(store).score()
    certifier.certify_judge(judge_of(store))
    return folder / "root"


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    shutil.copytree(template, tmp_path / "root")
    return Store(str(tmp_path / "root"))


def sample(
    store: Store, *, tasks: int, error: float, start: int = 0, seed: int = 5
) -> pd.DataFrame:
    """Tasks that the reject certificate decides, wrong with a probability of `error` a run."""
    threshold = strictest_certificates(certifier.load_certificates(judge_of(store)))[0].threshold
    assert threshold is not None
    rng = np.random.default_rng(seed)
    rows = tasks * 4
    return pd.DataFrame(
        {
            "task_id": [f"new-{start + row // 4:04d}" for row in range(rows)],
            "score": threshold - rng.random(rows),
            "outcome": (rng.random(rows) < error).astype(int),
            "provenance": "audit_sample",
        }
    )


def put(store: Store, frame: pd.DataFrame, name: str = "2026-01.csv") -> None:
    path = Path(store.root) / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    writers = {".csv": frame.to_csv, ".parquet": frame.to_parquet}
    if path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps(record) + "\n" for record in frame.to_dict("records")),
            encoding="utf-8",
        )
    else:
        writers[path.suffix](path, index=False)


@pytest.mark.slow
def test_without_labels_it_says_so(store: Store) -> None:
    document = monitor_judge(judge_of(store))
    assert document.status == "nothing" and FOLDER in document.reason
    assert document.monitors == () and load_monitor(judge_of(store)) == document
    assert "Nothing was monitored" in monitor_markdown(document) and monitor_metrics(document) == {}


def test_few_tasks_are_too_few_many_good_ones_are_quiet_and_bad_ones_alarm(store: Store) -> None:
    put(store, sample(store, tasks=5, error=0.0))
    document = monitor_judge(judge_of(store))
    assert document.status == "too_few" and "too few" in document.reason
    put(store, sample(store, tasks=80, error=0.01, start=5), "2026-02.parquet")
    quiet = monitor_judge(judge_of(store))
    reject = quiet.monitors[0]
    assert [entry.side for entry in quiet.monitors] == ["reject"] and quiet.status == "quiet"
    assert (
        reject.alpha in (0.1, 0.2)
        and reject.result.alarm is False
        and reject.result.covered_tasks == 85
    )
    assert not [finding for finding in quiet.findings if finding["code"] == "stream_rewritten"]
    put(store, sample(store, tasks=60, error=0.6, start=85), "2026-03.jsonl")
    alarm = monitor_judge(judge_of(store))
    result = alarm.monitors[0].result
    assert (
        alarm.status == "alarm"
        and result.first_alarm_at > 85
        and result.first_alarm_task >= "new-0085"
    )
    assert [file.name for file in alarm.files] == [
        "2026-01.csv",
        "2026-02.parquet",
        "2026-03.jsonl",
    ]
    assert len(monitor_markdown(alarm)) < 1000 and max(monitor_metrics(alarm).values()) >= 20
    assert Path(write_monitor_page(judge_of(store))).read_text(encoding="utf-8").count("<svg") >= 3


def test_a_stream_that_was_rewritten_is_told_until_the_certificate_is_new(store: Store) -> None:
    put(store, sample(store, tasks=40, error=0.0), "b.csv")
    monitor_judge(judge_of(store))
    put(store, sample(store, tasks=40, error=0.0, start=100), "a.csv")
    for _ in range(2):
        assert "stream_rewritten" in {
            finding["code"] for finding in monitor_judge(judge_of(store)).findings
        }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"provenance": "review_queue"}, "review queue"),
        ({"provenance": ["audit_sample"] * 39 + ["review_queue"]}, "row 40"),
        ({"outcome": [0] * 39 + [None]}, "no outcome"),
        ({"score": ["x"] * 40}, "not a number"),
    ],
)
def test_rows_that_may_not_feed_it_are_refused(
    store: Store, change: dict[str, object], words: str
) -> None:
    put(store, sample(store, tasks=10, error=0.0).assign(**change))
    with pytest.raises(InputError, match=words) as refused:
        monitor_judge(judge_of(store))
    assert f"{FOLDER}/2026-01.csv" in str(refused.value)
    assert not store.exists(f"judges/{JUDGE}/c/monitor.json")


def test_tasks_of_the_splits_and_tasks_in_two_files_are_refused(store: Store) -> None:
    assignment = Corpus(store, "c").manifest.assignment
    for split in ("sft", "cal", "test"):
        seen = next(task for task, name in assignment.items() if name == split)
        put(store, sample(store, tasks=3, error=0.0).assign(task_id=["new-1"] * 8 + [seen] * 4))
        with pytest.raises(InputError, match=f"{seen}' is in the {split} split"):
            read_audit_sample(judge_of(store))
    put(store, sample(store, tasks=3, error=0.0))
    put(store, sample(store, tasks=3, error=0.0, start=2), "2026-02.csv")
    with pytest.raises(InputError, match=r"'new-0002' is in 2026-01.csv as well"):
        read_audit_sample(judge_of(store))


def test_a_monitor_of_other_labels_is_stale(store: Store) -> None:
    put(store, sample(store, tasks=3, error=0.0))
    monitor_judge(judge_of(store))
    put(store, sample(store, tasks=3, error=0.0, start=3), "2026-02.csv")
    with pytest.raises(StaleCertificateError, match="materialize judges/lexical/monitor again"):
        load_monitor(judge_of(store))


def test_a_table_without_provenance_is_taken_on_trust_and_says_so(store: Store) -> None:
    put(store, sample(store, tasks=40, error=0.0).drop(columns="provenance"))
    document = monitor_judge(judge_of(store))
    assert "provenance_not_stated" in {finding["code"] for finding in document.findings}
