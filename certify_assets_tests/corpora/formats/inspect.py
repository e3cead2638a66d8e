"""Inspect AI logs: .eval with deflated and zstd members, one unfinished, and a failed .json."""

import json
from pathlib import Path

from certify_assets_tests.corpora.eval_files import ZSTD, eval_bytes, header, sample, write_eval
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=9,
    tasks=6,
    successes=6,
    dropped={
        "no_label": 3,
        "infrastructure_error": 1,
        "no_trajectory": 1,
        "duplicate": 2,
    },
)


def write(root: Path, canary: str | None = None) -> None:
    epochs = [
        sample(1, "C", 2, canary),
        sample(1, "I", 1, canary),
        sample("x/../y", "C", 1, canary),
    ]
    summaries = {
        "summaries.json": [{"scores": canary}],
        "reductions.json": [{"scorer": "match", "samples": [{"value": 1, "answer": canary}]}],
    }
    plain = eval_bytes(
        header(solver="react") | {"results": {"scores": [], "metadata": {"note": canary}}},
        epochs,
        **summaries,
    )
    write_eval(root / "logs" / "plain.eval", plain)
    odd = [
        sample(2, "P", 1, canary),
        sample(3, True, 1, canary),
        sample(4, 0.25, 1, canary),
        sample(5, "", 1, canary),
    ]
    write_eval(root / "logs" / "zstd.eval", eval_bytes(header("odd"), odd, ZSTD))
    running = [sample(6, "C", 1, canary), sample(7, "C", 1, canary, scores=None)]
    write_eval(root / "logs" / "running.eval", eval_bytes(None, running))
    failure = dict.fromkeys(("message", "traceback", "traceback_ansi"), canary or "broke")
    failed = [sample(6, "C", 2, canary), sample(8, "C", 1, canary, error=failure)]
    silent = sample(9, "C", 1, canary, messages=[], output={"choices": []})
    copies = [sample(6, "C", 3, canary), sample(6, "C", 3, canary)]
    document = header("unfinished", "error") | {
        "results": {"scores": [], "metadata": {"note": canary}},
        "samples": [*failed, silent, *copies, sample(7, float("nan"), 2, canary)],
    }
    (root / "logs" / "failed.json").write_text(json.dumps(document), "utf-8")
    write_eval(root / "more" / "plain.eval", eval_bytes(header(solver="react"), epochs[:1]))
