"""Corpora declared in YAML, loaded as Dagster loads a project."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.components import Corpora, with_declared
from certify_assets.defs.names import declared_naming
from certify_assets.errors import InputError
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

_YAML = (
    "type: certify_assets.components.Corpora\nattributes:\n  corpora:\n    - name: mine\n"
    "      paths: [runs]\n"
)


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
    (folder / name / "defs.yaml").write_text(text, "utf-8")


def test_without_yaml_nothing_is_added(folder: Path) -> None:
    definitions = dg.Definitions()
    assert with_declared(definitions, folder) is definitions


def test_a_declaration_is_a_sensor_with_paths_from_its_own_file(folder: Path) -> None:
    _declare(folder, _YAML + "      seed: 7\n      rl: false\n")
    made = with_declared(dg.Definitions(), folder)
    (sensor,) = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition) and sensor.name == "declared_my_corpora"
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert sensor.job_name == "onboard_corpus"
    component = Corpora.from_attributes_dict(
        attributes={"corpora": [{"name": "mine", "paths": ["runs"], "seed": 7, "rl": False}]}
    )
    config = component.corpora[0].config(folder / "my_corpora")
    assert config.paths == (str(folder / "my_corpora" / "runs"),)
    assert config.seed == 7
    assert not config.rl
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
        (_YAML + "  key_prefix: a b\n", "key_prefix: Value error, give letters"),
        (_YAML + "  owners: [nobody]\n", "owners: Value error, give a list of team:NAME"),
        # the assets of this process have none
        (_YAML + "  key_prefix: lab\n", "key_prefix is 'lab', and the assets have none"),
        (_YAML + "  owners: [team:lab]\n", "owners are ['team:lab'], and the assets have"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_a_sentence_that_names_its_file(
    folder: Path, text: str, sentence: str
) -> None:
    _declare(folder, text)
    with pytest.raises(InputError) as error:
        with_declared(dg.Definitions(), folder)
    assert sentence in str(error.value)
    assert str(error.value).startswith("my_corpora/defs.yaml")
    assert "\n" not in str(error.value)


def test_one_corpus_in_two_files_is_refused(folder: Path) -> None:
    _declare(folder, _YAML)
    _declare(folder, _YAML, name="others")
    with pytest.raises(InputError, match="'mine' is declared twice"):
        with_declared(dg.Definitions(), folder)


@pytest.mark.parametrize(
    ("attributes", "prefix", "owners"),
    [
        ("", (), ("team:evaluation",)),
        ("  key_prefix: lab/agents\n", ("lab", "agents"), ("team:evaluation",)),
        ("  key_prefix: [lab]\n  owners: [team:lab, a@b.org]\n", ("lab",), ("team:lab", "a@b.org")),
        # reported when the component is loaded
        ("  key_prefix: 'a b'\n  owners: 3\n", (), ("team:evaluation",)),
    ],
)
def test_prefix_and_owners_are_read_before_any_key_is_built(
    folder: Path, attributes: str, prefix: tuple[str, ...], owners: tuple[str, ...]
) -> None:
    assert declared_naming(folder) == ((), ("team:evaluation",))
    _declare(folder, "type: another.Component\nattributes: {key_prefix: no}\n", name="a")
    _declare(folder, _YAML + attributes, name="b")
    _declare(folder, "[", name="c")
    assert declared_naming(folder) == (prefix, owners)


_NAMED = """
import json, sys
from pathlib import Path
import dagster as dg
from certify_assets.defs.execution import execute, instance_with, run_corpus
from certify_assets.defs.names import key, stored_version
from certify_assets.definitions import defs
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs

store = Store(sys.argv[1])
register_runs(store, "mine", write_runs(Path(sys.argv[1]) / "runs.jsonl", tasks=100), rl=False)
code = run_corpus("mine", quiet=True)
graph = defs.resolve_asset_graph()
with instance_with(["mine"]) as instance:
    made = {found.to_user_string() for found in instance.all_asset_keys()}
    certificate = key("judges/lexical/certificate")
    event = instance.get_latest_materialization_event(certificate).asset_materialization
    checks = {
        check.name: instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
        for check in graph.asset_check_keys
        if check.asset_key == certificate
    }
    (run,) = instance.get_runs()
print(json.dumps({
    "code": code,
    "made": sorted(made),
    "keys": [found.to_user_string() for found in graph.get_all_asset_keys()],
    "owners": sorted({owner for node in graph.asset_nodes for owner in node.owners}),
    "same": event.tags["dagster/data_version"] == stored_version(store, certificate, "mine").value,
    "checks": sorted(name for name, records in checks.items() if records),
    "sensors": [sensor.name for sensor in defs.sensors if sensor.name.startswith("declared")],
    "jobs": {
        name: len(defs.resolve_job_def(name).asset_layer.executable_asset_keys)
        for name in defs.get_repository_def().job_names if not name.startswith("__")
    },
}))
"""


@pytest.mark.slow
def test_a_prefix_is_that_of_every_asset_and_a_job_runs_under_it(tmp_path: Path) -> None:
    from certify_assets.definitions import defs

    for name in ("certify_assets", "certify_assets_tests"):
        shutil.copytree(
            REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    declared = _YAML + "  key_prefix: lab/agents\n  owners: [team:lab]\n"
    _declare(tmp_path / "certify_assets" / "defs", declared)
    root = tmp_path / "root"
    (root / "dagster").mkdir(parents=True)
    environment = {**platform_environment(root), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _NAMED, str(root)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    plain = defs.resolve_asset_graph().get_all_asset_keys()
    assert found["code"] == 0 and found["owners"] == ["team:lab"] and found["same"]
    assert set(found["keys"]) == {f"lab/agents/{key.to_user_string()}" for key in plain}
    assert (
        {"lab/agents/judges/lexical/report", "lab/agents/corpora/comparison"}
        <= set(found["made"])
        <= set(found["keys"])
    )
    assert found["checks"] == ["agent_shift", "certified", "reproducible", "talked_to"]
    assert found["sensors"] == ["declared_my_corpora"]
    # every job selects what it selects without a prefix
    assert found["jobs"] == {
        name: len(defs.resolve_job_def(name).asset_layer.executable_asset_keys)
        for name in defs.get_repository_def().job_names
        if not name.startswith("__")
    }
    assert (root / "judges/lexical/mine/certificates.json").is_file()


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
