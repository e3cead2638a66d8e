"""The review server over real sockets: entry, refusals, headers, a proxy, a stop."""

from __future__ import annotations

import base64
import hashlib
import re
import signal
import socket
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from certify_assets.cli.review_app import link_tokens
from certify_assets.cli.review_server import ReviewServer
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.batches import decisions_sha256
from certify_assets.operations.review_session import ReviewSession
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Client, Served, serve, serving
from certify_assets_tests.review_builders import labels_of, session_batch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(str(tmp_path_factory.mktemp("served")))
    session_batch(made, undecided=40)
    return made


@pytest.fixture(scope="module")
def server(store: Store) -> Iterator[Served]:
    names = ("Ann", "Blind", "Headers", "Host", "Csrf", "Somebody else", "Broken", "Early", "Seen")
    one = serve(store, *(word for name in names for word in ("--reviewer", name)))
    yield one
    one.process.send_signal(signal.SIGTERM)
    out, err = one.process.communicate(timeout=30)
    assert one.process.returncode == 0 and "every confirmed label is in" in err
    # the whole module went by: wrong tokens, broken requests and all
    assert one.token not in out + err and "Traceback" not in err


@pytest.fixture
def client(server: Served) -> Client:
    return Client(server.url, links=server.links)


def test_a_label_goes_from_the_link_to_the_journal(client: Client, store: Store) -> None:
    page = client.enter("Ann")
    assert "Did this run do what the instruction asks?" in page.text
    before = len(labels_of(store))
    answer = client.label(page, 1, comment="seen twice")
    assert (answer.status, answer.headers["Location"]) == (303, "./")
    label = labels_of(store)[-1]
    assert (label.outcome, label.reviewer, label.via, label.comment) == (
        1,
        "Ann",
        "page",
        "seen twice",
    )
    assert len(labels_of(store)) == before + 1
    after = client.ask("GET", "/")
    assert f'name="line" value="{label.number}"' in after.text and after.field("run") != page.field(
        "run"
    )
    twice = client.label(page, 0)
    assert twice.status == 409 and "with the other outcome, which counts" in twice.text
    assert (
        client.ask("POST", "/undo", {"csrf": after.field("csrf"), "line": label.number}).status
        == 303
    )
    assert client.ask("GET", "/").field("run") == page.field("run")


def test_the_page_is_blind_until_the_label_is_given(client: Client) -> None:
    page = client.enter("Blind")
    body = page.text.partition("<body>")[2]
    for word in ("reject", "release", "Score", "threshold"):
        assert word not in body, word
    assert client.label(page, 1).status == 303
    assert "The judge auto-failed it. Score " in client.ask("GET", "/").text
    visible = re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL)
    assert "agent-a" in body and "agent-a" not in visible


def test_every_answer_forbids_other_scripts_framing_and_storing(client: Client) -> None:
    def source(tag: str, text: str) -> list[str]:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = [hashlib.sha256(one.encode()).digest() for one in found]
        return [f"{tag}-src 'sha256-{base64.b64encode(one).decode()}'; " for one in digests]

    entered = client.enter("Headers")
    others = [client.ask("GET", path) for path in ("/queue", "/nothing")]
    for page in (entered, *others, Client(client.url).ask("GET", "/")):
        scripts, (style,) = source("script", page.text), source("style", page.text)
        # the page with a run alone has one, and no other runs there
        assert page.text.count("<script") == len(scripts) == (page is entered)
        assert page.headers["Content-Security-Policy"] == (
            f"default-src 'none'; {''.join(scripts)}{style}form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'"
        )
        assert page.headers["Cache-Control"] == "no-store"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "no-referrer"


def test_the_token_is_kept_in_a_strict_cookie_and_in_no_page(
    client: Client, server: Served
) -> None:
    answer = client.ask("GET", f"/?token={server.token}")
    assert (
        answer.headers["Set-Cookie"]
        == f"certify_review_{server.port}={server.token}; HttpOnly; Max-Age=34560000; Path=/; "
        "SameSite=strict"
    )
    client.enter("Ann")
    assert all(server.token not in client.ask("GET", path).text for path in ("/", "/queue"))


def test_nobody_gets_in_without_the_token(server: Served, store: Store) -> None:
    before = len(labels_of(store))
    for path in (
        "/",
        "/queue",
        "/?token=",
        "/?token=wrong",
        f"/?token={server.token[:-1]}",
        "/?token=%C3%A9",
    ):
        assert Client(server.url).ask("GET", path).status == 403, path
    stranger = Client(server.url, {f"certify_review_{server.port}": "wrong"})
    for path in ("/label", "/skip", "/undo", "/again"):
        answer = stranger.ask(
            "POST", path, {"csrf": "", "run": "x", "number": 0, "outcome": 1, "line": 1}
        )
        assert answer.status == 403 and "Open the link" in answer.text
    assert len(labels_of(store)) == before


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "127.0.0.2",
        "localhost@evil.example",
        "evil@127.0.0.1",
        "127.0.0.1/evil",
    ],
)
def test_another_host_is_refused_though_the_token_is_right(server: Served, host: str) -> None:
    client = Client(server.url, links=server.links)
    client.enter("Host")
    for path in ("/", f"/?token={server.token}"):
        answer = client.ask("GET", path, headers={"Host": host})
        assert answer.status == 400 and "Set-Cookie" not in answer.headers
    for tunnel in ("localhost:9999", "[::1]:9999"):
        assert client.ask("GET", "/", headers={"Host": tunnel}).status == 200


def test_a_form_of_another_site_writes_nothing(client: Client, store: Store) -> None:
    page = client.enter("Csrf")
    before = len(labels_of(store))
    good = {name: page.field(name) for name in ("csrf", "run", "number")} | {"outcome": "1"}
    other = Client(client.url, links=client.links)
    stolen = other.enter("Somebody else").field("csrf")
    for csrf in ("0" * 64, "é", "", stolen):
        assert client.ask("POST", "/label", {**good, "csrf": csrf}).status == 403, csrf
    assert len(labels_of(store)) == before
    assert client.ask("POST", "/label", good).status == 303


def test_a_link_labels_in_one_name_and_only_what_it_was_shown(
    client: Client, server: Served, store: Store
) -> None:
    mine = client.enter("Seen")
    other = Client(client.url, links=server.links)
    theirs = other.enter("Somebody else")
    assert theirs.field("run") != mine.field("run")
    answer = other.label(theirs, 0, run=mine.field("run"), number="0")
    assert answer.status == 409 and "not shown to Somebody else" in answer.text
    assert other.ask("GET", f"/text?run={mine.field('run')}").status == 409
    whole = client.ask("GET", f"/text?run={mine.field('run')}")
    assert whole.headers["Content-Type"].startswith("text/plain") and "INSTRUCTION" in whole.text
    # another name in the form changes nothing
    assert client.label(mine, 1, reviewer="Ann").status == 303
    assert labels_of(store)[-1].reviewer == "Seen"


def test_forms_that_are_none_are_refused(client: Client, store: Store) -> None:
    page = client.enter("Broken")
    before = len(labels_of(store))
    good = {name: page.field(name) for name in ("csrf", "run", "number")} | {"outcome": "1"}
    for change, status in (
        ({"outcome": "2"}, 400),
        ({"outcome": "\N{ARABIC-INDIC DIGIT ONE}"}, 400),
        ({"number": "-1"}, 400),
        ({"number": "9" * 5000}, 400),
        ({"number": "7"}, 409),
        ({"run": "0" * 32}, 409),
        ({"comment": "x" * 20_000}, 413),
    ):
        assert client.ask("POST", "/label", {**good, **change}).status == status, change
    assert client.ask("POST", "/undo", {"csrf": good["csrf"], "line": "x"}).status == 400
    assert client.ask("POST", "/elsewhere", good).status == 404
    assert client.ask("PUT", "/label", good).status == 405
    assert len(labels_of(store)) == before


@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: localhost\r\nContent-Length: \xb2\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"POST /label HTTP/1.0\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_without_repeating_it(
    server: Served, request_: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(request_)
        found = connection.recv(65_536)
    assert b" 400 " in found.split(b"\r\n", 1)[0] and b"GARBAGE" not in found


@contextmanager
def running(store: Store, seconds: float = 20.0) -> Iterator[ReviewServer]:
    server = ReviewServer(ReviewSession(store, "c"), reviewers=["Ann"], seconds=seconds)
    with serving(server):
        yield server


@pytest.mark.parametrize(
    "sent", [b"", b"G", b"POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_connection_that_never_ends_is_closed(store: Store, sent: bytes) -> None:
    with (
        running(store, 0.5) as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as idle,
    ):
        idle.sendall(sent)
        with suppress(ConnectionResetError):
            while idle.recv(65_536):
                pass
        # it would time out where the other end still holds the connection
        assert idle.recv(1) == b""


def test_links_are_the_same_after_a_restart(store: Store) -> None:
    first = link_tokens(store, "c", ["Ann", "Bob"])
    assert link_tokens(store, "c", ["Bob"]) == {"Bob": first["Bob"]} != {"Bob": first["Ann"]}
    assert link_tokens(store, "other", ["Ann"]) != {"Ann": first["Ann"]}
    assert stat.S_IMODE((store.scratch("review") / "key").stat().st_mode) == 0o600


def test_a_reviewer_who_is_named_twice_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match=r"'Zoe' is named twice\. Name each reviewer once"):
        ReviewServer(ReviewSession(store, "c"), reviewers=["Zoe", " Zoe "])


def test_a_label_that_cannot_be_written_is_not_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(tmp_path))
    session_batch(store)
    with running(store) as server:
        client = Client(server.links["Ann"], links=server.links)
        page = client.enter("Ann")
        with closing(sqlite3.connect(tmp_path / "certify.db")) as database:
            database.execute(
                "CREATE TRIGGER full BEFORE INSERT ON labels BEGIN "
                "SELECT RAISE(ABORT, 'disk is full'); END"
            )
            answer = client.label(page, 1)
            assert answer.status == 500 and "could not be stored" in answer.text
            database.execute("DROP TRIGGER full")
        assert client.label(page, 1).status == 303 and len(labels_of(store)) == 1
    assert "disk is full" in capsys.readouterr().err


def test_reviewers_are_told_where_a_table_was_altered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(tmp_path))
    session_batch(store)
    with running(store) as server:
        client = Client(server.links["Ann"], links=server.links)
        page = client.enter("Ann")
        assert client.label(page, 1).status == 303
        path = store.objects.path(decisions_sha256(Corpus(store, "c"), "0001"))
        whole = path.read_bytes()
        path.write_bytes(whole + b" ")
        answer = client.ask("GET", "/")
        assert answer.status == 500 and "no label is accepted" in answer.text
        assert store.root not in answer.text
        path.write_bytes(whole)
        assert client.ask("GET", "/").status == 200
    err = capsys.readouterr().err
    assert "was altered; restore it from a backup" in err and "Traceback" not in err


def test_pages_behind_a_proxy(store: Store) -> None:
    public = "https://review.example.org/judges"
    server = ReviewServer(ReviewSession(store, "c"), reviewers=["Prue"], public=public)
    with serving(server):
        home, _, token = server.links["Prue"].partition("?")
        assert home == f"{public}/"
        client = Client(f"http://127.0.0.1:{server.server_port}/")
        # the proxy takes the prefix off and keeps the name
        shown = {"Host": "review.example.org"}
        first = client.ask("GET", f"/?{token}", headers=shown)
        assert first.headers["Set-Cookie"].endswith("Path=/judges/; SameSite=strict; Secure")
        assert 'href="./"' in first.text
        page = client.ask("GET", "/", headers=shown)
        skipped = {name: page.field(name) for name in ("csrf", "run")}
        answer = client.ask("POST", "/skip", skipped, shown)
        assert (answer.status, answer.headers["Location"]) == (303, "./")
        assert client.ask("GET", "/", headers={"Host": "other.example.org"}).status == 400


@pytest.mark.slow
def test_a_stop_finishes_the_answer_that_is_on_its_way(store: Store) -> None:
    server = serve(store, "--reviewer", "Stan")
    client = Client(server.url, links=server.links)
    page = client.enter("Stan")
    before = len(labels_of(store))
    body = f"csrf={page.field('csrf')}&run={page.field('run')}&number={page.field('number')}"
    body += "&outcome=1"
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    head = (
        f"POST /label HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\nContent-Type: "
        f"application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    address = ("127.0.0.1", server.port)
    with (
        socket.create_connection(address, timeout=20) as forming,
        socket.create_connection(address, timeout=20) as nothing,
    ):
        forming.sendall((head + body[:20]).encode())
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        assert nothing.recv(10) == b"", "an idle connection is closed at once"
        forming.sendall(body[20:].encode())
        assert b" 303 " in forming.recv(1000)
    out, err = server.process.communicate(timeout=30)
    assert server.process.returncode == 0 and "every confirmed label is in" in err
    assert "Traceback" not in out + err
    assert len(labels_of(store)) == before + 1
