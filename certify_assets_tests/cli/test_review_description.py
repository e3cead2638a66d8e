"""The review server against its own description, by schemathesis."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from certify_assets.cli.review_app import ReviewApp, ReviewLimits, Site
from certify_assets.cli.review_links import Links
from certify_assets.cli.review_server import ReviewServer
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import read_labels
from certify_assets.operations.review_session import ReviewSession
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Client, Page, serving
from certify_assets_tests.review_builders import session_batch

_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance"
)
# a method that no page has is answered with 501, which the tool takes for a failure of the server
_SETTINGS = "[phases.coverage]\nunexpected-methods = []\n"


def _described() -> Any:
    text = files("certify_assets").joinpath("schemas/review.json").read_text("utf-8")
    return json.loads(text)


@pytest.fixture
def session(tmp_path: Path) -> ReviewSession:
    store = Store(str(tmp_path / "root"))
    session_batch(store, undecided=40)
    return ReviewSession(store, "c")


def test_the_description_names_every_page_and_form(session: ReviewSession) -> None:
    site = Site(frozenset({"localhost"}), "token")
    served: dict[str, set[str]] = {}
    for route in ReviewApp(session, Links([]), site, ReviewLimits()).pages.routes:
        assert isinstance(route, Route)
        served.setdefault(route.path, set()).update(route.methods or ())
    described = {
        path: {name.upper() for name in item} for path, item in _described()["paths"].items()
    }
    assert described == {path: methods - {"HEAD"} for path, methods in served.items()}


def _filled(page: Page, asked: Page) -> Any:
    """Return the description with the hidden fields of one's pages, so that forms are taken."""
    made = _described()
    for path, item in made["paths"].items():
        if "post" not in item:
            continue
        body = item["post"]["requestBody"]["content"]["application/x-www-form-urlencoded"]
        fields = body["schema"]["properties"]
        fields["csrf"] = {"const": (asked if path == "/name" else page).field("csrf")}
        for name in {"run", "number"} & fields.keys():
            fields[name] = {"anyOf": [{"const": page.field(name)}, fields[name]]}
    return made


@pytest.mark.slow
@pytest.mark.parametrize("entered", [True, False])
def test_schemathesis_finds_nothing_that_the_description_does_not_say(
    session: ReviewSession, tmp_path: Path, entered: bool
) -> None:
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("schemathesis is not installed; `make services` installs it")
    (tmp_path / "schemathesis.toml").write_text(_SETTINGS, "utf-8")
    server = ReviewServer(session, reviewers=["Ann"])
    with serving(server):
        client = Client(server.url, links=server.links)
        page = client.enter("Ann")
        (tmp_path / "review.json").write_text(
            json.dumps(_filled(page, client.ask("GET", "/name"))), "utf-8"
        )
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        command = [
            *(tool, "--config-file", "schemathesis.toml", "run", "review.json"),
            *("--url", f"http://127.0.0.1:{server.server_port}", "--max-redirects", "0"),
            *("--phases", "examples,coverage,fuzzing", "--checks", _CHECKS),
            *("--max-examples", "100" if entered else "10", "--seed", "20261123"),
            *(("--header", f"Cookie: {cookies}") if entered else ()),
        ]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout[-5000:]
        tried = re.search(r"(\d+) generated", done.stdout)
        assert tried is not None and int(tried[1]) > (500 if entered else 50), done.stdout[-2000:]
        print(f"{tried[1]} requests, {'with' if entered else 'without'} a link: no failure")
        # the server goes on
        assert client.ask("GET", "/").status == 200
    # and its journal holds labels of the one run whose form was filled in, by its reviewer
    labels = read_labels(Corpus(session.store, "c"))
    assert len({(item.trajectory_id, item.reviewer) for item in labels}) == int(entered)
