import random
from collections.abc import Iterator

import pytest

from certify_assets.errors import InputError, MissingToolError
from certify_assets.research.miniwob.browser import Browser, TaskPage, require_tools
from certify_assets.research.miniwob.hands import Hands
from certify_assets.research.miniwob.skills import find_skill

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    try:
        require_tools()
    except MissingToolError as error:
        pytest.skip(str(error))
    with Browser() as browser:
        yield browser


def act(page: TaskPage, fault: str = "") -> Hands:
    hands = Hands(page, fault=fault, rng=random.Random(0))
    skill, found = find_skill(page.instruction)
    skill.act(hands, found)
    return hands


@pytest.mark.browser
@pytest.mark.parametrize(
    "task",
    [
        "click-checkboxes",
        "click-dialog",
        "click-menu",
        "click-pie",
        "click-tab-2-hard",
        "choose-date",
        "choose-list",
        "drag-box",
        "email-inbox",
        "enter-time",
        "find-greatest",
        "form-sequence-2",
        "multi-layouts",
        "navigate-tree",
        "search-engine",
        "tic-tac-toe",
        "use-autocomplete",
    ],
)
def test_skills_do_real_tasks(chromium: Browser, task: str) -> None:
    page = chromium.open(task, "x0")
    act(page)
    assert page.raw_reward() == 1.0


@pytest.mark.browser
@pytest.mark.parametrize(
    ("task", "fault"),
    [("click-checkboxes", "forgets"), ("enter-text", "typo"), ("click-link", "wrong")],
)
def test_faults_fail_real_tasks(chromium: Browser, task: str, fault: str) -> None:
    page = chromium.open(task, "x0")
    act(page, fault)
    assert page.raw_reward() != 1.0
    assert (page.raw_reward() is None) == (fault == "forgets")


@pytest.mark.browser
def test_the_answer_that_a_page_draws_at_the_end_is_not_seen(chromium: Browser) -> None:
    page = chromium.open("circle-center", "x0")
    hands = act(page)
    assert page.ended
    assert page.look() == []
    assert "green" not in str(hands.steps)


@pytest.mark.browser
def test_a_page_starts_afresh_and_the_same_for_a_seed(chromium: Browser) -> None:
    first, second, other = (chromium.open("click-shades", seed) for seed in ("a", "a", "b"))
    assert first.instruction == second.instruction
    one = chromium.open("click-shades", "a").look()
    assert (
        one
        == chromium.open("click-shades", "a").look()
        != chromium.open("click-shades", "b").look()
    )
    assert other.instruction.startswith("Select all the shades")


@pytest.mark.browser
def test_an_unknown_task_is_refused(chromium: Browser) -> None:
    with pytest.raises(InputError, match="no task 'nothing'"):
        chromium.open("nothing", "a")
