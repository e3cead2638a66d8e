"""OTLP JSON of three generations of conventions; one trace has no label, one span no trace id."""

from pathlib import Path

from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.traces import GENERATIONS, otlp_request, recorded, small_run

COUNTS = Counts(
    trajectories=6, tasks=3, successes=3, dropped={"no_label": 1, "unreadable_record": 1}
)


def write(root: Path, canary: str | None = None) -> None:
    for place, generation in enumerate(GENERATIONS):
        runs = [small_run(2 * place, 1), small_run(2 * place + 1, 0)]
        if not place:
            runs.append(small_run(9, None))
        spans = recorded(runs, generation, canary=canary)
        if place:
            # a collector writes the spans of a trace in any number of lines
            write_lines(
                root / f"{generation}.jsonl", [otlp_request(spans[:3]), otlp_request(spans[3:])]
            )
        else:
            document = otlp_request(spans)
            document["resourceSpans"][0]["scopeSpans"][0]["spans"].append({"spanId": "1"})
            write_json(root / "request.json", document)
