"""action.yml and docs/ci.md: their steps run as GitHub's runner runs them, in a scratch repository."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.conftest import call  # noqa: F401 - a fixture
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.test_install import CLEAN, copy_source, pip

ACTION: dict[str, Any] = yaml.safe_load((REPOSITORY / "action.yml").read_text("utf-8"))
STEPS = ACTION["runs"]["steps"]
PAGE = (REPOSITORY / "docs/ci.md").read_text("utf-8")
EXPRESSION = re.compile(r"\$\{\{\s*(\S+?)\s*\}\}")


class Done(NamedTuple):
    code: int
    outputs: dict[str, str]
    summary: str
    log: str


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with score tables, and the package installed where the action puts it."""
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    rows = score_rows(tasks=120, attempts=6)
    rows[:480].to_csv(folder / "scores.csv", index=False)
    rows[480:].to_csv(folder / "later.csv", index=False)
    programs = tmp_path / "temp" / "certify" / "bin"
    programs.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, command in (("python", python), ("certify", f"{python} -P -m certify_assets.cli")):
        lines = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))} exec {command} "$@"\n'
        (programs / name).write_text(lines, encoding="utf-8")
        (programs / name).chmod(0o755)
    return folder


def run(folder: Path, given: Mapping[str, str], *, install: Path | None = None) -> Done:
    """Run the steps of the action with inputs, as the runner does: bash -e, inputs by env."""
    inputs = {name: str(item.get("default", "")) for name, item in ACTION["inputs"].items()}
    assert set(given) <= set(inputs)
    inputs |= given
    temp = folder.parent / "temp"
    files = {name: temp / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.unlink(missing_ok=True)
        path.touch()
    known = {f"inputs.{name}": value for name, value in inputs.items()}
    known["github.action_path"] = str(install)
    code, log = 0, ""
    for step in STEPS:
        condition = re.fullmatch(r"(inputs\.\S+) != ''", step.get("if", "inputs.scores != ''"))
        assert condition is not None
        skipped = step["name"] == "Install" and install is None
        if "uses" in step or skipped or not known[condition[1]]:
            continue
        assert step["shell"] == "bash"
        script = temp / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
            cwd=folder,
            env={
                **CLEAN,
                "RUNNER_TEMP": str(temp),
                "GITHUB_ACTIONS": "true",
                **{name: str(path) for name, path in files.items()},
                **{
                    name: EXPRESSION.sub(lambda found: known[found[1]], value)
                    for name, value in step["env"].items()
                },
            },
            capture_output=True,
            text=True,
            check=False,
        )
        code, log = done.returncode, log + done.stdout + done.stderr
        if code:
            break
    lines = files["GITHUB_OUTPUT"].read_text("utf-8").splitlines()
    outputs = dict(line.split("=", 1) for line in lines)
    return Done(code, outputs, files["GITHUB_STEP_SUMMARY"].read_text("utf-8"), log)


def test_no_script_holds_an_expression() -> None:
    for step in STEPS:
        assert ("${{" not in step.get("run", "") and "env" in step) or "uses" in step
    used = {name for step in STEPS for name in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert used == set(ACTION["inputs"])
    for name, item in ACTION["outputs"].items():
        assert item["value"] == f"${{{{ steps.certify.outputs.{name} }}}}"


def test_the_recipe_passes_and_fails(repository: Path) -> None:
    (workflow,) = [yaml.safe_load(text) for text in blocks("yaml") if "OWNER/" in text]
    (step,) = [item for item in workflow["jobs"]["certify"]["steps"] if item.get("id") == "gate"]
    recipe = {name: str(value) for name, value in step["with"].items()}
    first = run(repository, {"scores": "scores.csv", "out": recipe["certificate"]})
    assert first.code == 0 and first.outputs["certified"] == "true"
    passed = run(repository, recipe)
    assert passed.code == 0 and 0.3 < float(passed.outputs["coverage"]) < 1, passed.log
    assert "::notice title=certify verify::Verified" in passed.log
    assert passed.summary.count("### certify") == 2
    assert (repository / "new_certificate.json").is_file()
    closed = run(repository, {"scores": "scores.csv", "min-coverage": ".99", "out": "other.json"})
    assert closed.code == 3 and closed.outputs == passed.outputs
    assert "::error title=certify certificate::96.5 %25 of runs are decided" in closed.log
    stale = run(repository, {**recipe, "scores": "later.csv", "out": "third.json"})
    assert stale.code == 3 and stale.outputs == {} and not (repository / "third.json").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"scores": "$(touch injected).csv"},
        {"scores": "scores.csv", "alpha": "0.1; touch injected", "side": "`touch injected`"},
        {"scores": "scores.csv", "certificate": '"; touch injected; "'},
        {"scores": "--help", "min-coverage": "0.1 --out injected"},
    ],
)
def test_inputs_are_no_commands(repository: Path, given: dict[str, str]) -> None:
    done = run(repository, given)
    assert done.code == 2 and "certify: " in done.log and "Traceback" not in done.log
    left = {path.name for path in repository.iterdir()} - {".git"}
    assert left == {"scores.csv", "later.csv"}


def test_no_file_of_the_checkout_is_run_or_answers(repository: Path) -> None:
    for name in ("json.py", "os.py", "pathlib.py", "venv.py", "pip.py", "sitecustomize.py"):
        (repository / name).write_text("raise SystemExit('a file of the checkout ran')\n", "utf-8")
    pythons = re.findall(r'python"? +(\S+)', "\n".join(step.get("run", "") for step in STEPS))
    assert pythons == ["-I"] * 3
    done = run(repository, {"scores": "scores.csv"})
    assert done.code == 0 and done.outputs["certified"] == "true", done.log
    assert "of the checkout ran" not in done.log
    (repository / "linked.json").symlink_to(repository / "elsewhere.json")
    linked = run(repository, {"scores": "scores.csv", "out": "linked.json"})
    assert linked.code == 2 and not (repository / "elsewhere.json").exists()


@pytest.mark.slow
def test_the_action_installs_itself(repository: Path, tmp_path: Path) -> None:
    shutil.rmtree(repository.parent / "temp" / "certify")
    source = copy_source(tmp_path / "action")
    pip("download", "--quiet", "--no-deps", "click", cwd=tmp_path)
    done = run(repository, {"scores": "scores.csv", "min-coverage": ".1"}, install=source)
    assert done.code == 0 and done.outputs["certified"] == "true", done.log


def test_the_lines_of_the_page_run(
    call: Call,  # noqa: F811
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(repository)
    lines = "".join(blocks("sh")).splitlines()
    (gitlab,) = [yaml.safe_load(text) for text in blocks("yaml") if "script:" in text]
    lines += [line for line in gitlab["certify"]["script"] if line.startswith("certify")]
    assert len(lines) == 5
    for line in lines:
        words = shlex.split(line.partition("#")[0].partition(">")[0])
        assert call(*words[1:]).code == 0, line
    for path in gitlab["certify"]["artifacts"]["paths"]:
        assert (repository / path).is_file()
    for name in [*ACTION["inputs"], *ACTION["outputs"]]:
        assert f"`{name}`" in PAGE
