"""The Dagster web server with fifty readers at once: every answer arrives and is right; latencies are printed."""

import json
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from certify_assets_tests.conftest import Demo
from certify_assets_tests.faults.servers import serving

READERS, REQUESTS = 50, 8
QUERIES = {
    "assets": "query { assetNodes { id assetKey { path } groupName } }",
    "runs": "query { runsOrError(limit: 20) { ... on Runs { results { runId status } } } }",
    "asset page": (
        'query { assetNodeOrError(assetKey: {path: ["judges", "lexical", "certificate"]}) { ... on AssetNode { description assetMaterializations(limit: 1) '
        "{ runId metadataEntries { label ... on MarkdownMetadataEntry { mdStr } } } } } }"
    ),
    "partitions": 'query { assetNodeOrError(assetKey: {path: ["corpora", "trajectories"]}) { ... on AssetNode { partitionKeys } } }',
}


def _ask(address: str, query: str) -> str:
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(
        f"{address}/graphql", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode("utf-8"))


def _page(address: str, _: str) -> str:
    with urllib.request.urlopen(
        f"{address}/assets/judges/lexical/certificate", timeout=60
    ) as answer:
        return str(answer.read().decode("utf-8"))[:200]


class _Readers:
    """Readers that start together and ask one thing after another."""

    def __init__(self, address: str, wanted: dict[str, str]) -> None:
        self.address, self.wanted = address, wanted
        self.seconds: dict[str, list[float]] = {name: [] for name in wanted}
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def run(self, readers: int, requests: int) -> float:
        barrier = threading.Barrier(readers)
        threads = [
            threading.Thread(target=self._read, args=(barrier, number, requests))
            for number in range(readers)
        ]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - started

    def _read(self, barrier: threading.Barrier, number: int, requests: int) -> None:
        names = list(self.wanted)
        barrier.wait()
        for place in range(requests):
            name = names[(number + place) % len(names)]
            started = time.monotonic()
            try:
                answer = (
                    _page(self.address, "") if name == "page" else _ask(self.address, QUERIES[name])
                )
                failure = "" if answer == self.wanted[name] else f"{name}: another answer"
            except OSError as error:
                failure = f"{name}: {error}"
            with self._lock:
                self.seconds[name].append(time.monotonic() - started)
                self.failures += [failure] if failure else []


@pytest.mark.slow
def test_fifty_readers_at_once_all_get_their_answers(demo: Demo, tmp_path: Path) -> None:
    with serving(demo.environment, tmp_path / "server.log") as address:
        wanted = {name: _ask(address, query) for name, query in QUERIES.items()} | {
            "page": _page(address, "")
        }
        assert "% decided" in wanted["asset page"] and '"errors"' not in "".join(wanted.values())
        for readers, requests in ((1, 40), (READERS, REQUESTS)):
            found = _Readers(address, wanted)
            seconds = found.run(readers, requests)
            print(
                f"\n{readers} readers, {readers * requests} requests in {seconds:.1f} s, {len(found.failures)} failed"
            )
            print(f"{'request':12}{'n':>5}{'p50':>8}{'p90':>8}{'p99':>8}{'max':>8}  seconds")
            for name, values in [
                *found.seconds.items(),
                ("all", [value for part in found.seconds.values() for value in part]),
            ]:
                cells = [*np.quantile(values, (0.5, 0.9, 0.99)), max(values)]
                print(f"{name:12}{len(values):5d}" + "".join(f"{cell:8.2f}" for cell in cells))
            assert found.failures == []
            assert max(value for values in found.seconds.values() for value in values) < 60
