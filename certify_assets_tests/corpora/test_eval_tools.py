"""Results that promptfoo, DeepEval and lm-evaluation-harness write here, read as they are."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.judged import read_judged

#: folders of the tools, where they are not on the path: node_modules/.bin, or bin of an environment
_BIN = os.environ.get("CERTIFY_EVAL_TOOLS", "")
pytestmark = pytest.mark.slow


def tool(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([_BIN, os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"{name} is not installed (its folder can be given as CERTIFY_EVAL_TOOLS)")
    return found


def run(folder: Path, *words: str, **names: str) -> None:
    home = {"HOME": str(folder), "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo")}
    quiet = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}
    quiet |= {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **home, **quiet, **names},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # promptfoo ends with 100 where tests fail
    assert done.returncode in (0, 100), done.stdout[-2000:] + done.stderr[-2000:]


def test_results_of_promptfoo(tmp_path: Path) -> None:
    command = tool("promptfoo")
    asserted = [{"type": "javascript", "value": "output.length / 20", "metric": "judge"}]
    tests = [
        {
            "description": word,
            "vars": {"q": word},
            "assert": [{"type": "contains", "value": "yes"}, *asserted],
        }
        for word in ("yes please", "no")
    ]
    config = {"prompts": ["{{q}}"], "providers": ["echo"], "tests": tests}
    (tmp_path / "promptfooconfig.json").write_text(json.dumps(config), "utf-8")
    words = ("eval", "-c", "promptfooconfig.json", "--repeat", "2", "--no-cache")
    run(tmp_path, command, *words, "-o", "out.json", "-o", "out.jsonl")
    for name in ("out.json", "out.jsonl"):
        found = read_judged([tmp_path / name])
        assert found.kinds == {"contains": "truth", "judge": "judge"}
        frame = found.source.sort_values("task_id")
        assert frame["task_id"].tolist() == ["no", "no", "yes please", "yes please"]
        assert frame["judge"].tolist() == [0.1, 0.1, 0.5, 0.5]
        assert frame["contains"].tolist() == [0, 0, 1, 1]
        corpus = import_corpus(tmp_path / name, name="c").frame
        assert corpus["outcome"].sum() == 2 and set(corpus["agent"]) == {"echo"}


_DEEPEVAL = """
from deepeval import evaluate
from deepeval.evaluate.configs import AsyncConfig, DisplayConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase

class Length(BaseMetric):
    threshold, async_mode, include_reason, strict_mode = 0.5, False, False, False
    error = evaluation_model = None
    __name__ = "Length judge"
    def measure(self, case, *_, **__):
        self.score = len(case.actual_output) / 10
        self.success = self.score >= self.threshold
        return self.score
    async def a_measure(self, case, *_, **__):
        return self.measure(case)
    def is_successful(self):
        return self.success

cases = [LLMTestCase(input=f"q{n // 2}", actual_output="x" * (2 * n + 1)) for n in range(4)]
shown = DisplayConfig(show_indicator=False, print_results=False)
found = evaluate(cases, [Length()], display_config=shown, async_config=AsyncConfig(run_async=False))
open("dumped.json", "w").write(found.model_dump_json())
"""


def test_results_of_deepeval(tmp_path: Path) -> None:
    python = Path(tool("deepeval")).with_name("python")
    (tmp_path / "evaluation.py").write_text(_DEEPEVAL, "utf-8")
    run(tmp_path, str(python), "evaluation.py", DEEPEVAL_RESULTS_FOLDER="results")
    for name in ("results", "dumped.json"):
        found = read_judged([tmp_path / name])
        assert found.kinds == {"Length judge": "judge"}
        assert sorted(found.source["Length judge"]) == [0.1, 0.3, 0.5, 0.7]
        corpus = import_corpus(tmp_path / name, name="c").frame
        assert corpus["task_id"].nunique() == 2 and corpus["outcome"].sum() == 2


_TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{q}}}}"
doc_to_target: {target}
metric_list: [{{metric: {metric}}}]
"""


def test_samples_of_lm_evaluation_harness(tmp_path: Path) -> None:
    command = tool("lm_eval")
    data, tasks = tmp_path / "data.jsonl", tmp_path / "tasks"
    rows = [{"q": "First?", "a": "lol", "k": 0}, {"q": "Second?", "a": "two", "k": 1}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    tasks.mkdir()
    written = _TASK.format(
        name="said", data=data, kind="generate_until", target='"{{a}}"', metric="exact_match"
    )
    (tasks / "said.yaml").write_text(written + 'generation_kwargs: {until: ["."]}\n', "utf-8")
    chosen = _TASK.format(
        name="chosen", data=data, kind="multiple_choice", target="k", metric="acc"
    )
    (tasks / "chosen.yaml").write_text(chosen + 'doc_to_choice: ["this", "that"]\n', "utf-8")
    words = ("--model", "dummy", "--include_path", "tasks", "--tasks", "said,chosen")
    run(tmp_path, command, *words, "--log_samples", "--output_path", "out")
    found = read_judged([tmp_path / "out"])
    assert found.kinds == {"acc": "truth", "exact_match": "truth"}
    frame = found.source.set_index("task_id")
    # the dummy model says lol
    assert frame["exact_match"].dropna().to_dict() == {"said/0": 1.0, "said/1": 0.0}
    corpus = import_corpus(tmp_path / "out", name="c").frame.set_index("task_id")
    assert corpus.index.tolist() == ["chosen/0", "chosen/1", "said/0", "said/1"]
    assert corpus.loc["said/0", "steps"][0]["action"] == "lol"
    assert corpus.loc["chosen/0", "steps"][0]["action"].strip() in ("this", "that")
