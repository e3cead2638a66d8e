"""Success criteria that reviewers read next to a run: one text for all tasks, or one a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from certify_assets.errors import InputError
from certify_assets.tables.reading import read_table

#: longest criterion of one task, in characters
MOST_CHARS: Final = 20_000
_TEXTS = frozenset({".md", ".markdown", ".txt"})


@dataclass(frozen=True)
class ReviewCriteria:
    """What a run of a task must do to be a success; untrusted text."""

    general: str = ""
    by_task: Mapping[str, str] = field(default_factory=dict)

    def of(self, task_id: str) -> str:
        """Return the criterion of a task; "" where none is given."""
        return self.by_task.get(task_id, self.general)

    def lacking(self, tasks: Iterable[str]) -> int:
        """Count the tasks that have no criterion."""
        return sum(not self.of(task) for task in set(tasks))


def read_criteria(path: Path) -> ReviewCriteria:
    """Read a text for all tasks (.md, .txt), or a table of task_id and criterion."""
    if path.suffix.lower() in _TEXTS:
        try:
            return ReviewCriteria(_checked(path, "the text", path.read_text("utf-8-sig")))
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); check it.") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 ({error}); save it as UTF-8.") from None
    table = read_table(path, {"task_id", "criterion"})
    for name in ("task_id", "criterion"):
        if name not in table.columns:
            raise InputError(f"{path} has no column {name!r}; give task_id and criterion.")
    by_task: dict[str, str] = {}
    pairs = zip(table.values("task_id"), table.values("criterion"), strict=True)
    for index, (task, text) in enumerate(pairs):
        where = table.row(index)
        name = "" if task is None else str(task).strip()
        if not name or name in by_task:
            what = f"task {name!r} is there twice" if name else "task_id is empty"
            raise InputError(f"{path}, {where}: {what}; name each task once.")
        by_task[name] = _checked(path, where, text)
    return ReviewCriteria(by_task=by_task)


def _checked(path: Path, where: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{path}, {where}: the criterion is empty or no text; write one.")
    if len(text) > MOST_CHARS:
        raise InputError(
            f"{path}, {where}: the criterion has {len(text):,} characters; give at most "
            f"{MOST_CHARS:,}."
        )
    return text
