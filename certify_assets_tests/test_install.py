"""What pip installs: the core in an environment of its own, and the wheel outside the repository."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from certify_assets_tests.builders import score_rows
from certify_assets_tests.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "install.md").read_text("utf-8")
UNREACHED = re.compile("No matching distribution|Could not (find|fetch)|Connection|resolution")
#: without what would be imported, and taken by pip for installed, in an environment's place
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def requirements() -> dict[str, set[str]]:
    """Names of the distributions that setup.cfg asks for, by extra; "" for all installs."""
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    lists = {"": config["options"]["install_requires"], **config["options.extras_require"]}
    return {
        extra: {Requirement(line).name for line in text.split("\n") if line.strip()}
        for extra, text in lists.items()
    }


CORE = {
    "PyYAML",
    "click",
    "jinja2",
    "numpy",
    "pandas",
    "pydantic",
    "rich",
    "scipy",
    "typing_extensions",
}


def test_the_page_has_a_row_for_every_extra() -> None:
    first = re.findall(r"^\| (`.*?`) \|", PAGE, flags=re.MULTILINE)
    rows = set(re.findall(r"`(\w+)`", " ".join(first)))
    assert rows == set(requirements()) - {"", "dev"}


def test_the_core_asks_for_little_and_everything_else_is_of_an_extra() -> None:
    found = requirements()
    assert found[""] == CORE
    platform = {"dagster", "dagster-webserver", "mlflow", "great-expectations", "SQLAlchemy"}
    assert platform <= found["platform"] and {"torch", "transformers", "peft", "trl"} <= found["lm"]


def pip(*arguments: str, cwd: Path) -> None:
    """Call pip; skip where it reaches no index."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=cwd, env=CLEAN, capture_output=True, text=True, check=False)
    if done.returncode and UNREACHED.search(done.stderr):
        pytest.skip(f"pip reaches no package index here: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-2000:]


def environment(folder: Path) -> Path:
    """Make a virtual environment; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_source(tmp_path_factory.mktemp("source"))


def copy_source(folder: Path) -> Path:
    """Copy what a build reads to where it leaves nothing in the repository."""
    folder.mkdir(exist_ok=True)
    read = ("pyproject.toml", "setup.cfg", "setup.py", "constraints.txt", "README.md", "LICENSE")
    for name in read:
        shutil.copy(REPOSITORY / name, folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "certify_assets", folder / "certify_assets", ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def statistics(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the core alone, with two score tables beside it."""
    folder = tmp_path_factory.mktemp("statistics")
    python = environment(folder / "venv")
    # compiling all of scipy takes longer than the tests import
    asked = ("install", "-c", "constraints.txt", ".", "--no-compile")
    pip("--python", str(python), *asked, cwd=source)
    rows = score_rows(tasks=120, attempts=6)
    for name, part in (("cal", rows[:480]), ("later", rows[480:])):
        part.to_csv(folder / f"{name}.csv", index=False)
        part.to_json(folder / f"{name}.jsonl", orient="records", lines=True, double_precision=15)
        part.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def certify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call the installed program, in a folder without the package and without PYTHONPATH."""
    return subprocess.run(
        [folder / "venv" / "bin" / "certify", *arguments],
        cwd=folder,
        env={**CLEAN, "CERTIFY_ROOT": str(folder / "root")},
        capture_output=True,
        text=True,
        check=False,
    )


def outcome(folder: Path, *arguments: str) -> dict[str, object]:
    done = certify(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_the_core_works_alone(statistics: Path, ending: str) -> None:
    cal, later, queue = (f"{name}.{ending}" for name in ("cal", "later", "queue"))
    kept, drawn, plan = f"{ending}.json", f"draw.{ending}", f"plan-{ending}.json"
    assert outcome(statistics, "doctor", cal)["found"]
    outcome(statistics, "certificate", cal, "--alpha", "0.2", "--out", kept)
    assert outcome(statistics, "verify", kept, cal)["verified"] is True
    assert "audits" in outcome(statistics, "audit", kept, later)
    assert "exceedance" in outcome(statistics, "resample", cal, "--threshold", "0.5")
    assert "alarm" in outcome(statistics, "monitor", kept, later)
    decided = outcome(statistics, "decide", kept, later, "--queue", queue)
    assert sum(int(str(decided[name])) for name in ("reject", "release", "human")) == 240
    # a header, and a line a row
    rows = len((statistics / queue).read_text("utf-8").splitlines()) - (ending == "csv")
    assert rows == decided["human"]
    # a batch is known by its runs: another file of them allows no second draw
    if ending == "csv":
        outcome(statistics, "batch", "plan", kept, later, "--history", cal, "--out", plan)
        outcome(statistics, "batch", "draw", plan, later, "--seed", "1", "--out", drawn)
    for command in (("plan", cal), ("show", kept)):
        assert certify(statistics, *command).returncode == 0


@pytest.mark.slow
def test_the_core_is_small(statistics: Path) -> None:
    size = sum(path.lstat().st_size for path in (statistics / "venv").rglob("*"))
    assert size < 345e6, f"{size / 1e6:.0f} MB"


@pytest.mark.slow
def test_what_is_missing_is_named_by_its_extra(statistics: Path) -> None:
    outcome(statistics, "certificate", "cal.csv", "--alpha", "0.2", "--out", "shown.json")
    for arguments, package, extra in (
        ("certificate cal.parquet", "pyarrow", "parquet"),
        ("corpus list", "pyarrow", "platform"),
        ("report shown.json cal.csv", "matplotlib", "report"),
    ):
        done = certify(statistics, *arguments.split())
        said = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and f"No module named '{package}'" in said
        assert f"pip install 'certify_assets[{extra}]'" in said


@pytest.mark.slow
def test_the_wheel_has_every_file_and_works_outside_the_repository(
    source: Path, tmp_path: Path
) -> None:
    pip("wheel", "--no-deps", "-w", str(tmp_path), ".", cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        description = archive.read(metadata).decode("utf-8")
    # a package index shows the README without the repository around it
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert links and all(link.startswith(("https://", "#")) for link in links)
    package = source / "certify_assets"
    assert held == {str(path.relative_to(source)) for path in package.rglob("*") if path.is_file()}
    python = environment(tmp_path / "venv")
    pip("--python", str(python), "install", "--no-deps", str(wheel), cwd=tmp_path)
    # the platform's libraries are those of these tests; the package itself is found before theirs
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "platform.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    score_rows().to_parquet(tmp_path / "cal.parquet", index=False)
    for arguments in (
        ("certificate", "cal.parquet", "--alpha", "0.2", "--out", "certificate.json"),
        ("report", "certificate.json", "cal.parquet", "--alpha", "0.2"),
    ):
        done = certify(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "certificate.html").is_file()
    load = "import certify_assets.definitions as d; assert d.defs; print(d.__file__)"
    printed = subprocess.check_output([python, "-c", load], cwd=tmp_path, env=CLEAN, text=True)
    assert printed.startswith(str(site))
