"""Corpora declared in YAML, loaded as Dagster loads a project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.components import Corpora, with_declared
from certify_assets.errors import InputError
from certify_assets_tests.paths import REPOSITORY

_YAML = "type: certify_assets.components.Corpora\nattributes:\n  corpora:\n    - name: mine\n      paths: [runs]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty package of definitions, in the place of the package's own."""
    import certify_assets.defs

    path = tmp_path / "project" / "package" / "defs"
    path.mkdir(parents=True)
    (path / "__init__.py").touch()
    monkeypatch.setattr(certify_assets.defs, "__file__", str(path / "__init__.py"))
    return path


def _declare(folder: Path, text: str, name: str = "my_corpora") -> None:
    (folder / name).mkdir()
    (folder / name / "defs.yaml").write_text(text, encoding="utf-8")


def test_without_yaml_nothing_is_added(folder: Path) -> None:
    definitions = dg.Definitions()
    assert with_declared(definitions, folder) is definitions


def test_a_declaration_is_a_sensor_with_paths_from_its_own_file(folder: Path) -> None:
    _declare(folder, _YAML + "      seed: 7\n      rl: false\n")
    made = with_declared(dg.Definitions(), folder)
    (sensor,) = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition) and sensor.name == "declared_my_corpora"
    assert (
        sensor.default_status == dg.DefaultSensorStatus.RUNNING
        and sensor.job_name == "onboard_corpus"
    )
    component = Corpora.from_attributes_dict(
        attributes={"corpora": [{"name": "mine", "paths": ["runs"], "seed": 7, "rl": False}]}
    )
    config = component.corpora[0].config(folder / "my_corpora")
    assert (
        config.paths == (str(folder / "my_corpora" / "runs"),)
        and config.seed == 7
        and not config.rl
    )
    assert not list(folder.rglob("runs")) and not list(folder.rglob("corpus.json"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (_YAML.replace("mine", "9 bad"), "'9 bad' cannot name a corpus"),
        (_YAML.replace("mine", "miniwob_mixed"), "comes with the package"),
        (_YAML + "      format: nope\n", "there is no format 'nope'"),
        (_YAML + "      profile: nope\n", "there is no split profile 'nope'"),
        (_YAML + "      seed: -1\n", "seed is -1"),
        (_YAML + "      options: {nope: 1}\n", "has no option 'nope'"),
        (_YAML.replace("paths", "path"), "corpora.0.paths: Field required"),
        (_YAML + "    - name: mine\n      paths: [more]\n", "'mine' is declared twice"),
        (_YAML.replace("[runs]", "["), "while parsing a flow"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_a_sentence_that_names_its_file(
    folder: Path, text: str, sentence: str
) -> None:
    _declare(folder, text)
    with pytest.raises(InputError) as error:
        with_declared(dg.Definitions(), folder)
    assert (
        sentence in str(error.value)
        and str(error.value).startswith("my_corpora/defs.yaml")
        and "\n" not in str(error.value)
    )


def test_one_corpus_in_two_files_is_refused(folder: Path) -> None:
    _declare(folder, _YAML)
    _declare(folder, _YAML, name="others")
    with pytest.raises(InputError, match="'mine' is declared twice"):
        with_declared(dg.Definitions(), folder)


@pytest.mark.slow
def test_dg_scaffolds_lists_and_checks_a_declaration(tmp_path: Path) -> None:
    for name in ("certify_assets", "pyproject.toml"):
        source = REPOSITORY / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "VIRTUAL_ENV": sys.prefix,
        "DAGSTER_HOME": "",
    }

    def dg_command(*arguments: str) -> str:
        command = [str(Path(sys.prefix) / "bin" / "dg"), *arguments]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "certify_assets.components.Corpora" in dg_command("list", "components", "--json")
    dg_command("scaffold", "defs", "certify_assets.components.Corpora", "my_corpora")
    assert (tmp_path / "certify_assets/defs/my_corpora/defs.yaml").is_file()
    dg_command("check", "yaml")
    dg_command("check", "defs")
    assert "declared_my_corpora" in dg_command("list", "defs", "--json")
