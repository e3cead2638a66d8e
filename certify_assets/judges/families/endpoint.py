"""Endpoint judges: models behind a server, registered instead of trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.endpoint.settings import EndpointEntry
from certify_assets.judges.judged import JudgedCorpus, JudgeFamily, Progress, judge_family
from certify_assets.judges.reading import JudgeInput
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import JudgeSpec
from certify_assets.work import Report

if TYPE_CHECKING:
    from certify_assets.judges.base import Bill, Judge
    from certify_assets.judges.endpoint.judge import EndpointJudge


class EndpointSpec(JudgeSpec):
    """A judge behind a server, from an entry of judges.yaml."""

    training_splits = ()
    hosted = True

    family: Literal["endpoint"] = "endpoint"
    endpoint: EndpointEntry

    @classmethod
    def of(cls, entry: EndpointEntry) -> EndpointSpec:
        """Return the judge of an entry."""
        asked = _asked(entry.question())
        return cls(
            name=entry.name,
            summary=f"{entry.model} behind {entry.plain_url}, {asked}; nothing is trained.",
            model=entry.model,
            revision=entry.revision,
            reading=entry.reading(JudgeInput()),
            endpoint=entry,
        )

    @property
    def libraries(self) -> frozenset[str]:
        """Libraries that its assets show as kinds."""
        return frozenset({"openai", "json"})

    def registration(self) -> object:
        """Return the hash of everything that the scores depend on."""
        return {"family": self.family, "settings_sha256": self.endpoint.sha256}


@judge_family("endpoint")
class EndpointFamily(JudgeFamily):
    """A server is asked what it is, and settings, prompt and answer are stored."""

    position = 40
    entry = EndpointEntry

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Register the server; refuse one that cannot be used as the user's document says."""
        from certify_assets.judges.endpoint.judge import register

        entry = _entry(judge)
        registered = register(judge, entry)
        connection, provenance = registered.connection, registered.provenance()
        return replace(
            judge.record(provenance.adapter_sha256),
            seed=entry.seed,
            success_weight=1.0,
            details={
                "prompt_sha256": connection.prompt.sha256,
                "settings_sha256": entry.sha256,
                "settings": entry.settings(),
                "server": dict(connection.identity),
                "reading": {
                    "read": connection.read,
                    "verdict_ids": connection.ids and list(connection.ids),
                },
                "provenance": asdict(provenance),
            },
        )

    def load(
        self, judge: JudgedCorpus, *, expected_sha256: str, resume: bool, replay: bool
    ) -> EndpointJudge:
        """Return the judge as it was registered, if settings and server are still the same."""
        from certify_assets.judges.endpoint.judge import registered_judge

        record = judge.stored_artifact
        self.require_current(judge, record)
        return registered_judge(judge, _entry(judge), record, replay=replay)

    def prepared(self, judge: JudgedCorpus, model: Judge, *, progress: Progress) -> Judge:
        """Report the answers that are there."""
        return replace(_billed(model), progress=progress)

    def bill(self, model: Judge) -> Bill:
        """Return counts, tokens, seconds and cost of all that was scored."""
        return _billed(model).bill()

    def fingerprint(self, judge: JudgedCorpus, record: JudgeRecord) -> str:
        """Return the hash of the registration, which is all there is."""
        return record.adapter_sha256

    def prompt_sha256(self, judge: JudgedCorpus, record: JudgeRecord) -> str:
        """Hash of the prompt that was registered."""
        return str(record.details["prompt_sha256"])

    def describe(self, record: JudgeRecord) -> str:
        """Return that nothing was trained."""
        return f"none: a model behind a server, {_asked(record.detail('settings')['asking'])}"

    def require_current(self, judge: JudgedCorpus, record: JudgeRecord) -> None:
        """Refuse a registration with other settings than judges.yaml has now."""
        entry = _entry(judge)
        now, then = entry.settings(), record.detail("settings")
        differing = next((name for name, value in now.items() if then.get(name) != value), None)
        if differing is not None or record.details.get("settings_sha256") != entry.sha256:
            raise StaleCertificateError(
                f"{judge} was registered with another {differing or 'setting'} than judges.yaml "
                f"has now; materialize judges/{judge}/model again."
            )

    def configure(self, entry: EndpointEntry) -> EndpointSpec:
        """Return the judge of an entry."""
        return EndpointSpec.of(entry)


def _asked(asking: Mapping[str, Any]) -> str:
    """Return how a server is asked, in a few words."""
    warmth = f"temperature {asking['temperature']:g}"
    if asking.get("preset"):
        warmth += f", preset {asking['preset']}"
    return {
        "logprob": "read at its first token",
        "cot": f"asked for a probability in words ({warmth})",
    }.get(asking["mode"]) or f"asked {asking['votes']} times for a vote ({warmth})"


def _entry(judge: JudgedCorpus) -> EndpointEntry:
    spec = judge.spec
    assert isinstance(spec, EndpointSpec)
    return spec.endpoint


def _billed(model: Judge) -> EndpointJudge:
    from certify_assets.judges.endpoint.judge import EndpointJudge

    assert isinstance(model, EndpointJudge)
    return model
