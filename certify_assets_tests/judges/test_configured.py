"""`judges.yaml`: what is read, what is refused, and a broken judge that leaves the others."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.errors import InputError
from certify_assets.files import canonical_json
from certify_assets.judges.specs import JUDGES, judge_problems, judge_spec, judges
from certify_assets_tests.builders import UNREADABLE_YAML
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

GOOD: dict[str, Any] = {
    "name": "mine",
    "url": "http://127.0.0.1:9/v1",
    "model": "m",
    "revision": "r1",
    "asking": "logprob",
    "prices": {"prompt": 1, "completion": 2.5},
    "concurrency": 3,
    "key_variable": "MY_KEY",
}
SECRET = "sk-very-secret"


#: valid YAML of a few hundred bytes, and of 10 to the 9th power values with its aliases written out
EXPANDING = "a: &a [1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in itertools.pairwise("abcdefghiz")
)


def _write(root: Path, *entries: Any) -> str:
    root.mkdir(parents=True, exist_ok=True)
    (root / "judges.yaml").write_text(yaml.safe_dump({"judges": list(entries)}), "utf-8")
    return str(root)


def test_a_judge_is_read_and_stands_beside_those_of_the_platform(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        GOOD,
        {**GOOD, "name": "ten", "asking": "sc_10"},
    )
    assert list(judges(root)) == [*JUDGES, "mine", "ten"] and judge_problems(root) == ()
    mine = judge_spec("mine", root)
    assert mine.family == "endpoint"
    assert mine.endpoint is not None
    assert mine.endpoint.prices.completion == 2.5
    assert mine.endpoint.concurrency == 3
    assert mine.endpoint.key_variable == "MY_KEY"
    ten = judge_spec("ten", root).endpoint
    assert ten is not None
    assert (ten.mode, ten.votes) == ("vote", 10)
    assert judges(str(tmp_path / "empty")) == JUDGES


def test_only_what_the_scores_depend_on_is_in_the_hash(tmp_path: Path) -> None:
    def scored_by(**changed: Any) -> bytes:
        found = judge_spec("mine", _write(tmp_path, {**GOOD, **changed})).endpoint
        assert found is not None
        return canonical_json(found.settings())

    for same in ({"prices": {"prompt": 9}}, {"concurrency": 9}, {"key_variable": "OTHER"}):
        assert scored_by(**same) == scored_by()
    others: list[dict[str, Any]] = [
        *({}, {"revision": "r2"}, {"url": "http://127.0.0.1:8/v1"}, {"form": "completion"}),
        *({"budget_tokens": 99}, {"prompt": {"system": "Be strict."}}, {"asking": "cot"}),
        *({"asking": "sc_5"}, {"temperature": 0.5}),
    ]
    assert len({scored_by(**change) for change in others}) == 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"api_key": SECRET}, "no setting 'api_key'"),
        ({"key_variable": SECRET}, "give its name, not the key"),
        ({"asking": "guess"}, "choose logprob, cot, sc_5 or sc_10"),
        ({"concurrency": "many"}, "concurrency: input should be a valid integer"),
        ({"name": "lexical"}, "is taken"),
        ({"url": None}, "it has no url"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_and_leaves_the_others(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    root = _write(tmp_path, {**GOOD, **change}, {**GOOD, "name": "other"})
    assert "other" in judges(root)
    (problem,) = judge_problems(root)
    assert said in problem and "judges.yaml, judge" in problem and SECRET not in problem
    with pytest.raises(InputError, match=r"there is no judge 'nobody'.*judges\.yaml"):
        judge_spec("nobody", root)


@pytest.mark.parametrize(
    "text",
    [
        "judges: [",
        "judges: 3",
        "- name: x",
        "judges: &a [*a]",
        f"key: {SECRET}\njudges: [}}",
        "\x00",
        "judges: []\njudges: []",
        *(f"judges:\n- name: {value}" for value in UNREADABLE_YAML),
        "judges:\n- {name: mine, family: lexical, chars: 500, chars: 600}",
        EXPANDING + "judges: *z",
        EXPANDING + "judges:\n- {name: mine, family: *z}",
    ],
)
def test_a_broken_document_is_a_sentence_and_adds_no_judge(tmp_path: Path, text: str) -> None:
    (tmp_path / "judges.yaml").write_text(text, "utf-8")
    assert judges(str(tmp_path)) == JUDGES
    problems = judge_problems(str(tmp_path))
    assert problems and "judges.yaml" in problems[0] and SECRET not in problems[0]
    assert judge_spec("lexical", str(tmp_path)).name == "lexical"


def test_a_variable_names_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, GOOD)
    monkeypatch.setenv("CERTIFY_JUDGES", str(tmp_path / "judges.yaml"))
    assert "mine" in judges(str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CERTIFY_JUDGES", str(tmp_path / "absent.yaml"))
    assert "correct CERTIFY_JUDGES" in judge_problems()[0]


_LOAD = """
import json
import dagster as dg
from certify_assets.definitions import defs
graph = defs.resolve_asset_graph()
jobs = {job.name for job in defs.get_repository_def().get_all_jobs()}
def keys(name):
    if name not in jobs:
        return []
    made = defs.resolve_job_def(name).asset_layer.executable_asset_keys
    return sorted({key.path[1] for key in made if key.path[0] == "judges"})
model = dg.AssetKey(["judges", "mine", "model"])
comparison = graph.get(dg.AssetKey(["corpora", "comparison"]))
parents = [key.to_user_string() for key in graph.get(model).parent_keys] if graph.has(model) else []
compared = sorted(key.path[2] for key in comparison.parent_keys if key.path[1] == "mine")
names = ("onboard_corpus", "train_lm_judges", "score_endpoint_judges")
found = {name: keys(name) for name in names}
print(json.dumps(found | {"parents": parents, "compared": compared}))
"""


def _loaded(root: Path) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "-c", _LOAD]
    done = subprocess.run(
        command,
        env=platform_environment(root),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_endpoint_judges_have_a_job_of_their_own_and_run_in_no_other(tmp_path: Path) -> None:
    local = [
        {"name": "short", "family": "lexical", "chars": 2000},
        {"name": "lm", "family": "base"},
    ]
    _write(tmp_path, GOOD, {**GOOD, "name": "broken", "asking": "guess"}, *local)
    found, log = _loaded(tmp_path)
    assert found["score_endpoint_judges"] == ["mine"]
    assert found["parents"] == ["corpora/split_manifest"]
    assert found["onboard_corpus"] == ["combined", "lexical", "short"]
    assert "mine" not in found["train_lm_judges"] and "lm" in found["train_lm_judges"]
    assert found["compared"] == ["audit", "certificate"], "the comparison comes after it"
    assert "judge 'broken': asking is 'guess'" in log
