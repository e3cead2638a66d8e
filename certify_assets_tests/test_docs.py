"""Documentation: links, pictures, and commands, which are parsed, executed or marked with a reason."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

from certify_assets.cli import cli
from certify_assets.words import WORDS
from certify_assets_tests.doc_commands import (
    PAGES,
    Block,
    agree,
    blocks,
    execute,
    inline,
    read,
    workplace,
)
from certify_assets_tests.paths import REPOSITORY

BLOCKS = [block for page in PAGES for block in blocks(page)]
FAST = sorted({block.page for block in BLOCKS if block.executed and not block.slow})
SLOW = sorted({block.page for block in BLOCKS if block.slow})


def _place(block: Block) -> str:
    return f"{block.page}:{block.line}"


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    folder = (REPOSITORY / page).parent
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
        path = (folder / target).resolve() if target else REPOSITORY / page
        assert path.is_file(), target
        assert path.is_relative_to(REPOSITORY), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"
    # every picture has a description
    assert all(len(words) > 10 for words in re.findall(r"!\[([^\]]*)\]", text))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    for name in re.findall(r"`(?:certify_assets_tests/)?((?:[a-z_]+/)*test_\w+\.py)\b", read(page)):
        assert (REPOSITORY / "certify_assets_tests" / name).is_file(), name


def test_every_function_that_the_paper_is_mapped_to_is_there() -> None:
    rows = read("docs/paper-to-code.md").splitlines()
    pattern = r"`([a-z_]+(?:\.\w+)+)`(?: \(`(\w+)`\))?"
    named = [name for row in rows for name in re.findall(pattern, row)]
    assert len(named) >= 20
    for name, member in named:
        module, function = f"certify_assets.{name}".rsplit(".", 1)
        found = getattr(import_module(module), function)
        assert not member or hasattr(found, member), f"{name}.{member}"


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r"^ +- (?:.*: )?([\w/-]+\.md)$", read("mkdocs.yml"), re.MULTILINE)
    elsewhere = {"index.md", "contributing.md", "deploy.md", "changelog.md", "notebook.md"}
    elsewhere |= {"align_and_certify.md"}
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert len(named) == len(set(named)) and set(named) - elsewhere == pages


def test_blocks_are_executed_or_say_why_not() -> None:
    unmarked = [_place(block) for block in BLOCKS if not block.executed and not block.mark]
    assert not unmarked, "fence these as console, or put <!-- not run: REASON --> above them"
    assert FAST and SLOW


def parse(command: str) -> None:
    """Parse a command line against the command tree; raise where it names what is not there."""
    # a page may end a command early, offer words in brackets, and stand for one by "…"
    command = re.split(r" [>|] ", command)[0]
    words = [word.strip("[]") for word in shlex.split(command, comments=True)]
    words = [word for word in words if word and word not in ("…", "...")]
    # a command keeps the names of its help option from the first context that parses with it
    context, found = click.Context(cli, info_name="certify", **cli.context_settings), cli
    rest = words[1:]
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        names = rest[0].split("|")
        for name in names:
            assert found.get_command(context, name) is not None, f"{command}: no command {name}"
        child = found.get_command(context, names[0])
        assert child is not None
        found, rest = child, rest[1:]
        context = click.Context(found, info_name=names[0], parent=context)
    options = {name: one for one in found.params for name in (*one.opts, *one.secondary_opts)}
    for word in rest:
        if re.match(r"--?[a-z]", word):
            assert word.split("=")[0] in options, f"{command}: no option {word}"
    complete = not isinstance(found, click.Group)
    if complete and not any(mark in command for mark in ("…", "...")):
        # without an option's value at the end of a sentence's command nothing can be parsed
        try:
            _, left, _ = found.make_parser(context).parse_args(args=list(rest))
        except click.BadOptionUsage:
            return
        assert not left, f"{command}: {left} is too much"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_parses(page: str) -> None:
    targets = set(re.findall(r"`make ([a-z-]+)`", read(page)))
    for block in blocks(page):
        for command in block.commands():
            if command.startswith("certify "):
                parse(command)
            elif target := re.match(r"make ([a-z-]+)", command):
                targets.add(target[1])
    for command in inline(page):
        parse(command)
    for script in re.findall(r"`python ((?:benchmarks|tools)/\w+\.py[^`]*)`", read(page)):
        path, *options = shlex.split(script.replace("[", "").replace("]", ""))
        source = (REPOSITORY / path).read_text("utf-8")
        for option in options:
            assert not option.startswith("--") or f'"{option}"' in source, script
    assert targets <= set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_python_of_the_pages_compiles(page: str) -> None:
    for code in re.findall(r"^```python\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL):
        assert compile(code, page, "exec")


def assert_output(page: str, folder: Path, *, slow: bool) -> None:
    with workplace(folder):
        for block in blocks(page):
            if not block.executed or (block.slow and not slow):
                continue
            for command, expected in block.steps():
                code, printed = execute(command)
                # what is refused or crashes prints no result; 3 is an answer
                assert code in (0, 3), f"{_place(block)}: {command}: exit {code}"
                assert agree(expected, printed), f"{_place(block)}: {command} prints\n{printed}"


@pytest.mark.parametrize("page", FAST)
def test_commands_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    assert_output(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW)
def test_commands_of_the_platform_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    assert_output(page, tmp_path, slow=True)


def test_the_glossary_has_the_words_of_every_surface() -> None:
    terms = " ".join(re.findall(r"^\| ([^|]+) \|", read("docs/glossary.md"), re.MULTILINE))
    for word in (*WORDS.values(), "decided", "held-out"):
        assert word in terms, word


#: other words for what becomes of a run, as other tools have them
OTHER_WORDS = r"(?i)auto[- ](?:reject|release|accept|approve|decided)|escalated|deferred|hold-?out"


@pytest.mark.parametrize("ending", ["md", "html", "py"])
def test_docs_pages_and_help_have_no_other_words_for_the_six_figures(ending: str) -> None:
    texts = {
        path: path.read_text("utf-8")
        for folder in ("docs", "certify_assets")
        for path in (REPOSITORY / folder).rglob(f"*.{ending}")
    }
    found = {str(path): re.findall(OTHER_WORDS, text) for path, text in texts.items()}
    assert texts and {path: words for path, words in found.items() if words} == {}
