"""A study of two agents: runs as JSON, one that broke down, one superseded, and pickles."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats import Counts

DATE = "2025-02-03_04-05-06"
COUNTS = Counts(
    trajectories=4,
    tasks=2,
    successes=3,
    dropped={
        "infrastructure_error": 1,
        "superseded": 1,
        "no_trajectory": 1,
        "file_pickle_refused": 3,
    },
)


def info(step: int, action: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "step": step,
        "obs": {
            "goal": "Press the button.",
            "goal_object": None,
            "url": f"http://web.test/{step}",
            "axtree_txt": f"RootWebArea 'page {step}'",
            "last_action_error": "",
            "chat_messages": [{"role": "assistant", "message": "Hi!"}],
        },
        "reward": 0.0,
        "action": action,
        "agent_info": {"think": f"thought {step}"} if action else {},
    } | changes


def infos(text: str = "done") -> list[dict[str, Any]]:
    return [
        info(0, "click('3')"),
        info(1, f"send_msg_to_user('{text}')"),
        info(2, None, reward=1.0),
    ]


def summary(reward: Any = 1.0, **changes: Any) -> dict[str, Any]:
    return {
        "n_steps": 2,
        "cum_reward": reward,
        "cum_raw_reward": 0,
        "err_msg": None,
        "stack_trace": None,
        "stats.cum_steps": 3,
    } | changes


def write_run(root: Path, folder: str, verdict: dict[str, Any] | None, steps: Any) -> Path:
    path = root / folder
    if verdict is not None:
        write_json(path / "summary_info.json", verdict)
    if steps is not None:
        write_json(path / "steps_info.json", steps)
    return path


def write(root: Path, canary: str | None = None) -> None:
    study = root / "study"
    note = canary or "a note"
    for agent, task, seed, reward in (
        ("alpha", "web.press", 3, 1.0),
        ("alpha", "web.press", 4, 0.0),
        ("beta", "web.press", 3, 1.0),
        ("beta", "web.type.2", 5, 1.0),
    ):
        steps = _planted(infos(f"{agent} is done with {task} {seed}"), canary)
        write_run(
            study,
            f"{DATE}_{agent}_on_{task}_{seed}",
            summary(reward, **{f"stats.{note}": 1, "stack_trace": canary}),
            steps,
        )
    write_run(
        study, f"{DATE}_beta_on_web.press_6", summary(0.0, err_msg=note, stack_trace=note), infos()
    )
    write_run(study, f"_{DATE}_beta_on_web.press_3", summary(0.0), infos("an older run"))
    only_pickles = write_run(study, f"{DATE}_beta_on_web.type.2_7", summary(1.0), None)
    for name in ("exp_args.pkl", "step_0.pkl.gz", "goal_object.pkl.gz"):
        (only_pickles / name).write_bytes(b"\x80\x04never loaded " + note.encode())
    (only_pickles / "experiment.log").write_text(note, "utf-8")


def _planted(steps: list[dict[str, Any]], canary: str | None) -> list[dict[str, Any]]:
    if canary:
        for item in steps:
            item |= {"task_info": {"message": canary}, "stats": {canary: canary}, canary: canary}
            item["agent_info"] |= {"stack_trace": canary, "chat_messages": canary}
        steps[-1]["obs"]["chat_messages"].append({"role": "user", "message": canary})
    return steps
