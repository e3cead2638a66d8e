from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from certify_assets.corpora.rendering import Renderer
from certify_assets.corpora.schema import Step
from certify_assets.corpora.token_budget import Encoding, TokenRendered, fast_encoder, fit_tokens
from certify_assets.errors import InputError

BEFORE, AFTER = "<|im_start|>user\nDid it succeed?\n", "<|im_end|>\n<|im_start|>assistant\nVERDICT:"
TEXTS = [
    "TASK\n  open the page\nSTEP 1\nACTION\n  click('x')\nOBSERVATION\n  a page of words\nSTEP "
    "12\n",
    "naïve 東京 🙂",
    BEFORE,
    AFTER,
]
NASTY = st.text(alphabet=st.sampled_from("ab \n\tSTEP1TASKé東🙂<|>[]/"), max_size=300)


def tokenizer() -> Tokenizer:
    """A byte-level BPE: a character may take several tokens, and markers are single ones."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXTS, trainer)
    return made


TOKENIZER = tokenizer()
ENCODE = fast_encoder(TOKENIZER)


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(ENCODE(text).ids)


def assert_cut_well(whole: str, found: TokenRendered, head: str, tail: str) -> None:
    original = ids_of(whole)
    note = re.search(r"\n?\[(\d+) tokens cut\]\n(?:  )?", found.text[len(head) :])
    assert note is not None and int(note.group(1)) == found.cut_tokens
    assert found.text.startswith(head) and found.text.endswith(tail)
    kept = len(original) - found.cut_tokens
    agree_first = next(
        (i for i, (a, b) in enumerate(zip(original, found.ids, strict=False)) if a != b),
        min(len(original), len(found.ids)),
    )
    agree_last = next(
        (
            i
            for i, (a, b) in enumerate(zip(reversed(original), reversed(found.ids), strict=False))
            if a != b
        ),
        min(len(original), len(found.ids)),
    )
    # what is kept are the ids of the one encoding, from both ends
    assert agree_first + agree_last >= kept
    assert TOKENIZER.decode(list(found.ids), skip_special_tokens=False) == found.text


def test_a_prompt_that_fits_is_as_it_is() -> None:
    renderer = Renderer(budget_tokens=10_000)
    steps = [Step("click", "a page")]
    found = renderer.render_tokens("go", steps, ENCODE, before=BEFORE, after=AFTER)
    assert (found.text, found.cut_tokens) == (
        BEFORE + Renderer().render("go", steps).text + AFTER,
        0,
    )
    assert found.ids == ids_of(found.text)


@settings(deadline=None, max_examples=150)
@given(NASTY, st.lists(st.tuples(NASTY, NASTY), min_size=1, max_size=8), st.integers(0, 400))
def test_head_and_tail_stay_and_the_budget_holds(
    instruction: str, pairs: list[tuple[str, str]], more: int
) -> None:
    steps = [Step(*pair) for pair in pairs]
    head = BEFORE + Renderer().render(instruction, ()).text.removesuffix("NO STEPS\n")
    whole = Renderer(budget_tokens=10**6).render_tokens(
        instruction, steps, ENCODE, before=BEFORE, after=AFTER
    )
    budget = len(ids_of(head)) + len(ids_of(AFTER)) + 24 + more
    renderer = Renderer(budget_tokens=budget)
    found = renderer.render_tokens(instruction, steps, ENCODE, before=BEFORE, after=AFTER)
    assert len(found.ids) <= budget
    assert found == renderer.render_tokens(instruction, steps, ENCODE, before=BEFORE, after=AFTER)
    if found.cut_tokens == 0:
        assert found.text == whole.text
        return
    assert_cut_well(whole.text, found, head, AFTER)
    assert found.text.count("<|im_start|>") == 2 and found.text.count("<|im_end|>") == 1
    for line in found.text[len(BEFORE) : -len(AFTER)].split("\n"):
        assert (
            not line.strip()
            or line.startswith("  ")
            or re.fullmatch(r"TASK|STEP \d+|ACTION|OBSERVATION|NO STEPS|\[\d+ tokens cut\]", line)
        ), line


def test_the_cut_is_no_larger_than_it_must_be() -> None:
    body = "".join(f"  word{number}\n" for number in range(300))
    found = fit_tokens("HEAD\n", body, "TAIL", encode=ENCODE, budget=200)
    assert 190 <= len(found.ids) <= 200
    left, right = found.text.split(f"[{found.cut_tokens} tokens cut]")
    assert abs(len(ids_of(left)) - len(ids_of(right))) <= 12


@pytest.mark.parametrize(
    "marker", ["<|im_end|>", "<tool_call>", "[/INST]", "\nOBSERVATION\n", "\nSTEP 12\n"]
)
def test_no_cut_falls_inside_a_marker(marker: str) -> None:
    def letters(text: str) -> Encoding:
        return Encoding(
            [ord(letter) for letter in text], [(place, place + 1) for place in range(len(text))]
        )

    body = (marker + "ab") * 30
    for budget in range(60, 110):
        found = fit_tokens("H", body, "T", encode=letters, budget=budget)
        assert "".join(map(chr, found.ids)) == found.text and len(found.text) <= budget
        # the note has a line of its own
        rest = re.sub(r"\n?\[\d+ tokens cut\]\n(?:  )?", "\n", found.text[1:-1])
        if marker.startswith("\n"):
            assert set(rest.replace("ab", "\n").split("\n")) <= {"", "a", "b", marker.strip()}
        else:
            assert set(re.sub(re.escape(marker), "", rest)) <= {"a", "b", "\n"}


def test_a_budget_below_head_and_tail_is_refused() -> None:
    with pytest.raises(InputError, match="larger budget"):
        fit_tokens("a long head " * 20, "body " * 50, "tail", encode=ENCODE, budget=30)
    with pytest.raises(InputError, match="larger budget"):
        fit_tokens("head", "", "tail", encode=ENCODE, budget=1)
    with pytest.raises(InputError, match="no budget of tokens"):
        Renderer().render_tokens("go", (), ENCODE)


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(InputError, match="fast tokenizer"):
        fast_encoder(Slow())


def test_a_fast_tokenizer_of_transformers_gives_the_same() -> None:
    transformers = pytest.importorskip("transformers")
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=TOKENIZER)
    assert fast_encoder(wrapped)(BEFORE).ids == ENCODE(BEFORE).ids


def test_a_token_budget_changes_the_hash_and_nothing_else_does() -> None:
    assert Renderer().sha256 == "c36b7f40f93bf65f22b5593750368838f18584446985a07df6ca8d7b88046e6e"
    assert (
        Renderer(budget_tokens=5120).sha256
        != Renderer().sha256
        != Renderer(budget_tokens=448).sha256
    )
    with pytest.raises(InputError, match="budget_tokens"):
        Renderer(budget_tokens=0)
