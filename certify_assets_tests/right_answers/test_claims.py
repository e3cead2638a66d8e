"""Claims of the documentation: figures that a command prints, and names that exist."""

import argparse
import re

import pytest

from certify_assets_tests.doc_commands import PAGES, read
from certify_assets_tests.paths import REPOSITORY, benchmark

_ASSET = re.compile(
    r"`((?:corpora|operations|research|judges/(?:<judge>|\w+))/[a-z_]+|judges/[a-z_]+)`"
)


def _worst() -> dict[str, list[list[float]]]:
    """Shares of wrong certificates by design: default, joint, each at the numbers of tasks."""
    section = read("docs/evidence/validity.md").partition("## Where the default is worst")[2]
    rows = re.findall(r"^\| ([^|*]+) \| (\.\d.*) \|$", section, re.MULTILINE)
    return {
        name: [[float(share) for share in cell.split("/")] for cell in cells.split("|")]
        for name, cells in rows
    }


@pytest.mark.parametrize("page", PAGES)
def test_assets_that_a_page_names_exist(page: str) -> None:
    from certify_assets.definitions import defs

    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    for name in _ASSET.findall(read(page)):
        assert name.replace("<judge>", "lexical") in keys, name
    for words in re.findall(r"\bassets? ((?:`[\w/<>]+`(?:, | and )?)+)", read(page)):
        for name in re.findall(r"`([^`]+)`", words):
            assert any(f"/{key}".endswith(f"/{name}") for key in keys) or "<" in name, name


def test_readme_figures_run_or_are_of_the_worst_designs() -> None:
    text = re.sub(r"^```.*?^```$", "", read("README.md"), flags=re.MULTILINE | re.DOTALL)
    page = read("docs/evidence/study.md").partition("| mean over corpora")[2]
    names = re.findall(r"`(\w+)`", page.splitlines()[0])
    measured = [re.findall(r" (\.\d+)", line) for line in page.splitlines()[2:4]]
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) % \| (\d+) % \|$", text, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\|.*\d", text, re.MULTILINE)) == len(names)
    for name, *figures in rows:
        place = names.index(name)
        assert [float(one) / 100 for one in figures] == pytest.approx(
            [float(row[place]) for row in measured]
        )
    worst = _worst()
    alike = max(max(cells[0]) for name, cells in worst.items() if "attempts" in name)
    larger, groups = (max(worst[f"half in {name}"][0]) for name in ("larger tasks", "templates"))
    assert max(max(cells[0]) for cells in worst.values()) == larger
    shares = {f"{100 * share:.0f} %" for share in (alike, larger, groups)}
    assert shares <= set(re.findall(r"\d+ %", text))


def test_python_of_readme_runs_and_agrees_with_the_command() -> None:
    import pandas as pd

    table = pd.read_csv(REPOSITORY / "docs/examples/scores.csv")
    names = {"scores": "score", "outcomes": "outcome", "tasks": "task_id"}
    given = {"table": table} | {name: table[column].to_numpy() for name, column in names.items()}
    (code,) = re.findall(r"^```python\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
    exec(code, given)
    assert f"{100 * given['both'].decided:.1f} % of runs are decided" in read("README.md")


@pytest.mark.statistics
def test_worst_designs_give_the_figures_of_the_page() -> None:
    script = benchmark("validity")
    worst = _worst()
    assert set(worst) == set(script.WORST)
    asked = argparse.Namespace(
        design=list(worst), rule=["pseudo_task"], tasks=[20, 50], trials=300, alpha=0.1, pool=200
    )
    for line in list(script.violations(asked))[2:]:
        name, tasks, share = re.match(r"(.+?) +(\d+) +([\d.]+)", line).groups()  # type: ignore[union-attr]
        assert float(share) == worst[name][0][asked.tasks.index(int(tasks))], line
