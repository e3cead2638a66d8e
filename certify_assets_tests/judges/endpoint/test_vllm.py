"""The endpoint judge against a real vLLM on this machine's CPU.

`tools/vllm_server.sh install` makes its venv.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from certify_assets.judges.endpoint.judge import EndpointRun, connected
from certify_assets.judges.endpoint.questions import render
from certify_assets.judges.endpoint.settings import EndpointEntry
from certify_assets_tests.judges.endpoint.faulty_server import judge_of
from certify_assets_tests.judges.endpoint.tiny_model import write_tiny_model
from certify_assets_tests.judges.endpoint.vllm_process import require_vllm, vllm_server

pytestmark = pytest.mark.slow

TEXTS = [
    f"TASK\n  press button {number}\nSTEP 1\n  {'click ' * (1 + number % 5)}the page "
    f"{number * number}\n"
    for number in range(24)
]
WORDS = (" SUCCESS", " FAIL")
#: all tokens of the tiny model: its verdicts are not among the likeliest
TOP = 300


class Vllm(NamedTuple):
    """A server that answered a real request."""

    url: str
    model: Path


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """vLLM with a random model."""
    root = tmp_path_factory.mktemp("vllm")
    require_vllm()
    model = write_tiny_model(root / "model")
    with vllm_server(model, "tiny", root / "log") as url:
        yield Vllm(url, model)


def _run(vllm: Vllm, **settings: Any) -> EndpointRun:
    entry = judge_of(
        vllm.url, model="tiny", form="completion", top=TOP, timeout_seconds=120.0, **settings
    )
    return connected(entry).run(TEXTS)


def _direct(vllm: Vllm, entry: EndpointEntry, words: tuple[str, str]) -> NDArray[np.float64]:
    """Log-probabilities of both verdicts by Transformers in float32, one text at a time."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(vllm.model)
    model: Any = AutoModelForCausalLM.from_pretrained(vllm.model, dtype=torch.float32).eval()
    verdicts = [tokenizer.encode(word, add_special_tokens=False) for word in words]
    assert [len(ids) for ids in verdicts] == [1, 1]
    rows = []
    for text in TEXTS:
        asked = render(entry, text)
        chat = not isinstance(asked, str)
        ids = (
            tokenizer.apply_chat_template(
                list(asked), add_generation_prompt=True, return_dict=False
            )
            if chat
            else tokenizer.encode(asked)
        )
        with torch.no_grad():
            logs = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)
        rows.append([logs[verdict[0]].item() for verdict in verdicts])
    return np.array(rows)


def _gap(run: EndpointRun, direct: NDArray[np.float64]) -> float:
    assert run.report.scored == len(TEXTS) and np.ptp(direct[:, 0] - direct[:, 1]) > 0.1
    return float(
        np.abs(np.stack([run.scores.log_p_success, run.scores.log_p_fail], axis=1) - direct).max()
    )


def test_log_probabilities_are_those_of_transformers(vllm: Vllm) -> None:
    direct = _direct(vllm, judge_of(vllm.url, form="completion"), WORDS)
    run = _run(vllm)
    assert _gap(run, direct) <= 1e-4
    assert run.report.requests == len(TEXTS) and run.report.models == ("tiny",)


def test_chats_are_read_at_the_first_token_of_the_answer(vllm: Vllm) -> None:
    entry = judge_of(vllm.url, model="tiny", top=TOP)
    judge = connected(entry)
    settings = judge.provenance().settings
    assert settings["server"]["version"]
    assert _gap(judge.run(TEXTS), _direct(vllm, entry, ("SUCCESS", "FAIL"))) <= 1e-4
