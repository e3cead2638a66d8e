"""Endpoint judges in the data root: registered instead of trained, scored through a journal that lets a killed scoring go on."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.base import JudgeProvenance, Scores
from certify_assets.judges.endpoint.config import EndpointConfig
from certify_assets.judges.endpoint.judge import EndpointJudge
from certify_assets.judges.endpoint.report import EndpointReport, EndpointRun
from certify_assets.judges.endpoint.scoring import Asked
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.judging import renderer
from certify_assets.judges.specs import JudgeSpec
from certify_assets.storage.store import Store

__all__ = ["BilledJudge", "load_endpoint", "register_endpoint", "require_same_settings"]

_LOG = logging.getLogger(__name__)
_TOLD = 10


@dataclass(frozen=True, eq=False)
class BilledJudge:
    """An endpoint judge whose answers are kept in the data root, and whose bills are kept until they are added up.

    Parameters
    ----------
    judge : EndpointJudge
    store : Store
    corpus : str
    runs : list of EndpointRun
        What was scored so far.
    progress : callable, optional
        Called with the answers that are there and the answers in all.
    """

    judge: EndpointJudge
    store: Store
    corpus: str
    runs: list[EndpointRun] = field(default_factory=list)
    progress: Callable[[int, int], None] | None = None

    @property
    def name(self) -> str:
        """Name of the judge."""
        return self.judge.name

    def provenance(self) -> JudgeProvenance:
        """Say what the scores depend on."""
        return self.judge.provenance()

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories; what was answered before is not asked again."""
        with journal(JudgedCorpus(Corpus(self.store, self.corpus), self.name)) as path:
            run = replace(self.judge, journal=path).run(texts, progress=self.progress)
        self.runs.append(run)
        return run.scores

    def questions(self, texts: Sequence[str]) -> list[Any]:
        """Return what the server was asked about texts."""
        with journal(JudgedCorpus(Corpus(self.store, self.corpus), self.name)) as path:
            return list(replace(self.judge, journal=path).questions(texts))

    def bill(self) -> dict[str, Any]:
        """Return counts, tokens, seconds and cost of all that was scored."""
        return EndpointReport.merged([run.report for run in self.runs]).to_dict()


@contextmanager
def journal(judge: JudgedCorpus) -> Iterator[Path]:
    """Give the file of answers; that of a remote data root is fetched, and put back whatever happens."""
    key = judge.key("answers.jsonl")
    if judge.store.is_local:
        yield judge.store.local_path(key)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.jsonl"
        if judge.store.exists(key):
            path.write_bytes(judge.store.read_bytes(key))
        try:
            yield path
        finally:
            if path.exists():
                judge.store.write_bytes(key, path.read_bytes())


def register_endpoint(judge: JudgedCorpus) -> dict[str, Any]:
    """Ask the server what it is, and store what every score will depend on in the place of a trained adapter.

    Returns
    -------
    dict
        The adapter document: hashes of settings and prompt, the server's answer about itself, how verdicts are read.

    Raises
    ------
    InputError, UnavailableError
        If the server cannot be used as the user's document says.
    """
    manifest = judge.corpus.manifest
    config = _config(judge.spec)
    with journal(judge.beside(judge.spec.name)) as path:
        asked = _connected(judge.spec.name, config, path).asked
    provenance = EndpointJudge(asked, judge.spec.name, renderer().sha256).provenance()
    document = {
        "judge": judge.spec.name,
        "corpus": judge.corpus.name,
        "adapter_sha256": provenance.adapter_sha256,
        "success_weight": 1.0,
        "candidates": 1,
        "selection": [],
        "selection_rule": "",
        "sft_trajectories": 0,
        "sft_unlabelled": 0,
        "sft_tasks": 0,
        "manifest_sha256": manifest.sha256,
        "renderer_sha256": renderer().sha256,
        "prompt_sha256": asked.prompt.sha256,
        "settings_sha256": config.sha256,
        "settings": config.settings(),
        "server": dict(asked.identity),
        "reading": {
            "read": asked.read,
            "verdict_ids": asked.ids and list(asked.ids),
            "counts": asked.counts,
        },
        "provenance": provenance.to_dict(),
        "seed": config.asking.seed,
    }
    judge.store.write_json(judge.key("adapter.json"), document)
    return document


def load_endpoint(judged: JudgedCorpus, *, replay: bool) -> BilledJudge:
    """Return the judge as it was registered.

    Parameters
    ----------
    replay : bool
        Take answers from the journal alone: no request, no cost. Without it the server must still be the registered one.

    Raises
    ------
    StaleCertificateError
        If settings or server are no longer those of the registration.
    """
    document = judged.store.read_json(judged.key("adapter.json"))
    require_same_settings(document, judged.spec)
    config, reading = _config(judged.spec), document["reading"]
    ids = reading["verdict_ids"]
    asked = Asked(
        config.server,
        config.asking,
        config.prompt(),
        reading["read"],
        None if ids is None else (ids[0], ids[1]),
        document["server"],
        config.max_failed,
        _budget(config),
        reading["counts"],
        replay,
    )
    judge = EndpointJudge(asked, judged.spec.name, renderer().sha256, config.prices)
    if judge.provenance().adapter_sha256 != document["adapter_sha256"]:
        raise StaleCertificateError(
            f"the registration of {judged} on {judged.corpus} was altered; materialize judges/{judged}/model again."
        )
    if not replay:
        _require_same_server(judged.corpus, judge, config)
    return BilledJudge(judge, judged.store, judged.corpus.name)


def require_same_settings(document: dict[str, Any], spec: JudgeSpec) -> None:
    """Refuse a registration that was made with other settings than the user's document has now.

    Raises
    ------
    StaleCertificateError
        With the first setting that differs.
    """
    now, then = _config(spec).settings(), document.get("settings", {})
    differing = next((name for name, value in now.items() if then.get(name) != value), None)
    if differing is not None or document.get("settings_sha256") != _config(spec).sha256:
        raise StaleCertificateError(
            f"{spec.name} was registered with another {differing or 'setting'} than judges.yaml has now; materialize judges/{spec.name}/model again."
        )


def _require_same_server(corpus: Corpus, judge: EndpointJudge, config: EndpointConfig) -> None:
    with journal(JudgedCorpus(corpus, judge.name)) as path:
        now = _connected(judge.name, config, path).asked.identity
    then = judge.asked.identity
    differing = next(
        (name for name in sorted({*now, *then}) if now.get(name) != then.get(name)), None
    )
    if differing is not None:
        raise StaleCertificateError(
            f"the server of {judge} is not the registered one: its {differing} is {now.get(differing)!r} and was {then.get(differing)!r}; "
            f"materialize judges/{judge}/model again."
        )


def _connected(name: str, config: EndpointConfig, path: Path) -> EndpointJudge:
    budget = _budget(config)
    return EndpointJudge.connect(
        config.server, config.asking, config.prompt(), budget_tokens=budget, name=name, journal=path
    )


def _budget(config: EndpointConfig) -> int | None:
    # an encoder cuts for itself
    return None if config.form == "tokens" else config.budget_tokens


def _config(spec: JudgeSpec) -> EndpointConfig:
    if spec.endpoint is None:
        raise InputError(
            f"{spec.name} is no endpoint judge; name one that `certify judge list` shows with family endpoint."
        )
    return spec.endpoint
