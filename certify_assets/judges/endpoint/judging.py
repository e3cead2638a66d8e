"""Endpoint judges in the data root: registered instead of trained, scored through a journal that lets a killed scoring go on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import StaleCertificateError
from certify_assets.judges.base import JudgeProvenance, Scores
from certify_assets.judges.endpoint.config import EndpointConfig
from certify_assets.judges.endpoint.judge import EndpointJudge
from certify_assets.judges.endpoint.report import EndpointReport, EndpointRun
from certify_assets.judges.endpoint.scoring import Asked
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import JudgeRecord, renderer
from certify_assets.storage.store import Store


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


def register(judge: JudgedCorpus, config: EndpointConfig) -> EndpointJudge:
    """Ask the server what it is; the judge that it can be asked as is not stored yet.

    Raises
    ------
    InputError, UnavailableError
        If the server cannot be used as the user's document says.
    """
    with journal(judge) as path:
        asked = _connected(judge.name, config, path).asked
    return EndpointJudge(asked, judge.name, renderer().sha256)


def registered_judge(
    judge: JudgedCorpus, config: EndpointConfig, record: JudgeRecord, *, replay: bool
) -> BilledJudge:
    """Return the judge as it was registered.

    Parameters
    ----------
    replay : bool
        Take answers from the journal alone: no request, no cost. Without it the server must still
        be the registered one.

    Raises
    ------
    StaleCertificateError
        If the server is no longer that of the registration.
    """
    reading = record.details["reading"]
    ids = reading["verdict_ids"]
    asked = Asked(
        config.server,
        config.asking,
        config.prompt(),
        reading["read"],
        None if ids is None else (ids[0], ids[1]),
        record.details["server"],
        config.max_failed,
        _budget(config),
        reading["counts"],
        replay,
    )
    found = EndpointJudge(asked, judge.name, renderer().sha256, config.prices)
    if found.provenance().adapter_sha256 != record.adapter_sha256:
        raise StaleCertificateError(
            f"the registration of {judge} on {judge.corpus} was altered; "
            f"materialize judges/{judge}/model again."
        )
    if not replay:
        _require_same_server(judge, found, config)
    return BilledJudge(found, judge.store, judge.corpus.name)


def _require_same_server(judge: JudgedCorpus, then: EndpointJudge, config: EndpointConfig) -> None:
    with journal(judge) as path:
        now = _connected(judge.name, config, path).asked.identity
    was = then.asked.identity
    differing = next(
        (name for name in sorted({*now, *was}) if now.get(name) != was.get(name)), None
    )
    if differing is not None:
        raise StaleCertificateError(
            f"the server of {judge} is not the registered one: its {differing} is "
            f"{now.get(differing)!r} and was {was.get(differing)!r}; "
            f"materialize judges/{judge}/model again."
        )


def _connected(name: str, config: EndpointConfig, path: Path) -> EndpointJudge:
    return EndpointJudge.connect(
        config.server,
        config.asking,
        config.prompt(),
        budget_tokens=_budget(config),
        name=name,
        journal=path,
    )


def _budget(config: EndpointConfig) -> int | None:
    # an encoder cuts for itself
    return None if config.form == "tokens" else config.budget_tokens
