"""Accounts of reviewers: links in a file, and names from a proxy that is trusted."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from certify_assets.cli.review_links import Links, ProxyAccounts
from certify_assets.cli.review_server import ReviewServer
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.labels import read_labels
from certify_assets.operations.review_session import ReviewSession
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Client, serving
from certify_assets_tests.review_builders import session_batch


def test_links_of_a_file_are_the_same_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    first = Links(["Ann"], file=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and first.lasting
    more = Links(["Bob", "Ann"], file=file)
    assert more.tokens["Ann"] == first.tokens["Ann"] != more.tokens["Bob"]
    assert Links([], file=file).tokens == more.tokens
    # whom the command does not name is kept in the file and not let in
    bob = Links(["Bob"], file=file)
    assert bob.known(first.tokens["Ann"]) is None
    assert Links([], file=file).tokens == more.tokens


def test_a_folder_keeps_no_links(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file, so it cannot keep links"):
        Links([], file=tmp_path)


@pytest.mark.parametrize("address", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"])
def test_every_writing_of_an_address_is_that_of_the_connection(address: str) -> None:
    proxy = ProxyAccounts.declared("X-Remote-User", (address,))
    assert proxy is not None and proxy.addresses == {"::1"}


def test_a_link_without_a_name_belongs_to_who_uses_it_first(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    links = Links([], file=file)
    token = links.tokens[""]
    assert Links([], file=file).tokens == {"": token}
    assert links.bind(token, "Ann") and not links.bind(token, "Bob")
    assert Links([], file=file).tokens == {"Ann": token}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tokens": []}',
        '{"tokens": {"Ann": "short"}}',
        '{"tokens": {"Ann": 1}}',
        json.dumps({"tokens": {"Ann": "t" * 43, "Bob": "t" * 43}}),
    ],
)
def test_files_that_are_none_or_open_to_others_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "links.json"
    file.write_text(text, "utf-8")
    with pytest.raises(InputError, match="can be read by others"):
        Links([], file=file)
    file.chmod(0o600)
    with pytest.raises(InputError, match="is no file of review links"):
        Links([], file=file)


@pytest.mark.parametrize(
    ("header", "addresses", "words"),
    [
        ("X-Remote-User", (), "belong together"),
        ("", ("127.0.0.1",), "belong together"),
        ("X Remote", ("127.0.0.1",), "is no header"),
        ("X-Remote-User", ("proxy.example",), "is no IP address"),
    ],
)
def test_a_header_is_believed_of_a_declared_proxy_alone(
    header: str, addresses: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        ProxyAccounts.declared(header, addresses)
    assert ProxyAccounts.declared("", ()) is None


@contextmanager
def behind(store: Store, address: str) -> Iterator[ReviewServer]:
    proxy = ProxyAccounts.declared("X-Remote-User", (address,))
    server = ReviewServer(ReviewSession(store, "c"), proxy=proxy)
    with serving(server):
        yield server


def test_a_trusted_proxy_names_the_reviewer_of_every_request(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    session_batch(store)
    with behind(store, "127.0.0.1") as server:
        assert server.links == {} and "token" not in server.url
        client = Client(server.url)
        ann, bob = (
            {"X-Remote-User": name} for name in ("Ann", "Jürgen".encode().decode("latin-1"))
        )
        page = client.ask("GET", "/", headers=ann)
        assert "You are Ann" in page.text and "Not Ann?" not in page.text
        assert "You are Jürgen" in client.ask("GET", "/", headers=bob).text
        form = {name: page.field(name) for name in ("csrf", "run", "number")} | {"outcome": "1"}
        # another's form, no name, an empty one, a link's cookie: nothing is written
        assert client.ask("POST", "/label", form, bob).status == 403
        for headers in ({}, {"X-Remote-User": ""}, {"Cookie": "certify_reviewer=Ann"}):
            refused = client.ask("POST", "/label", form, headers)
            assert refused.status == 403 and "Log in to the proxy" in refused.text
        assert client.ask("GET", "/?token=x", headers=ann).status == 403
        assert read_labels(Corpus(store, "c")) == []
        assert client.ask("POST", "/label", form, ann).status == 303
    assert [label.reviewer for label in read_labels(Corpus(store, "c"))] == ["Ann"]


def test_the_header_of_any_other_address_is_refused(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    session_batch(store)
    with behind(store, "192.0.2.7") as server:
        refused = Client(server.url).ask("GET", "/", headers={"X-Remote-User": "Ann"})
        assert refused.status == 403 and "You are" not in refused.text
