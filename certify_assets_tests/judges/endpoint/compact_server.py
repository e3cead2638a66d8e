"""The compact model behind HTTP, as vLLM serves one: `python -m …compact_server PORT`.

It answers `/v1/completions` with the log-probabilities of the next token that the model really
gives, so that two readings of the same weights can be compared. A server of its own where
vLLM, which takes minutes to start, would be too much.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from certify_assets.judges.lm.contract import LanguageModel
from certify_assets.judges.lm.judge import load_base

__all__ = ["MODEL", "serve"]

MODEL = "compact"


class _Engine:
    """The model, one request at a time: the threads of a matrix product change its last bits."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.language: LanguageModel = load_base(MODEL)[0]
        self.lock = threading.Lock()

    def encode(self, prompt: str | list[int]) -> list[int]:
        return list(self.language.tokenizer.encode(prompt)) if isinstance(prompt, str) else prompt

    def log_probs(self, ids: list[int]) -> Any:
        import torch

        with self.lock, torch.inference_mode():
            logits = self.language.model(input_ids=torch.tensor([ids])).logits[0, -1]
            return torch.log_softmax(logits.double(), dim=0)

    def complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids = self.encode(asked["prompt"])
        found = self.log_probs(ids)
        tokenizer = self.language.tokenizer
        if "logprob_token_ids" in asked:
            names = {number: f"token_id:{number}" for number in asked["logprob_token_ids"]}
        else:
            likeliest = found.topk(int(asked["logprobs"])).indices.tolist()
            names = {number: tokenizer.decode([number]) for number in likeliest}
        listed = {name: float(found[number]) for number, name in names.items()}
        choice = {
            "index": 0,
            "text": tokenizer.decode([int(found.argmax())]),
            "finish_reason": "length",
            "logprobs": {"tokens": list(listed), "top_logprobs": [listed]},
        }
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
        return {"object": "text_completion", "model": MODEL, "choices": [choice], "usage": usage}

    def tokenize(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids = self.encode(asked["prompt"])
        return {"count": len(ids), "max_model_len": 5120, "tokens": ids}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: _Engine

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        about: dict[str, Any] = {
            "/version": {"version": "1"},
            "/v1/models": {"object": "list", "data": [{"id": MODEL, "max_model_len": 5120}]},
        }
        self._reply(about.get(self.path))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = {"/v1/completions": self.engine.complete, "/tokenize": self.engine.tokenize}
        self._reply(known[self.path](asked) if self.path in known else None)

    def _reply(self, found: dict[str, Any] | None) -> None:
        data = json.dumps({"detail": "Not Found"} if found is None else found).encode()
        try:
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            # who asked was killed meanwhile
            self.close_connection = True


def serve(port: int) -> None:
    """Serve until the process ends."""
    handler = type("Handler", (_Handler,), {"engine": _Engine()})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
