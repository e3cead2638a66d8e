"""Every format is read without its labels where none are needed."""

from pathlib import Path

import pytest

from certify_assets.corpora.formats import FORMATS, gather_corpus
from certify_assets_tests.corpora.formats import load_formats

NEW = {"keep_unlabelled": True}
FORMS = {form.name: form for form in load_formats()}
#: runs of the hand-made sources, labelled or not
RUNS = {
    **{"agent_reward_bench": 4, "browsergym": 4, "deepeval": 5, "harbor": 6, "inspect": 12},
    **{"langfuse": 7, "langsmith": 6, "lm_eval": 4, "mlflow": 7, "openhands": 4},
    **{"openinference": 6, "otlp": 7, "promptfoo": 6, "swe_agent": 8, "swe_rebench": 8},
    **{"table": 5, "tau2": 4, "taubench_v1": 4, "terminal_bench": 7},
}
#: files of labels alone
LABELS = {
    "agent_reward_bench": ("annotations.csv", "judgments/**/*.json"),
    "langsmith": ("feedback.jsonl",),
    "openinference": ("annotations.parquet",),
    "swe_agent": ("*report.json", "results.json"),
}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_new_runs_may_have_some_labels(name: str, tmp_path: Path) -> None:
    """What a report leaves out is no reason to drop a run."""
    FORMS[name].write(tmp_path / "runs", None)
    with gather_corpus(tmp_path / "runs", format=name, name="c", options=NEW) as (runs, facts):
        assert len(runs.rows) == RUNS[name], facts.examples
    assert not {"no_label", "not_evaluated", "ambiguous_label"} & set(facts.dropped)


@pytest.mark.parametrize("name", sorted(LABELS))
def test_new_runs_need_no_label(name: str, tmp_path: Path) -> None:
    FORMS[name].write(tmp_path / "runs", None)
    for path in [path for pattern in LABELS[name] for path in tmp_path.rglob(pattern)]:
        path.unlink()
    with gather_corpus(tmp_path / "runs", name="c", options=NEW) as (runs, facts):
        assert len(runs.rows) == RUNS[name] and facts.format == name
        assert {run.draft.outcome for run in runs.rows} == {None}
