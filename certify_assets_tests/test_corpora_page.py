"""docs/corpora.md names every format, option, reason and suffix there is, and its example loads."""

import re
from pathlib import Path
from typing import Any

import yaml

from certify_assets.components import Corpora
from certify_assets.corpora import landing
from certify_assets.corpora.config import THRESHOLDS
from certify_assets.corpora.formats import COMMON_OPTIONS, FORMATS
from certify_assets.corpora.splits import PROFILES
from certify_assets_tests.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/corpora.md").read_text("utf-8")


def test_the_table_of_formats_is_the_registry() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (\w*) \| (\..+?) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (name, FORMATS[name].title, FORMATS[name].domain, ", ".join(FORMATS[name].suffixes))
        for name in sorted(FORMATS)
    ]


def test_every_reason_of_an_import_is_explained() -> None:
    written = set()
    for path in (REPOSITORY / "certify_assets/corpora/formats").glob("*.py"):
        written |= set(re.findall(r"\.drop\(\s*\"(\w+)\"", path.read_text("utf-8")))
    assert len(written) > 8
    assert written <= set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def test_options_unfinished_names_and_threshold_are_those_of_the_code() -> None:
    for name in (*COMMON_OPTIONS, *landing._UNFINISHED, *PROFILES):
        assert name in PAGE
    assert all(f"AUROC of {value:g}".replace("0.", ".") in PAGE for value in THRESHOLDS.values())


def test_the_example_loads() -> None:
    (example,) = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    document: dict[str, Any] = yaml.safe_load(example)
    component = Corpora.from_attributes_dict(attributes=document["attributes"])
    config = component.corpora[0].config(Path("/somewhere"))
    assert config.paths == ("/somewhere/runs", "/somewhere/more/results.tar.gz")
    assert config.domain == "web"
