import random
import re

import pytest

from certify_assets.research.miniwob.hands import MAX_STEPS, Hands, Stuck, observe_change
from certify_assets.research.miniwob.skills import SKILLS, find_skill
from certify_assets_tests.research.miniwob_page import FakePage, boxes_page, element, login_page


def act(page: FakePage, fault: str = "", seed: int = 0) -> Hands:
    hands = Hands(page, fault=fault, rng=random.Random(seed))
    skill, found = find_skill(page.instruction)
    skill.act(hands, found)
    return hands


def test_changes_are_what_is_new_gone_or_moved() -> None:
    assert observe_change(["a", "b"], ["a", "c"]) == "now: c"
    assert observe_change(["a", "b"], ["a"]) == "gone: b"
    assert observe_change(["a", "b"], ["b", "a"]) == "order now: b; a"
    assert observe_change(["a"], ["a"]) == "nothing visible changed"


def test_login_fills_both_fields_by_their_labels_and_submits() -> None:
    page = login_page()
    hands = act(page)
    assert [e.value for e in page.elements[:2]] == ["keli", "3hI"]
    assert page.ended
    assert hands.steps[1] == (
        'type(field "Username", "keli")',
        'now: field "Username" holds "keli"',
    )


BOTH = [False, True, False, True]


@pytest.mark.parametrize(
    ("fault", "ticked"), [("", BOTH), ("partial", [False, True, False, False])]
)
def test_boxes_are_ticked_by_label(fault: str, ticked: list[bool]) -> None:
    page = boxes_page()
    act(page, fault)
    assert [e.checked for e in page.elements[:4]] == ticked and (page.ended or fault)


def test_a_wrong_box_by_who_errs_once() -> None:
    page = boxes_page()
    act(page, "wrong")
    assert [e.checked for e in page.elements[:4]] != BOTH


def test_who_forgets_does_not_submit() -> None:
    page = boxes_page()
    act(page, "forgets")
    assert not page.ended
    assert page.elements[1].checked


def test_a_typo_shows_in_the_field() -> None:
    page = login_page()
    act(page, "typo")
    assert [e.value for e in page.elements[:2]] == ["keil", "3hI"]


def test_clicks_next_to_the_element_change_nothing_and_leave_a_doubt() -> None:
    page = boxes_page()
    hands = act(page, "off")
    assert not any(e.checked for e in page.elements[:4])
    assert hands.doubts == 2


def test_who_stops_gives_up_with_the_reason() -> None:
    with pytest.raises(Stuck, match="stopping here"):
        act(boxes_page(), "stops")


def test_nothing_is_seen_once_the_episode_has_ended() -> None:
    page = boxes_page()
    hands = act(page)
    before = len(page.done)
    hands.click(page.elements[0])
    assert hands.steps[-1][1] == hands.steps[-2][1] == "nothing visible changed"
    assert len(page.done) == before


def test_what_is_missing_is_said_before_giving_up() -> None:
    hands = Hands(boxes_page(), fault="")
    with pytest.raises(Stuck, match='could not find "Fiji"'):
        hands.need("Fiji")
    assert hands.steps[-1] == ('find("Fiji")', "no element matches")


def test_an_option_that_is_not_in_the_list_is_said() -> None:
    page = FakePage(
        "Select Fiji from the list and click Submit.",
        [element(0, "list", options=("Chad",)), element(1, "button", "Submit")],
    )
    with pytest.raises(Stuck, match="not in the list"):
        act(page)


def test_an_episode_has_a_last_step() -> None:
    hands = Hands(boxes_page(), fault="")
    with pytest.raises(Stuck, match="too many steps"):
        for _ in range(MAX_STEPS + 1):
            hands.look_again()


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ('Click on the link "In".', "click_named"),
        ("Click the button that best describes the figure below.", "identify_shape"),
        ("Select Eyde>Loree", "menu_path"),
        ("Select yMbdWAR and click Submit.", "select_boxes"),
        ("Select words similar to happy and click Submit.", "improvise"),
        ("Select Brazil, Mauritania from the scroll list and click Submit.", "choose_from_list"),
        ("Select 12/24/2016 as the date and hit submit.", "pick_date"),
        ("Select -5 with the slider, click the 2nd checkbox, then hit Submit.", "slider_and_box"),
        ("Select 104 with the slider and hit Submit.", "slide_to"),
        ("Enter 7:55 PM as the time and press submit.", "enter_time"),
        (
            'Type "tora" in all upper case letters in the text input and press Submit.',
            "type_quoted",
        ),
        ("Find the email by Celestyn and click the trash icon to delete it.", "mail"),
        ("Locate Elwira's email and delete it.", "mail"),
        ('For the user @kenda, click on the "Like" button.', "social_posts"),
        (
            'Click the "Share" button on 3 posts by @ullamcorper and then click Submit.',
            "social_posts",
        ),
        ('Move the cube around so that "5" is the active side facing the user.', "improvise"),
    ],
)
def test_instructions_find_their_skill(instruction: str, name: str) -> None:
    assert find_skill(instruction)[0].act.__name__ == name


def test_skills_are_well_formed() -> None:
    for skill in SKILLS:
        re.compile(skill.pattern)
        assert 0 <= skill.level <= 1
        assert skill.act.__doc__
