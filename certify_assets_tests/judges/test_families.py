"""A family is one module: one made up here is certified, and a broken one ends no other command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.doc_commands import recipe

#: a whole family
BAYES = recipe("certify_assets/judges/families/bayes.py")

# the folder of other families comes first, then the words of the command
_CERTIFY = """
import sys
from certify_assets.judges import families
families.__path__.insert(0, sys.argv[1])
from certify_assets.cli.main import main
main(sys.argv[2:])
"""


def certify(folder: Path, store: Store, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CERTIFY, str(folder), *words],
        env=platform_environment(Path(store.root)),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_new_family_is_one_file_and_is_certified_by_commands(
    corpora: Store, tmp_path: Path
) -> None:
    (tmp_path / "bayes.py").write_text(BAYES, "utf-8")
    done = certify(tmp_path, corpora, "run", "one", "--judge", "bayes")
    assert done.returncode == 0, done.stderr
    listed = json.loads(certify(tmp_path, corpora, "judge", "list", "--json").stdout)
    assert listed["problems"] == [] and listed["judges"][-1]["judge"] == "bayes"
    trained = certify(tmp_path, corpora, "judge", "train", "two", "--judge", "bayes", "--json")
    record = json.loads(trained.stdout)
    assert record["sft_tasks"] > 0 and record["schema"] == "certify_assets/judge/1"
    scored = certify(tmp_path, corpora, "judge", "score", "two", "--judge", "bayes", "--json")
    assert json.loads(scored.stdout)["auroc"] > 0.7
    key = judged(corpora, "one", "bayes").key("certificates.json")
    assert any(item["coverage"] > 0 for item in corpora.read_json(key)["certificates"])


BROKEN = "raise RuntimeError('a wheel came off')"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["broken", "lexical"])
def test_a_broken_family_is_named_and_ends_nothing_else(
    name: str, corpora: Store, tmp_path: Path
) -> None:
    (tmp_path / f"{name}.py").write_text(BROKEN, "utf-8")
    listed = certify(tmp_path, corpora, "judge", "list", "--json")
    found = json.loads(listed.stdout)
    said = (
        f"the judge family {name} is missing, because its module cannot be imported (RuntimeError"
    )
    assert listed.returncode == 2 and any(one.startswith(said) for one in found["problems"])
    known = {judge["judge"] for judge in found["judges"]}
    assert {"base", "transfer"} <= known and ("lexical" in known) == (name == "broken")
    assert certify(tmp_path, corpora, "corpus", "show", "one").returncode == 0
    trained = certify(tmp_path, corpora, "judge", "train", "three", "--judge", "lexical")
    if name == "broken":
        assert trained.returncode == 0 and "SFT tasks" in trained.stdout
    else:
        assert trained.returncode == 2 and said in trained.stderr
        base = certify(tmp_path, corpora, "judge", "train", "three", "--judge", "base")
        assert base.returncode == 0, base.stderr
