"""Corpora declared in YAML, loaded as Dagster loads a project."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import (
    DefinitionsLoadContext,
    DefinitionsLoadType,
)
from dagster._core.definitions.repository_definition import RepositoryLoadData

from certify_assets.components import Corpora, with_declared
from certify_assets.defs import setup
from certify_assets.defs.setup import declared_setup
from certify_assets.errors import InputError
from certify_assets_tests.builders import write_runs
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
        attributes={
            "corpora": [
                {
                    "name": "mine",
                    "paths": ["runs", "/data/runs", "s3://bucket/runs"],
                    "seed": 7,
                    "rl": False,
                }
            ]
        }
    )
    config = component.corpora[0].config(folder / "my_corpora")
    assert config.paths == (
        str(folder / "my_corpora" / "runs"),
        "/data/runs",
        "s3://bucket/runs",
    )
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
        (_YAML + "  judges: [lexical]\n", "judges are ['lexical'], and the assets have none"),
        (_YAML + "  judges: lexical\n", "judges: Input should be a valid list"),
        (_YAML + "      seed: many\n", "seed: Input should be a valid integer"),
        (_YAML + "      seeds: 4\n", "corpora.0.seeds: Extra inputs are not permitted"),
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
    ("attributes", "expected"),
    [
        ("", ((), ("team:evaluation",), None)),
        ("  key_prefix: lab/agents\n", (("lab", "agents"), ("team:evaluation",), None)),
        (
            "  key_prefix: [lab]\n  owners: [team:lab, a@b.org]\n",
            (("lab",), ("team:lab", "a@b.org"), None),
        ),
        ("  judges: [lexical, sft]\n", ((), ("team:evaluation",), ("lexical", "sft"))),
        # reported when the component is loaded
        ("  key_prefix: 'a b'\n  owners: 3\n  judges: []\n", ((), ("team:evaluation",), None)),
    ],
)
def test_the_setup_is_read_before_any_key_is_built(
    folder: Path, attributes: str, expected: tuple[object, ...]
) -> None:
    assert declared_setup(folder) == ((), ("team:evaluation",), None)
    _declare(folder, "type: another.Component\nattributes: {key_prefix: no}\n", name="a")
    _declare(folder, _YAML + attributes, name="b")
    _declare(folder, "[", name="c")
    assert declared_setup(folder) == expected


def test_what_needs_judges_without_assets_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from certify_assets.defs.execution import require_shown
    from certify_assets.defs.research.study import run_study

    monkeypatch.setenv("CERTIFY_ROOT", str(tmp_path))
    monkeypatch.setattr(setup, "_settled", [setup.Setup(judges=("lexical",))])
    require_shown(["lexical"])
    with pytest.raises(InputError, match=r"lexical alone, and .*combined.* take judges out"):
        run_study([], profile="quick")


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


def test_the_processes_of_a_run_get_the_judges_that_the_code_location_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERTIFY_ROOT", str(tmp_path))
    (tmp_path / "judges.yaml").write_text("judges: [{name: short, family: lexical}]\n", "utf-8")
    setup.judges_document.cache_clear()
    try:
        assert "short" in setup.judges()
        kept = setup.snapshot()
        # changed, or out of reach, since
        (tmp_path / "judges.yaml").unlink()
        setup.judges_document.cache_clear()
        again = DefinitionsLoadContext(
            DefinitionsLoadType.RECONSTRUCTION, RepositoryLoadData({}, reconstruction_metadata=kept)
        )
        with DefinitionsLoadContext.scoped(again):
            assert "short" in setup.judges()
        setup.judges_document.cache_clear()
        assert "short" not in setup.judges()
    finally:
        setup.judges_document.cache_clear()


_PROJECT = {
    "pyproject.toml": """\
[project]
name = "lab"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "lab"
registry_modules = ["lab.components.*"]
""",
    "src/lab/__init__.py": "",
    "src/lab/components/__init__.py": "",
    "src/lab/defs/__init__.py": "",
    "src/lab/definitions.py": """\
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    # what else the project has
    "src/lab/defs/weather.py": "import dagster as dg\n\n\n@dg.asset\ndef weather(): ...\n",
    "src/lab/defs/others/defs.yaml": _YAML.replace("mine", "theirs"),
}
# what is made there of the file that `dg scaffold` writes
_LAB = (
    _YAML
    + '      rl: false\n  key_prefix: "{{ env.LAB_PREFIX }}"\n  owners: [team:lab]\n'
    + "  judges: [lexical]\n"
)
_SENSE = """
import json
import dagster as dg
from lab.definitions import defs as lazy
from certify_assets.defs.resources import DataRoot
defs = lazy()
(sensor,) = [found for found in defs.sensors if found.name == "declared_agents"]
with dg.DagsterInstance.get() as instance, dg.build_sensor_context(instance=instance) as context:
    result = sensor(context, data_root=DataRoot())
    for request in result.dynamic_partitions_requests:
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
print(json.dumps([request.partition_key for request in result.run_requests]))
"""


@pytest.mark.slow
def test_a_project_of_somebody_else_certifies_its_corpus_by_the_component(tmp_path: Path) -> None:
    project, root = tmp_path / "project", tmp_path / "root"
    for name, text in _PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, "utf-8")
    (root / "dagster").mkdir(parents=True)
    environment = {
        **platform_environment(root),
        "PYTHONPATH": os.pathsep.join([str(project / "src"), str(REPOSITORY)]),
        "PYTHONWARNINGS": "ignore",
        "VIRTUAL_ENV": sys.prefix,
        "LAB_PREFIX": "lab",
    }

    def call(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(Path(sys.prefix) / "bin" / program), *arguments],
            env=environment,
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("dg", "scaffold", "defs", "certify_assets.components.Corpora", "agents")
    declared = project / "src/lab/defs/agents/defs.yaml"
    assert "- name: my_corpus\n" in declared.read_text("utf-8")
    declared.write_text(_LAB, "utf-8")
    runs = declared.parent / "runs/runs.jsonl"
    runs.parent.mkdir()
    write_runs(runs, tasks=100)
    os.utime(runs, (1, 1))
    call("dg", "check", "defs")
    listed = json.loads(call("dg", "list", "defs", "--json"))
    assets = {found["asset_key"]: found for found in listed["assets"]}
    ours = {name for name in assets if name.startswith("lab/")}
    assert set(assets) - ours == {"weather"}
    assert {name.split("/")[2] for name in ours if name.startswith("lab/judges/")} == {"lexical"}
    assert all(assets[name]["owners"] == [{"team": "lab"}] for name in ours)
    assert "lab/corpora/trajectories:schema" in {found["key"] for found in listed["asset_checks"]}
    named = {
        kind: {found["name"] for found in listed[kind]}
        for kind in ("jobs", "schedules", "sensors", "resources")
    }
    assert named["jobs"] == {
        "onboard_corpus",
        "decide_inbox",
        "recertify_deployed",
        "refresh_all_certificates",
    }
    assert named["schedules"] == {"weekly_recertification"}
    assert {"declared_agents", "declared_others", "new_inbox"} <= named["sensors"]
    assert named["resources"] == {"data_root", "mlflow"}
    # the sensor registers the corpus, and its job is what it asks for
    assert json.loads(call("python", "-c", _SENSE).splitlines()[-1]) == ["mine"]
    one_process = json.dumps({"execution": {"config": {"in_process": {}}}})
    call(
        "dg",
        "launch",
        "--job",
        "onboard_corpus",
        "--partition",
        "mine",
        "--config-json",
        one_process,
    )
    certificates = json.loads((root / "judges/lexical/mine/certificates.json").read_text("utf-8"))
    assert certificates["certificates"]
    assert (root / "judges/lexical/mine/page.html").is_file()
    # a field that there is not, by its name
    declared.write_text(declared.read_text("utf-8").replace("rl:", "rlx:"), "utf-8")
    with pytest.raises(AssertionError, match=r"attributes\.corpora\.0\.rlx.*'rlx' was unexpected"):
        # by its folder: of several files with one component, dg reads the last alone
        call("dg", "check", "yaml", "src/lab/defs/agents")


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
    listed = json.loads(dg_command("list", "defs", "--json"))
    assert "declared_my_corpora" in {found["name"] for found in listed["sensors"]}
    # what a newcomer sees at first
    assert 12 <= len(listed["assets"]) <= 40
