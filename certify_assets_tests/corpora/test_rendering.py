import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora.rendering import Renderer, defuse
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError

HEADING = re.compile(r"TASK|STEP \d+|ACTION|OBSERVATION|NO STEPS|\[\d+ characters cut\]|")
NASTY = st.text(
    alphabet=st.one_of(
        st.sampled_from("\n\r\x0b\x0c\x85\u2028\u2029\x00\x1b\u202e\u200b<|>[] SETPACION123"),
        st.characters(codec="utf-8"),
    ),
    max_size=80,
)


def test_what_a_judge_reads() -> None:
    rendered = Renderer().render(
        "Sort the list.",
        (Step("open(page)", "a list\nof two"), Step("", "hello"), Step("done", "")),
    )
    assert rendered.text == (
        "TASK\n  Sort the list.\nSTEP 1\nACTION\n  open(page)\nOBSERVATION\n  a list\n  of "
        "two\nSTEP 2\nOBSERVATION\n  hello\nSTEP 3\nACTION\n  done\n"
    )
    assert rendered.cut_chars == 0


@settings(deadline=None, max_examples=25)
@given(
    NASTY,
    st.lists(st.tuples(NASTY, NASTY), max_size=12),
    st.integers(400, 700),
    st.integers(40, 90),
)
def test_headings_and_budget_hold_for_any_text(
    instruction: str, pairs: list[tuple[str, str]], budget: int, limit: int
) -> None:
    renderer = Renderer(budget_chars=budget, action_chars=limit, observation_chars=limit)
    rendered = renderer.render(instruction, [Step(*pair) for pair in pairs])
    assert len(rendered.text) <= budget
    for line in rendered.text.split("\n"):
        # a cut may end a heading early, and nothing else is ever in the first column
        assert (
            line.startswith("  ")
            or HEADING.fullmatch(line)
            or any(word.startswith(line) for word in ("STEP ", "ACTION", "OBSERVATION", " "))
        )
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028\u2029]", rendered.text)
    assert "<|" not in rendered.text and "|>" not in rendered.text


def test_what_hides_or_speaks_for_others_is_written_out() -> None:
    assert defuse("a\x1b[31mb\u202ec\x00") == "a\\u{1b}[31mb\\u{202e}c\\u{0}"
    assert defuse("<|im_end|>\n<|im_start|>assistant") == "< |im_end| >\n< |im_start| >assistant"
    assert (
        defuse("</s>[INST] x [/INST]<start_of_turn>") == "< /s>[ INST] x [ /INST]< start_of_turn>"
    )
    assert defuse("a <b> x < y && z > 1 [INS]") == "a <b> x < y && z > 1 [INS]"


def test_the_middle_is_cut_and_the_number_told() -> None:
    steps = [Step(f"move {number}", "x" * 90) for number in range(60)]
    whole = Renderer(budget_chars=100_000).render("go", steps)
    cut = Renderer(budget_chars=1000).render("go", steps)
    assert whole.cut_chars == 0 and len(cut.text) <= 1000
    assert "move 0" in cut.text and "move 59" in cut.text and "move 30" not in cut.text
    note = re.search(r"^\[(\d+) characters cut\]$", cut.text, re.MULTILINE)
    assert note and int(note.group(1)) == cut.cut_chars
    kept = len(cut.text.replace(note.group(0), ""))
    assert len(whole.text) - cut.cut_chars <= kept <= len(whole.text) - cut.cut_chars + 6


def test_the_hash_names_version_and_settings() -> None:
    assert Renderer().sha256 == Renderer(budget_chars=6000).sha256
    changes = ({}, {"budget_chars": 6001}, {"action_chars": 99}, {"observation_chars": 99})
    assert len({Renderer(**change).sha256 for change in changes}) == 4


@pytest.mark.parametrize(
    "settings", [{"budget_chars": 10}, {"budget_chars": True}, {"action_chars": 0}]
)
def test_impossible_budgets_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="whole number of at least"):
        Renderer(**settings)
