"""SWE-agent runs of three folders: a full report, an old one, and one on a third of its runs."""

from pathlib import Path

from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.swe_builders import report, traj

COUNTS = Counts(
    trajectories=4,
    tasks=2,
    successes=2,
    dropped={"no_trajectory": 1, "not_evaluated": 4, "run_rejected": 1},
)


def write(root: Path, canary: str | None = None) -> None:
    alpha, beta, gamma = (root / name for name in ("alpha", "beta", "gamma"))
    for number in (1, 2, 3):
        for folder in (alpha / "trajs", beta, gamma):
            changes = {"trajectory": []} if folder == beta and number == 3 else {}
            record = traj(f"look at {number} in {folder.name}", canary, **changes)
            write_json(folder / f"org__name-{number}.traj", record | {"replay_config": canary})
    extra = {canary: canary, "error_ids": [canary], "schema_version": canary} if canary else {}
    whole = report(["org__name-1"], others=["org__name-2"])
    write_json(alpha / "results" / "results.json", whole | extra)
    old = {"stats": {"resolved": 1, "note": canary}, "resolved": ["org__name-2"]}
    write_json(beta / "final_report.json", old)
    write_json(gamma / "report.json", report(["org__name-1"], total_instances=3))
    prediction = {"model_name_or_path": "gpt-b", "instance_id": "org__name-1"}
    write_lines(beta / "all_preds.jsonl", [prediction | {"model_patch": canary or "diff"}])
