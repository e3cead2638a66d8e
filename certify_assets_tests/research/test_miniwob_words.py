import pytest

from certify_assets.research.miniwob.hands import (
    colour_name,
    describe,
    name_of,
    ordinal,
    quoted,
    shorten,
)
from certify_assets_tests.research.miniwob_page import element


def test_quoted_words_come_in_order() -> None:
    assert quoted('Enter the username "keli" and the password "3hI" into ""') == ["keli", "3hI"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("the 3rd box", 3),
        ("Find the last word", 0),
        ("the second", 2),
        ("the 11th word", 11),
        ("none", None),
    ],
)
def test_ordinals(text: str, number: int | None) -> None:
    assert ordinal(text) == number


@pytest.mark.parametrize(
    ("css", "name"),
    [
        ("rgb(255, 192, 203)", "pink"),
        ("aqua", "cyan"),
        ("rgb(30, 30, 169)", "navy"),
        ("gray", "grey"),
        ("none", ""),
    ],
)
def test_colours_have_names(css: str, name: str) -> None:
    assert colour_name(css) == name


def test_shorten_says_how_much_is_left_out() -> None:
    assert shorten(["aaaa", "bbbb", "cccc"], 12) == "aaaa; bbbb (+1 more)"
    assert shorten(["aaaa"], 2) == "aa"
    assert shorten([], 10) == ""


def test_describe_shows_states_and_leaves_layout_out() -> None:
    view = [
        element(0, "field", label="Name", value="Tora"),
        element(1, "checkbox", label="VkEp", checked=True),
        element(2, "list", options=("Chad", "Fiji"), chosen=("Fiji",)),
        element(3, "icon", cls="star clicked"),
        element(4, "icon", cls="ui-resizable-handle"),
        element(5, "text", "Nibh sed vel."),
    ]
    lines = [
        'field "Name" holds "Tora"',
        'checkbox "VkEp" on',
        "list of Chad, Fiji; chosen Fiji",
        "icon star marked",
        '"Nibh sed vel."',
    ]
    assert describe(view) == lines


def test_an_empty_field_says_so_and_shapes_say_where() -> None:
    assert describe([element(0, "field")]) == ["field is empty"]
    assert name_of(element(0, "shape", tag="circle", colour="green")) == "green circle at 50,60"
