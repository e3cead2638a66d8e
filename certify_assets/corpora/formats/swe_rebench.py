"""The Parquet tables of SWE-rebench (OpenHands) and of SWE-agent trajectories by Nebius."""

from __future__ import annotations

from certify_assets.corpora.formats.base import Draft, Drafts, Origin, Reading, corpus_format
from certify_assets.corpora.formats.export_records import PARQUET
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.records import Record, parquet_names, parquet_rows
from certify_assets.corpora.formats.swe_reports import issue_text, task_of
from certify_assets.corpora.formats.texts import (
    Message,
    first_prompt,
    from_first,
    listed,
    name_of,
    objects,
    steps_of_messages,
    text_of,
)

_REQUIRED = frozenset({"instance_id", "trajectory"})
_LABELS = ("resolved", "target")
_OPTIONAL = frozenset({"model_name", "trajectory_id", *_LABELS})
_SCAFFOLD = "OpenHands Qwen3-Coder-480B-A35B-Instruct"
_BATCH_ROWS = 32


@corpus_format(
    title="SWE-rebench OpenHands and SWE-agent trajectories (Parquet)",
    suffixes=PARQUET,
    domain="software",
    fits=lambda file: (parquet_names(file) or set()) >= _REQUIRED,
    label_source="tests of the instance, run on the agent's patch",
)
def swe_rebench(files: FileSet, reading: Reading) -> Drafts:
    """Read the rows of trajectory tables."""
    for file in files:
        names = parquet_names(file)
        if names is None:
            reading.drop("file_unreadable", f"{file.name} is not a Parquet file; fetch it again.")
        elif not names >= _REQUIRED:
            reading.other(file, "has no columns instance_id and trajectory.")
        else:
            reading.sha256(file)
            columns = sorted(names & (_REQUIRED | _OPTIONAL))
            for number, row in parquet_rows(file, columns, batch_rows=_BATCH_ROWS):
                if isinstance(row, str):
                    reading.drop("file_ends_early", f"{file.name} row {number}: {row}.")
                else:
                    yield from _draft(row, reading.origin(file, number), reading)


def _draft(row: Record, origin: Origin, reading: Reading) -> Drafts:
    task, said = name_of(row["instance_id"]), row["trajectory"]
    messages = [_message(message) for message in objects(said)]
    steps = steps_of_messages(from_first(messages, "assistant"), reading)
    label = next((name for name in _LABELS if name in row), "outcome")
    agent = text_of(row.get("model_name"))
    if task is None or said != listed(said):
        reading.unusable(origin, "it has no instance_id or no trajectory")
    elif not steps:
        reading.drop("no_trajectory", f"{origin} holds a run in which the agent said nothing.")
    else:
        yield Draft(
            task_id=task_of(task),
            agent=(name_of(agent) or "unknown") if "model_name" in row else _SCAFFOLD,
            instruction=issue_text(first_prompt(messages)),
            steps=steps,
            outcome=row.get(label),
            outcome_name=label,
            origin=origin,
            trajectory_id=name_of(row.get("trajectory_id")),
            # a row is a run of its own, however alike
            repetition=str(origin.row),
            named_agent=agent,
        )


def _message(record: Record) -> Message:
    content = record.get("content")
    return Message.of({**record, "content": record.get("text") if content is None else content})
