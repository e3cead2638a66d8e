"""Endpoint judges: models behind a server, registered instead of trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from certify_assets.documents import JsonObject
from certify_assets.judges.endpoint.settings import EndpointEntry
from certify_assets.judges.family import JudgeFamily, Progress
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import judge_family
from certify_assets.judges.stored import StoredJudge
from certify_assets.work import Report

if TYPE_CHECKING:
    from certify_assets.judges.base import Bill, Judge
    from certify_assets.judges.endpoint.judge import EndpointJudge


class EndpointSpec(JudgeSpec):
    """A model behind a server; nothing is trained."""

    training_splits = ()
    hosted = True

    family: Literal["endpoint"] = "endpoint"
    endpoint: EndpointEntry

    @property
    def libraries(self) -> frozenset[str]:
        """Libraries that its assets show as kinds."""
        return frozenset({"openai", "json"})

    @property
    def prompts(self) -> Mapping[str, Any]:
        """The question, with a place for the run."""
        from certify_assets.judges.endpoint.questions import render

        return {f"certify-{self.name}": render(self.endpoint, "{{run}}")}

    def registration(self) -> JsonObject:
        """Return all facts that the scores depend on."""
        return {"family": self.family, **self.endpoint.settings()}


@judge_family("endpoint")
class EndpointFamily(JudgeFamily):
    """Registers a server: its identity, settings and prompt are stored."""

    position = 40
    entry = EndpointEntry
    spec = EndpointSpec

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Register the server; refuse one that cannot be used as the user's document says."""
        from certify_assets.judges.endpoint.judge import register

        registered = register(judge, _entry(judge))
        provenance = registered.provenance()
        return judge.record(
            provenance.adapter_sha256,
            success_weight=1.0,
            prompt_sha256=provenance.settings["prompt_sha256"],
            server=dict(registered.identity),
            provenance=asdict(provenance),
        )

    def load(
        self, judge: StoredJudge, *, expected_sha256: str, resume: bool, replay: bool
    ) -> EndpointJudge:
        """Return the registered judge, if the server is still the same."""
        from certify_assets.judges.endpoint.judge import registered_judge

        return registered_judge(judge, _entry(judge), judge.artifact, replay=replay)

    def prepared(self, judge: StoredJudge, model: Judge, *, progress: Progress) -> Judge:
        """Report the answers that are there."""
        return replace(_billed(model), progress=progress)

    def bill(self, model: Judge) -> Bill:
        """Return counts, tokens, seconds and cost of all that was scored."""
        return _billed(model).bill()

    def fingerprint(self, judge: StoredJudge, record: JudgeRecord) -> str:
        """Return the hash of the registration, as there are no files."""
        return record.adapter_sha256

    def prompt_sha256(self, judge: StoredJudge, record: JudgeRecord) -> str:
        """Hash of the prompt that was registered."""
        return str(record.details["prompt_sha256"])

    def describe(self, record: JudgeRecord) -> str:
        """Say that nothing was trained."""
        return f"none: a model behind a server, {_asked((record.registered or {})['asking'])}"


def _asked(asking: Mapping[str, Any]) -> str:
    """Return how a server is asked, in a few words."""
    warmth = f"temperature {asking['temperature']:g}"
    return {
        "logprob": "read at its first token",
        "cot": f"asked for a probability in words ({warmth})",
    }.get(asking["mode"]) or f"asked {asking['votes']} times for a vote ({warmth})"


def _entry(judge: StoredJudge) -> EndpointEntry:
    spec = judge.spec
    assert isinstance(spec, EndpointSpec)
    return spec.endpoint


def _billed(model: Judge) -> EndpointJudge:
    from certify_assets.judges.endpoint.judge import EndpointJudge

    assert isinstance(model, EndpointJudge)
    return model
