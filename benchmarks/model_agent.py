"""A pretrained model as the agent of MiniWoB++ pages, in a real Chromium, behind a local server.

    python benchmarks/model_agent.py [--tasks 30] [--attempts 4] [--seed 42] [--root DIR] [--quick]

SmolLM2-135M-Instruct of the extra [smollm2] answers chat requests of this machine alone, greedily,
at most ANSWER tokens an answer; `certify research generate-miniwob --agent model` asks it for one
action a turn. Prints its success rate, the clustering of its outcomes, turns a run and how runs
end, tasks it did at least once, and CPU seconds of the server. With --root a stopped run resumes.
--quick: one task, one attempt. Needs Chromium and the extras [miniwob] and [smollm2]; says so
where one is missing.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.errors import InputError
from certify_assets.judges.lm.contract import Hardware, LanguageModel
from certify_assets.judges.lm.models import SMOLLM2, load_model
from certify_assets.research.miniwob import generate, list_tasks

CORPUS = "miniwob_weak"
MODEL = "smollm2"
ANSWER = 24
QUICK_TASKS, QUICK_ATTEMPTS = 1, 1


class ChatServer:
    """The chat endpoint of a model, and the CPU seconds that its answers took."""

    def __init__(self, language: LanguageModel) -> None:
        self.language = language
        self.seconds, self.answers = 0.0, 0

    def answer(self, messages: list[dict[str, str]]) -> str:
        """Return the most likely answer to a conversation."""
        import torch

        started = time.thread_time()
        tokenizer = self.language.tokenizer
        asked = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            found = self.language.model.generate(
                **asked, max_new_tokens=ANSWER, do_sample=False, pad_token_id=0
            )
        self.seconds += time.thread_time() - started
        self.answers += 1
        length = asked["input_ids"].shape[1]
        return str(tokenizer.decode(found[0, length:], skip_special_tokens=True))

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Answer on a free port of this machine; yield the base URL."""
        import uvicorn
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def chat(request: Request) -> JSONResponse:
            body: dict[str, Any] = await request.json()
            message = {"role": "assistant", "content": self.answer(body["messages"])}
            return JSONResponse({"choices": [{"message": message, "finish_reason": "stop"}]})

        app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            finally:
                server.should_exit = True
                thread.join()


def show(runs: pd.DataFrame, server: ChatServer) -> None:
    """Print how a model did."""
    grouped = runs.groupby("task_id")["outcome"].agg(["size", "sum"])
    facts = summarise_clusters(grouped["size"].to_numpy(), grouped["sum"].to_numpy())
    turns = runs["steps"].map(len)
    ends = runs["steps"].map(lambda steps: steps[-1]["action"]).value_counts()
    print(
        f"{len(runs)} runs of {len(grouped)} tasks: success rate {facts.success_rate:.3f}, ICC "
        f"{facts.icc:.3f}, design effect {facts.deff:.2f}; {int((grouped['sum'] > 0).sum())} tasks "
        f"done at least once; {turns.mean():.1f} turns a run"
    )
    for action, count in ends.head(5).items():
        print(f"{count:5d} end with {str(action)[:80]}")
    print(f"{server.answers} answers, {server.seconds:.0f} CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--attempts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.attempts = QUICK_TASKS, QUICK_ATTEMPTS
    try:
        tasks = list_tasks()
        server = ChatServer(load_model(MODEL, None, SMOLLM2.prompt, Hardware.present()))
        with tempfile.TemporaryDirectory() as temporary, server.serve() as url:
            os.environ |= {"CERTIFY_MODEL_URL": url, "CERTIFY_MODEL_NAME": MODEL}
            made = generate(
                options.root or Path(temporary),
                corpora=[CORPUS],
                tasks=tasks[:: max(1, len(tasks) // options.tasks)][: options.tasks],
                agents=["model"],
                attempts=options.attempts,
                seed=options.seed,
                workers=1,
            )
            show(pd.read_parquet(made.tables[CORPUS]), server)
            for reason, count in made.failed.items():
                print(f"{count} runs could not be finished: {reason}")
    except InputError as error:
        print(f"skipped: {error}")


if __name__ == "__main__":
    main()
