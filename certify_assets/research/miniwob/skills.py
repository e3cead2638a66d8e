"""Which skill fits an instruction, how hard it is, and how it tends to go wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from certify_assets.research.miniwob import skills_click as click
from certify_assets.research.miniwob import skills_form as form
from certify_assets.research.miniwob import skills_shape as shape
from certify_assets.research.miniwob.hands import Hands

__all__ = ["SKILLS", "Skill", "find_skill"]

CLICK = (("blind", 4), ("off", 3), ("wrong", 2), ("lost", 3))
STEPS = (("blind", 3), ("off", 2), ("wrong", 2), ("lost", 3), ("stops", 3))
FORM = (("blind", 3), ("forgets", 2), ("partial", 1), ("typo", 1), ("lost", 2), ("stops", 2))
BOXES = (("blind", 3), ("forgets", 2), ("partial", 2), ("off", 2), ("lost", 2))
DRAG = (("blind", 4), ("off", 2), ("forgets", 1), ("lost", 3))


@dataclass(frozen=True, slots=True)
class Skill:
    """A way of acting, the instructions it fits, its level (0 easy to 1 hard) and its usual faults with weights."""

    pattern: str
    act: Callable[[Hands, re.Match[str]], None]
    level: float
    faults: tuple[tuple[str, int], ...]


SKILLS: tuple[Skill, ...] = (
    Skill(
        r"For the user (?P<user>@\w+), click on the \"(?P<button>[^\"]+)\" button(?P<count>(?!))?",
        click.social_posts,
        0.5,
        STEPS,
    ),
    Skill(
        r"Click the \"(?P<button>[^\"]+)\" button on (?P<count>all|\d+) posts? by (?P<user>@\w+)",
        click.social_posts,
        0.65,
        STEPS,
    ),
    Skill(
        r"Use the textbox to enter \"([^\"]+)\" and press \"Search\", .* the (\d+)",
        click.search_result,
        0.55,
        STEPS,
    ),
    Skill(r"^Close the dialog", click.close_dialog, 0.3, CLICK),
    Skill(r"Click on (Tab #\d+)", click.click_tab, 0.25, CLICK),
    Skill(r"Click on a \"(\w+)\" widget", click.click_widget, 0.4, CLICK),
    Skill(r"Click on the (\w+) colored box", click.click_colour, 0.35, CLICK),
    Skill(r"^Click the button that best describes", shape.identify_shape, 0.4, CLICK),
    Skill(r"Click (?:the button\.|button ONE)", click.press_buttons, 0.1, CLICK),
    Skill(r"Expand the section below and click submit", click.expand_and_submit, 0.35, FORM),
    Skill(
        r"(?:Scroll to the bottom|Click the cancel button|Click the .* button\.$).*",
        form.sign_agreement,
        0.6,
        FORM,
    ),
    Skill(
        r"(?:Switch between the tabs|Expand the sections|Navigate through the file tree|Click the \"Menu\" button)",
        click.click_named,
        0.6,
        STEPS,
    ),
    Skill(r"Expand the pie menu", click.click_named, 0.7, CLICK),
    Skill(r"Click (?:on )?the (?:link|button|\").*", click.click_named, 0.2, CLICK),
    Skill(r"Select ([A-Z][\w-]+(?:>[\w-]+)+)", click.menu_path, 0.65, STEPS),
    Skill(r"Select all the shades of (red|green|blue)", shape.shades, 0.6, BOXES),
    Skill(r"Select words similar to (.*) and click Submit", shape.improvise, 0.9, BOXES),
    Skill(r"Select (.+) from the (?:scroll )?list", click.choose_from_list, 0.45, FORM),
    Skill(r"Select (\d\d/\d\d/\d{4}) as the date", form.pick_date, 0.65, STEPS),
    Skill(r"Select (-?\d+) with the slider, click the (\d)", form.slider_and_box, 0.7, BOXES),
    Skill(r"Select (-?\d+) with the slider", form.slide_to, 0.55, FORM),
    Skill(r"Set the sliders to the combination \[([^\]]+)\]", form.slide_to, 0.75, BOXES),
    Skill(r"Select (-?\d+) with the spinner", form.spin, 0.45, FORM),
    Skill(r"Select (?!.*color)(.+) and click Submit", click.select_boxes, 0.4, BOXES),
    Skill(r"Enter the username", form.login, 0.4, FORM),
    Skill(r"Enter an item that starts", form.autocomplete, 0.6, FORM),
    Skill(
        r"Enter the value of (.+) into the text field|Enter the value that corresponds",
        form.read_table,
        0.5,
        FORM,
    ),
    Skill(r"Enter (\d\d/\d\d/\d{4}) as the date", form.enter_date, 0.45, FORM),
    Skill(r"Enter (\d+):(\d+) (AM|PM) as the time", form.enter_time, 0.5, FORM),
    Skill(r"^(?:Enter|Type) (?:the password )?\"", form.type_quoted, 0.3, FORM),
    Skill(r"^Copy the text", form.copy_text, 0.5, FORM),
    Skill(r"^Find the (?:\d+\w\w|last) word", form.find_word, 0.5, FORM),
    Skill(r"Scroll the textarea to the (top|bottom)", form.scroll_area, 0.5, FORM),
    Skill(r"^Type the text below", form.retype_letters, 0.45, FORM),
    Skill(r"^Type the total number of blocks", form.add_blocks, 0.55, FORM),
    Skill(r"^Solve for x", form.solve_equation, 0.7, FORM),
    Skill(r"^Solve the math problem", form.solve_sum, 0.5, FORM),
    Skill(
        r"Search for (.+) movies directed by (.+) from year (\d+)", form.movie_search, 0.55, FORM
    ),
    Skill(r"^Focus into the", form.focus_field, 0.2, CLICK),
    Skill(
        r"Check the (\d)\w\w radio button and enter the number \"(-?\d+)\" into the (\d)",
        form.radio_and_number,
        0.6,
        BOXES,
    ),
    Skill(
        r"Choose (.+) from the dropdown, then click the button labeled \"(\w+)\"",
        form.dropdown_and_button,
        0.6,
        STEPS,
    ),
    Skill(r"^Generate an? ", form.generate_number, 0.6, FORM),
    Skill(r"^Guess the number", form.guess_number, 0.7, FORM),
    Skill(
        r"Find (.+) in the contact book and click on their (\w+)", click.contact_detail, 0.55, STEPS
    ),
    Skill(r"Buy the ticket with the (.+)\.", click.book_ticket, 0.5, CLICK),
    Skill(r"Order one of each item: (.+)", click.order_food, 0.6, BOXES),
    Skill(r"Click on an? (.+)$", shape.click_shape, 0.5, CLICK),
    Skill(r"How many (.+) are there", shape.count_shapes, 0.6, CLICK),
    Skill(r"numbers in ascending order", shape.ascending, 0.45, STEPS),
    Skill(r"grid coordinate (\(-?\d,-?\d\))", shape.grid_point, 0.45, CLICK),
    Skill(r"center of the circle", shape.circle_center, 0.5, DRAG),
    Skill(r"mid-point between", shape.midpoint, 0.6, DRAG),
    Skill(r"right angle|bisects the angle|Draw a circle", shape.click_place, 0.85, DRAG),
    Skill(r"Drag the (?:circle|item) (up|down|left|right) then", shape.drag_down, 0.5, DRAG),
    Skill(r"Drag the smaller box", shape.box_in_box, 0.6, DRAG),
    Skill(r"Drag all (.+) into the (?:black|left) box", shape.drag_shapes, 0.75, DRAG),
    Skill(r"Drag ([\w-]+) to the ([a-z][a-z -]+)\.", shape.grid_center, 0.65, DRAG),
    Skill(r"Drag ([\w-]+) (?:to|up|down)", shape.list_position, 0.6, DRAG),
    Skill(r"Sort the numbers in increasing", shape.sort_numbers, 0.75, DRAG),
    Skill(r"Resize the textarea", shape.resize_area, 0.6, DRAG),
    Skill(r"Draw a (vertical|horizontal) line", shape.draw_line, 0.7, DRAG),
    Skill(r"card with the greatest number", shape.find_greatest, 0.6, STEPS),
    Skill(r"Mark the numbers below as odd or even", shape.odd_or_even, 0.6, BOXES),
    Skill(r"tic-tac-toe", shape.tic_tac_toe, 0.75, STEPS),
    Skill(r"HOT area", shape.hot_spot, 0.75, STEPS),
    Skill(r"Buy \w+ stock when the price is less than \$([\d.]+\d)", shape.buy_stock, 0.65, STEPS),
    Skill(
        r"delete a file (?:ending with the extension \.(\w+)|that has)",
        shape.delete_file,
        0.7,
        STEPS,
    ),
    Skill(r"^Highlight the text", shape.highlight, 0.6, FORM),
    Skill(
        r"Using the text editor, (?:give .+?|make everything) the (?:style|color) (\w+)",
        shape.style_text,
        0.8,
        STEPS,
    ),
    Skill(r"(?i)\b(?:e?mails?|message|information)\b", click.mail, 0.6, STEPS),
)
FALLBACK = Skill(r"", shape.improvise, 0.9, STEPS)


def find_skill(instruction: str) -> tuple[Skill, re.Match[str]]:
    """Return the first skill whose pattern is in the instruction, and the match; improvisation fits everything."""
    for skill in SKILLS:
        if found := re.search(skill.pattern, instruction):
            return skill, found
    found = re.match("", instruction)
    assert found is not None
    return FALLBACK, found
