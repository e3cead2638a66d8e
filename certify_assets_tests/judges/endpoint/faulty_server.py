"""A real HTTP server on the loopback that answers as OpenAI's and misbehaves on demand."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from certify_assets.judges.endpoint.settings import EndpointEntry


@dataclass(frozen=True)
class Action:
    """One answer: a status and a body, or what happens instead."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    cut: bool = False
    delay: float = 0.0
    hold: threading.Event | None = None


@dataclass
class Faulty:
    """The server's view: what arrived, what was answered, how much at once."""

    answer: Callable[[dict[str, Any], int], Action]
    port: int = 0
    arrived: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    headers: set[str] = field(default_factory=set)
    about: dict[str, Action] = field(default_factory=dict)
    now: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def judge_of(url: str, **settings: Any) -> EndpointEntry:
    """The entry of a judge of judges.yaml."""
    return EndpointEntry(**{"name": "served", "url": url, "model": "m", **settings})


def chat_body(
    text: str = "", *, logs: dict[str, Any] | None = None, model: str = "m", finish: str = "stop"
) -> dict[str, Any]:
    """A chat completion with a text, or with log-probabilities at its first position."""
    choice: dict[str, Any] = {
        "message": {"role": "assistant", "content": text},
        "finish_reason": finish,
    }
    if logs is not None:
        listed = [{"token": token, "logprob": value} for token, value in logs.items()]
        choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": listed}] if listed else []}
    return {
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


def text_of(payload: dict[str, Any]) -> str:
    """The run that a request is about."""
    content: str = payload["messages"][-1]["content"]
    return content.removeprefix("RUN\n").partition("\nEND OF RUN")[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faulty: Faulty

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._reply(self.faulty.about.get(self.path, Action({"detail": "Not Found"}, status=404)))

    def do_POST(self) -> None:
        faulty = self.faulty
        raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if not self.path.endswith("/completions"):
            return self._reply(Action({"detail": "Not Found"}, status=404))
        with faulty.lock:
            faulty.arrived[raw] += 1
            faulty.times.append(time.monotonic())
            faulty.keys.append(self.headers.get("Authorization"))
            faulty.headers |= {name.lower() for name in self.headers}
            faulty.now += 1
            faulty.most = max(faulty.most, faulty.now)
            action = faulty.answer(json.loads(raw), faulty.arrived[raw])
        try:
            if action.hold is not None:
                action.hold.wait(20)
            time.sleep(action.delay)
        finally:
            with faulty.lock:
                faulty.now -= 1
                faulty.answered[raw] += action.status == 200 and action.hold is None
        return self._reply(action)

    def _reply(self, action: Action) -> None:
        data = json.dumps(action.body).encode() if action.raw is None else action.raw
        try:
            self.send_response(action.status)
            for name, value in action.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data) * (2 if action.cut else 1)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True
        if action.cut:
            self.close_connection = True


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of these tests go away in the middle on purpose."""


@contextmanager
def faulty_server(answer: Callable[[dict[str, Any], int], Action]) -> Iterator[Faulty]:
    """Serve until the block ends.

    ``answer`` gets a request and how often this very request has arrived.
    """
    faulty = Faulty(answer)
    server = _Quiet(("127.0.0.1", 0), type("Handler", (_Handler,), {"faulty": faulty}))
    faulty.port = server.server_address[1]
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
