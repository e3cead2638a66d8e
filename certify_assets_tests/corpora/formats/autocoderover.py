"""AutoCodeRover: two attempts of one agent in two buckets, with the solution next to each run."""

from pathlib import Path

from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.swe_builders import conversation, save

COUNTS = Counts(trajectories=4, tasks=2, successes=1, dropped={"unreadable_record": 1})

_BUCKETS = {1: "applicable_patch", 2: "raw_patch_but_unmatched"}


def write(root: Path, canary: str | None = None) -> None:
    secret = canary or "the solution"
    save(
        root
        / "acr-run-1"
        / "applicable_patch"
        / "org__name-3_2024-04-06_13-51-01"
        / "conversation_round_0.json",
        "[{",
    )
    for attempt in (1, 2):
        run = root / f"acr-run-{attempt}"
        for number, bucket in _BUCKETS.items():
            folder = run / bucket / f"org__name-{number}_2024-04-06_13-51-0{attempt}"
            save(folder / "conversation_round_0.json", conversation(f"look {attempt} at {number}"))
            save(
                folder / "conversation_round_10.json",
                conversation(f"look {attempt} at {number}", rounds=2),
            )
            save(folder / "conversation_round_2.json", conversation(f"look {attempt} at {number}"))
            save(folder / "agent_patch_raw_1", "<file>sums.py</file> my patch")
            save(
                folder / "meta.json",
                {
                    "task_info": {"patch": secret, "test_patch": secret},
                    "setup_info": {"test_cmd": secret},
                },
            )
            save(folder / "developer_patch.diff", secret)
            save(folder / "problem_statement.txt", "the issue")
        save(
            run / "new_eval_results" / "report.json",
            {
                "generated": ["org__name-1"],
                "resolved": ["org__name-1"][: 2 - attempt],
                secret: [secret],
            },
        )
        save(
            run / "old_eval_results" / "final_report.json",
            {"stats": {secret: 1}, "resolved": ["org__name-2"]},
        )
