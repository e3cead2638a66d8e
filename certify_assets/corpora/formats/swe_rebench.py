"""The Parquet tables of SWE-rebench (OpenHands) and of SWE-agent trajectories by Nebius."""

from __future__ import annotations

from dataclasses import replace

from certify_assets.corpora.formats.base import Draft
from certify_assets.corpora.formats.mapping import mapped_format
from certify_assets.corpora.formats.records import PARQUET, Record
from certify_assets.corpora.formats.swe_reports import issue_text, task_of

_SCAFFOLD = "OpenHands Qwen3-Coder-480B-A35B-Instruct"


def _adjusted(draft: Draft, row: Record) -> Draft:
    agent = draft.agent if "model_name" in row else _SCAFFOLD
    issue = issue_text(draft.instruction)
    return replace(draft, task_id=task_of(draft.task_id), agent=agent, instruction=issue)


mapped_format(
    "swe_rebench",
    {
        "task_id": "instance_id",
        "trajectory_id": "trajectory_id",
        "agent": "model_name",
        "outcome": "resolved|target",
        "messages": "trajectory",
    },
    adjusted=_adjusted,
    title="SWE-rebench OpenHands and SWE-agent trajectories (Parquet)",
    suffixes=PARQUET,
    domain="software",
    label_source="tests of the instance",
)
