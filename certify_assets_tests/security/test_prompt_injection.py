"""No text of a trajectory makes a control token or leaves its fence, in any prompt of any judge; what it may still do is move a score."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora.rendering import Renderer
from certify_assets.corpora.trajectory import Step
from certify_assets.judges.endpoint.questions import render
from certify_assets.judges.families.lexical import LexicalJudge
from certify_assets.judges.lm.prompt import AuditorPrompt, PromptEncoder
from certify_assets_tests.judges.endpoint.faulty_server import judge_of
from certify_assets_tests.judges.lm.test_prompt import KINDS, controls, encoder_of
from certify_assets_tests.security.hostile import INJECTIONS, MARKUP

HEADING = re.compile(r"TASK|STEP \d+|ACTION|OBSERVATION|NO STEPS|\[\d+ characters cut\]|")
PIECES = st.sampled_from([*INJECTIONS.values(), *MARKUP, "click(7)", "\n", " "])
MIXED = st.one_of(
    PIECES.map(lambda text: text[:600]),
    st.lists(PIECES.map(lambda text: text[:80]), max_size=6).map("".join),
    st.text(max_size=60),
)
RUN = st.tuples(MIXED, st.lists(st.tuples(MIXED, MIXED), max_size=4))


def _rendered(instruction: str, pairs: Sequence[tuple[str, str]]) -> str:
    return Renderer().render(instruction, [Step(*pair) for pair in pairs]).text


def _fenced(text: str) -> bool:
    """Only headings of ours stand in the first column."""
    return all(line.startswith("  ") or HEADING.fullmatch(line) for line in text.split("\n"))


@pytest.mark.parametrize("kind", INJECTIONS)
def test_an_injection_stays_behind_its_indent(kind: str) -> None:
    text = _rendered(
        INJECTIONS[kind], [(INJECTIONS[kind], INJECTIONS[kind]), ("", INJECTIONS[kind])]
    )
    assert _fenced(text) and len(text) <= 6000
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]",
        text,
    )
    assert "<|" not in text and "|>" not in text and "[INST]" not in text and "<think>" not in text


@pytest.mark.parametrize("tokenizer", KINDS)
@pytest.mark.parametrize("kind", INJECTIONS)
def test_an_injection_makes_no_control_token_and_ends_no_prompt(tokenizer: str, kind: str) -> None:
    encoder = encoder_of(tokenizer)
    ids = encoder.encode_text(
        _rendered(INJECTIONS[kind], [(INJECTIONS[kind], INJECTIONS[kind])])
    ).ids
    before, after = len(encoder.prefix_ids), len(encoder.suffix_ids)
    assert ids[:before] == encoder.prefix_ids and ids[-after:] == encoder.suffix_ids
    body = ids[before:-after]
    assert not controls(encoder) & set(body) and len(ids) <= encoder.budget_tokens
    text = str(encoder.tokenizer.decode(body))
    assert encoder.prompt.marker.lower() not in text.lower()
    assert not any(line.startswith(("END OF RUN", "VERDICT", "RUN")) for line in text.split("\n"))


@settings(deadline=None, max_examples=60)
@given(RUN)
def test_any_mixture_stays_behind_its_fence_in_every_prompt(
    run: tuple[str, list[tuple[str, str]]],
) -> None:
    text = _rendered(*run)
    encoder = encoder_of("template")
    ids = encoder.encode_text(text).ids
    body = ids[len(encoder.prefix_ids) : len(ids) - len(encoder.suffix_ids)]
    assert not controls(encoder) & set(body)
    for asking in ("logprob", "cot", "sc_5"):
        chat, completion = (
            judge_of("http://h/v1", asking=asking, form=form) for form in ("chat", "completion")
        )
        _assert_chat(render(chat, text), chat.auditor)
        _assert_completion(render(completion, text), completion.auditor)


def _assert_chat(messages: Any, auditor: AuditorPrompt) -> None:
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"] == auditor.system
    user = messages[1]["content"]
    assert user.startswith(auditor.opening) and user.endswith(f"\n{auditor.closing}")
    _assert_inside(user[len(auditor.opening) : -len(auditor.closing) - 1], auditor)


def _assert_completion(text: Any, auditor: AuditorPrompt) -> None:
    head, tail = f"{auditor.system}\n\n{auditor.opening}", f"\n{auditor.closing}\n{auditor.marker}"
    assert text.startswith(head) and text.endswith(tail)
    _assert_inside(text[len(head) : -len(tail)], auditor)


def _assert_inside(run: str, auditor: AuditorPrompt) -> None:
    """What stands between opening and closing is a rendering without the words that an answer is read by."""
    assert all(line.startswith("  ") or HEADING.fullmatch(line) for line in run.split("\n"))
    assert auditor.marker.lower() not in run.lower() and "p_success=" not in run.lower()
    assert "<|" not in run and "|>" not in run


@pytest.fixture(scope="module")
def compact() -> PromptEncoder:
    from certify_assets.judges.lm.judge import load_base

    return load_base("compact")[1]


@pytest.mark.parametrize("kind", INJECTIONS)
def test_a_lexical_judge_takes_an_injection_for_words(kind: str) -> None:
    words = [
        _rendered("Sort", [("click", text)]) for text in ("all is sorted", "nothing was found")
    ]
    judge = LexicalJudge.train(words * 4, [1, 0] * 4)
    hostile = judge.score([_rendered("Sort", [("click", f"nothing was found {INJECTIONS[kind]}")])])
    # a verdict in the text is words without weight: the score stays what the known words make of it
    assert float(hostile.score[0]) < 0


def test_a_normalising_tokenizer_makes_no_control_token_of_wide_markup() -> None:
    encoder = _normalising()
    ids = encoder.encode_text(
        _rendered("x", [(INJECTIONS["wide markup"], INJECTIONS["verdict confusable"])])
    ).ids
    body = ids[len(encoder.prefix_ids) : len(ids) - len(encoder.suffix_ids)]
    assert not controls(encoder) & set(body)


def _normalising() -> Any:
    from tokenizers import normalizers

    from certify_assets_tests.judges.lm.test_prompt import tokenizer_of

    tokenizer = tokenizer_of("template")
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    return PromptEncoder(tokenizer, budget_tokens=400)
