"""promptfoo results (`promptfoo eval -o results.json` or `.jsonl`): a run a test and provider."""

from __future__ import annotations

import json
import re
from functools import partial

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.messages import value_text
from certify_assets.corpora.formats.records import (
    JSON,
    Record,
    begins,
    hashed,
    inside,
    mapping,
    named,
    objects,
    text_of,
)
from certify_assets.corpora.trajectory import Step

_NEEDED = {"promptIdx", "testIdx", "testCase", "provider"}
_MARKS = (rb'"gradingResult"\s*:', rb'"(?:promptIdx|promptId)"\s*:')
# assertions that a language model or an embedding answers
_MODEL_GRADED = re.compile(
    r"llm|model-graded|factuality|relevance|context-|g-eval|similar|classifier|rubric|moderation"
    r"|pi$"
)
# promptfoo's code of a test that ended in an error, not in a failed assertion
_ERROR = 2


@corpus_format(
    title="promptfoo results (JSON and JSON lines)",
    suffixes=JSON,
    fits=lambda file: begins(file, b"{", *_MARKS),
    label_source="assertions of the tests",
    options={
        **AGENT_OPTION,
        "label": "metric or assertion that is the outcome; the verdict of all is it otherwise",
    },
)
def promptfoo(files: FileSet, reading: Reading) -> Drafts:
    """Read one run a result; attempts are results of the same variables."""
    draft = partial(_draft, reading=reading)
    results = reading.records(files, lambda row: row.keys() >= _NEEDED, under=["results.results"])
    yield from reading.runs(results, draft)


def _draft(record: Record, origin: Origin, reading: Reading) -> Draft:
    if record.get("failureReason") == _ERROR:
        raise LeftOutError("ended with an error of the provider", "infrastructure_error")
    provider = mapping(record["provider"])
    agent = text_of(provider.get("label")) or text_of(provider.get("id"))
    output = value_text(inside(record, "response", "output"))
    judgements = _judgements(record)
    verdicts = [Judgement("success", record.get("success"))]
    verdicts += [one for one in judgements if one.name != "success"]
    return Draft(
        task_id=_task(record),
        agent=str(reading.options.get("agent") or agent or "unknown"),
        instruction=text_of(inside(record, "prompt", "raw")),
        steps=(Step(output, ""),) if output else (),
        **reading.chosen(origin, verdicts, default="success"),
        origin=origin,
        trajectory_id=named(record.get("id")),
        repetition=str(origin.row),
        named_agent=agent,
        judgements=judgements,
    )


def _task(record: Record) -> str:
    """Return the description of a test, or a hash of its variables, which may hold the solution."""
    if described := named(inside(record, "testCase", "description")):
        return described
    values = mapping(record.get("vars")) or mapping(inside(record, "testCase", "vars"))
    if not values:
        return f"test {record['testIdx']}"
    text = json.dumps(values, ensure_ascii=False, sort_keys=True)
    return f"vars-{hashed(text)}"


def _judgements(record: Record) -> tuple[Judgement, ...]:
    """Return what each assertion says, by its metric or kind."""
    found = []
    for result in objects(inside(record, "gradingResult", "componentResults")):
        assertion = mapping(result.get("assertion"))
        kind = text_of(assertion.get("type")).removeprefix("not-")
        source = "llm_judge" if _MODEL_GRADED.search(kind) else "code"
        if kind == "human":
            source = "human"
        name = text_of(assertion.get("metric")) or text_of(assertion.get("type")) or "assertion"
        value = result.get("pass") if kind == "human" else result.get("score")
        found.append(Judgement(name, value, source))
    return tuple(found)
