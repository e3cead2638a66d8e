"""Corpora declared in YAML, loaded as Dagster loads a project."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from certify_assets.components import Corpora
from certify_assets.components.corpora import one_project, refuse_repeated
from certify_assets.errors import InputError
from certify_assets_tests.builders import write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

_YAML = (
    "type: certify_assets.components.Corpora\nattributes:\n  corpora:\n    - name: mine\n"
    "      paths: [runs]\n"
)


def declared(text: str) -> Corpora:
    return Corpora.from_attributes_dict(attributes=yaml.safe_load(text)["attributes"])


def test_paths_are_relative_to_the_file_absolute_or_urls(tmp_path: Path) -> None:
    text = _YAML.replace("[runs]", "[runs, /data/runs, 's3://bucket/runs']") + "      rl: false\n"
    config = declared(text).corpora[0].config(tmp_path)
    assert config.paths == (str(tmp_path / "runs"), "/data/runs", "s3://bucket/runs")
    assert not config.rl and not list(tmp_path.iterdir())


def test_the_example_of_the_documentation_loads() -> None:
    page = (REPOSITORY / "docs/corpora.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    config = declared(example).corpora[0].config(Path("/somewhere"))
    assert config.paths == ("/somewhere/runs", "/somewhere/more/results.tar.gz")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (_YAML.replace("mine", "9 bad"), "name of corpus.json is '9 bad'"),
        (_YAML.replace("mine", "miniwob_mixed"), "comes with the package"),
        (_YAML + "      format: nope\n", "there is no format 'nope'"),
        (
            _YAML + "      profile: nope\n",
            "profile of corpus.json is 'nope': Input should be 'certify', ",
        ),
        (_YAML + "      seed: -1\n", "is -1"),
        (_YAML + "      options: {nope: 1}\n", "has no option 'nope'"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        for corpus in declared(text).corpora:
            corpus.config(Path())
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_files_of_one_project_agree_on_its_prefix_and_judges() -> None:
    one, other = declared(_YAML + "  key_prefix: lab\n"), declared(_YAML + "  judges: [grpo]\n")
    found = one_project([one, other])
    # with what it starts from
    assert found.prefix == ("lab",) and set(found.judges) == {"base", "sft", "grpo"}
    with pytest.raises(InputError, match="key_prefix is lab in one file and web in another"):
        one_project([one, declared(_YAML + "  key_prefix: web\n")])
    with pytest.raises(InputError, match="there is no judge 'nobody'"):
        one_project([declared(_YAML + "  judges: [nobody]\n")])
    with pytest.raises(InputError, match="'mine' is declared twice"):
        refuse_repeated(["mine", "other", "mine"])


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
_LAB = _YAML + '      rl: false\n  key_prefix: "{{ env.LAB_PREFIX }}"\n' + "  judges: [lexical]\n"
_SENSE = """
import json
import dagster as dg
from lab.definitions import defs as lazy
from certify_assets.defs.resources import DataRoot
defs = lazy()
(sensor,) = [found for found in defs.sensors if found.name == "declared_agents"]
with dg.DagsterInstance.get() as instance, dg.build_sensor_context(
    instance=instance, resources={"data_root": DataRoot()}
) as context:
    result = sensor(context)
    for request in result.dynamic_partitions_requests:
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
print(json.dumps([request.partition_key for request in result.run_requests]))
"""


@pytest.mark.slow
@pytest.mark.smoke
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
    checks = {found["key"] for found in listed["asset_checks"]}
    assert "lab/corpora/trajectories:data_quality" in checks
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
    certificates = json.loads(
        (root / "pages/judges/lexical/mine/certificates.json").read_text("utf-8")
    )
    assert certificates["certificates"]
    assert (root / "pages/judges/lexical/mine/page.html").is_file()
    # a field that there is not, by its name
    declared.write_text(declared.read_text("utf-8").replace("rl:", "rlx:"), "utf-8")
    with pytest.raises(AssertionError, match=r"attributes\.corpora\.0\.rlx.*'rlx' was unexpected"):
        # by its folder: of several files with one component, dg reads the last alone
        call("dg", "check", "yaml", "src/lab/defs/agents")
    declared.write_text(_YAML + "      profile: certfy\n      judge: nobody\n", "utf-8")
    with pytest.raises(AssertionError, match=r"(?s)profile 'certfy' is not one of.*judge 'nobody'"):
        call("dg", "check", "yaml", "src/lab/defs/agents")
    with pytest.raises(AssertionError, match="DagsterInvalidDefinitionError: profile of corpus"):
        call("dg", "check", "defs", "--no-check-yaml")
