"""The review server under idle connections, behind a proxy, and when it is stopped."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from certify_assets.cli.review_server import ReviewServer
from certify_assets.operations.review_session import ReviewSession
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.review_client import Client, serve, serving
from certify_assets_tests.review_builders import labels_of, session_batch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(str(tmp_path_factory.mktemp("served")))
    session_batch(made, undecided=40)
    return made


@contextmanager
def idle(port: int, many: int, sent: Sequence[bytes]) -> Iterator[list[socket.socket]]:
    """Hold that many connections that finish no request."""
    with ExitStack() as stack:
        held = []
        for turn in range(many):
            one = socket.create_connection(("127.0.0.1", port), timeout=30)
            held.append(stack.enter_context(one))
            with suppress(OSError):
                one.sendall(sent[turn % len(sent)])
            # a socket with a time limit would wait for it, whatever is asked
            one.setblocking(False)
        yield held


def test_pages_below_the_prefix_of_a_proxy(store: Store) -> None:
    server = ReviewServer(
        ReviewSession(store, "c"),
        reviewers=["Prue"],
        prefix="/judges/review",
        public="review.example.org",
    )
    with serving(server):
        link = urlsplit(server.url)
        assert (link.scheme, link.netloc, link.path) == (
            "https",
            "review.example.org",
            "/judges/review/",
        )
        client = Client(f"http://127.0.0.1:{server.server_port}/")
        # a proxy that takes the prefix off and keeps the name, and one that leaves both
        shown = {"Host": "review.example.org", "Origin": "https://review.example.org"}
        for base in ("", "/judges/review"):
            first = client.ask("GET", f"{base}/?{link.query}", headers=shown)
            assert first.status == 200
            assert first.headers["Set-Cookie"].endswith("Path=/judges/review/; Secure")
            assert 'action="name"' in first.text, "relative, so that it holds below any prefix"
            named = client.ask("POST", f"{base}/name", {"csrf": first.field("csrf")}, shown)
            assert (named.status, named.headers["Location"]) == (303, "/judges/review/")
            assert client.ask("GET", f"{base}/", headers=shown).status == 200
            assert client.ask("GET", f"{base}/none/such", headers=shown).status == 404
        assert client.ask("GET", "/", headers={"Host": "other.example.org"}).status == 403


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--root-path", "review"], "--root-path 'review' is no path"),
        (["--root-path", "/a/../b?c"], "is no path; give one like /review"),
        (["--public-host", "https://review.example.org"], "is no name of a host"),
        (["--host", "192.0.2.1"], "behind a proxy or a tunnel"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    call: Call, store: Store, tmp_path: Path, options: list[str], words: str
) -> None:
    answer = call("review", "serve", "c", *options, "--root", store.root)
    assert answer.code == 2 and words in " ".join(answer.err.split()), answer.err
