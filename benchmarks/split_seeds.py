"""How much certificates vary with the split seed: AUROC, certified coverage on CAL, error and
coverage on TEST, over seeds.

    python benchmarks/split_seeds.py [--corpus miniwob_mixed] [--seeds 20] [--profile certify]
    [--quick]

TEST is read once a seed, for this table only: nothing is chosen from it. Without --corpus, both
embedded corpora are run. --quick: one corpus, two seeds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from certify_assets.certificates import audit_certificate, certify, observe
from certify_assets.corpora.embedded import load_embedded
from certify_assets.corpora.leakage import check_leaks
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.judges.base import score_table
from certify_assets.judges.lexical import LexicalJudge

EMBEDDED = ("miniwob_mixed", "miniwob_weak")
SETTINGS = [
    (side, alpha, procedure)
    for procedure in ("guarded_taskboot", "naive")
    for side in ("reject", "release")
    for alpha in (0.1, 0.2)
]


@dataclass(frozen=True)
class Row:
    auroc: float
    coverage: dict[tuple[str, float, str], float]
    error: dict[tuple[str, float, str], float]
    verdict: dict[tuple[str, float, str], str]


def one_seed(frame, texts, corpus: str, profile: str, seed: int) -> Row:
    manifest = make_manifest(frame["task_id"].unique(), corpus, profile, seed)
    split = frame["task_id"].map(manifest.assignment).to_numpy()
    renderer = Renderer()
    places = {name: np.flatnonzero(split == name) for name in ("sft", "cal", "test")}
    judge = LexicalJudge.train(
        [texts[i].text for i in places["sft"]],
        frame["outcome"].iloc[places["sft"]].to_numpy(np.int8),
        renderer_sha256=renderer.sha256,
    )
    columns = {}
    for name in ("cal", "test"):
        table = score_table(
            judge, frame.iloc[places[name]], renderer, rendered=[texts[i] for i in places[name]]
        )
        columns[name] = (
            table["score"].to_numpy(np.float64),
            table["outcome"].to_numpy(np.int8),
            table["task_id"].to_numpy(object),
        )
    row = Row(float(observe(*columns["test"]).auroc or np.nan), {}, {}, {})
    for side, alpha, procedure in SETTINGS:
        certificate = certify(*columns["cal"], side=side, alpha=alpha, procedure=procedure)
        row.coverage[side, alpha, procedure] = certificate.coverage
        if certificate.certified:
            audit = audit_certificate(certificate, *columns["test"])
            row.error[side, alpha, procedure] = float(
                audit.realized_error if audit.realized_error is not None else 0.0
            )
            row.verdict[side, alpha, procedure] = audit.verdict
    return row


def spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def show(corpus: str, rows: list[Row]) -> None:
    print(
        f"\n{corpus}, lexical judge, {len(rows)} split seeds: AUROC on TEST "
        f"{spread([row.auroc for row in rows])}"
    )
    print(
        f"{'procedure':17} {'side':8} {'α':4} {'certified':10} "
        f"{'coverage on CAL, mean (range)':32} {'error on TEST, mean (range)':30} over α  ERROR"
    )
    for key in SETTINGS:
        side, alpha, procedure = key
        errors = [row.error[key] for row in rows if key in row.error]
        over = sum(error > alpha for error in errors)
        failed = sum(row.verdict.get(key) == "ERROR" for row in rows)
        covered = [row.coverage[key] for row in rows]
        print(
            f"{procedure:17} {side:8} {alpha:<4g} {len(errors):3d}/{len(rows):<6d} "
            f"{spread(covered):32} {spread(errors):30} {over:4d}   {failed:4d}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", choices=EMBEDDED, action="append")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--profile", default="certify")
    parser.add_argument("--quick", action="store_true", help="one corpus, two seeds")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.corpus, arguments.seeds = (arguments.corpus or EMBEDDED)[:1], 2
    for corpus in arguments.corpus or EMBEDDED:
        frame = load_embedded(corpus)
        texts = render_frame(frame, Renderer())
        profile, alone = profile_corpus(frame, rendered=texts), check_leaks(frame, rendered=texts)
        print(
            f"\n{corpus}: {profile.trajectories} trajectories, {profile.tasks} tasks, π "
            f"{profile.success_rate:.3f}, ICC {profile.icc:.3f}, "
            f"DEFF {profile.deff:.2f}, n_eff {profile.n_eff:.0f}, duplicates "
            f"{profile.duplicates}; AUROC of length alone {alone.length_auroc:.3f}, "
            f"steps {alone.step_auroc:.3f}, agent {alone.agent_auroc:.3f}",
            end="",
        )
        show(
            corpus,
            [
                one_seed(frame, texts, corpus, arguments.profile, seed)
                for seed in range(42, 42 + arguments.seeds)
            ],
        )


if __name__ == "__main__":
    main()
