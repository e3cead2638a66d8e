"""Parity test: a server's log-probabilities certify only where a local model has the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.files import sha256_bytes
from certify_assets.judges.endpoint.judge import BilledJudge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import texts
from certify_assets.judges.specs import JUDGES

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.endpoint.config import ParityConfig
    from certify_assets.judges.endpoint.questions import Question
    from certify_assets.judges.endpoint.scoring import EndpointSetup
    from certify_assets.judges.lm.contract import LanguageModel
    from certify_assets.judges.lm.scoring import ScoringRun


@dataclass(frozen=True)
class ParityReport:
    """A parity test as it is stored, with the hashes of what it compared."""

    judge: str
    corpus: str
    rows: int
    unscored_by_one: int
    max_difference: float
    mean_difference: float
    rank_agreement: float
    changed_decisions: int
    tolerance: float
    least_agreement: float
    passed: bool
    engine: str
    # fingerprint of the local engine
    reference: dict[str, Any]
    configuration: dict[str, str | float | None]
    trajectory_ids: list[str]
    adapter_sha256: str
    scores_sha256: str
    manifest_sha256: str

    def sentence(self) -> str:
        """Say how the test went."""
        local = f"{self.reference['model']} of the local engine on {self.rows} rows: log-odds"
        if self.passed:
            return (
                f"{self.judge} agrees with {local} within {self.max_difference:.2g}, rank "
                f"agreement {self.rank_agreement:.4f}."
            )
        return (
            f"{self.judge} differs from {local} by up to {self.max_difference:.2g} "
            f"({self.tolerance:g} allowed), rank agreement {self.rank_agreement:.4f} (at least "
            f"{self.least_agreement:g}), {self.unscored_by_one} rows scored by one of them alone; "
            "serve the same weights, prompt template and precision, and score again."
        )


def run_parity(judge: JudgedCorpus) -> ParityReport:
    """Score rows of CAL with the local counterpart, compare, and store the report."""
    # the server is not asked
    from certify_assets.judges.base import Scores
    from certify_assets.judges.lm.parity import parity

    spec = judge.spec
    config = spec.parity
    if config is None:
        raise InputError(f"{judge} has no parity test: {spec.no_parity}.")
    judge.require_artifact()
    table = judge.store.read_table(judge.key("scores.parquet"))
    frame = _rows(judge.corpus, config.rows)
    stored = table.set_index("trajectory_id").loc[frame["trajectory_id"]]
    candidate = Scores(
        stored["log_p_success"].to_numpy(np.float64), stored["log_p_fail"].to_numpy(np.float64)
    )
    billed = judge.load(replay=True)
    assert isinstance(billed, BilledJudge)
    questions = billed.questions(texts(frame, judge.renderer))
    run = _reference(judge.corpus, config, billed.judge.asked, questions)
    # no certificate exists yet whose decisions could change: its threshold will be of these scores
    found = parity(
        run.scores,
        candidate,
        thresholds=(),
        tolerance=config.tolerance,
        least_agreement=config.least_agreement,
    )
    bound = _bound(judge)
    report = ParityReport(
        judge=judge.name,
        corpus=judge.corpus.name,
        **asdict(found),
        passed=found.passed,
        engine=billed.provenance().engine,
        reference=asdict(run.fingerprint),
        configuration=config.model_dump(),
        trajectory_ids=[str(name) for name in frame["trajectory_id"]],
        adapter_sha256=bound["adapter_sha256"],
        scores_sha256=bound["scores_sha256"],
        manifest_sha256=bound["manifest_sha256"],
    )
    judge.store.write_json(judge.key("parity.json"), asdict(report))
    return report


def parity_provenance(judge: JudgedCorpus) -> dict[str, str]:
    """Return what the certificates of an endpoint judge say about parity; refuse a stale test."""
    spec = judge.spec
    if not spec.hosted:
        return {}
    if spec.parity is None:
        return {"no_parity": str(spec.no_parity)}
    how = (
        f"run `certify judge parity {judge.corpus} --judge {judge}` or the check parity "
        f"of judges/{judge}/scores"
    )
    if not judge.store.exists(judge.key("parity.json")):
        raise StaleCertificateError(
            f"the scores of {judge} on {judge.corpus} were not compared with those of the local "
            f"model; {how}."
        )
    stored = judge.store.read_json(judge.key("parity.json"))
    expected = {**_bound(judge), "configuration": spec.parity.model_dump()}
    stale = next((name for name, value in expected.items() if stored.get(name) != value), None)
    if stale is not None:
        raise StaleCertificateError(
            f"the parity test of {judge} on {judge.corpus} is of another "
            f"{stale.removesuffix('_sha256')} than the present one; {how}."
        )
    report = ParityReport(**stored)
    if report.passed is not True:
        raise StaleCertificateError(report.sentence())
    return {"parity_sha256": judge.store.sha256(judge.key("parity.json"))}


def _bound(judge: JudgedCorpus) -> dict[str, str]:
    """Return what a parity test depends on: registration, scores and manifest."""
    adapter = judge.store.read_json(judge.key("adapter.json"))
    return {
        "adapter_sha256": adapter["adapter_sha256"],
        "scores_sha256": judge.store.sha256(judge.key("scores.parquet")),
        "manifest_sha256": adapter["manifest_sha256"],
    }


def _rows(corpus: Corpus, count: int) -> pd.DataFrame:
    """Return rows of CAL in the order of the hashes of their names, the same everywhere."""
    cal = corpus.split("cal")
    order = sorted(
        range(len(cal)),
        key=lambda row: sha256_bytes(str(cal["trajectory_id"].iloc[row]).encode("utf-8")),
    )
    return cal.iloc[sorted(order[:count])].reset_index(drop=True)


def _reference(
    corpus: Corpus, config: ParityConfig, asked: EndpointSetup, questions: Sequence[Question]
) -> ScoringRun:
    """Score the server's own questions with the local model."""
    from certify_assets.judges.lm.contract import Encoded, verdict_tokens
    from certify_assets.judges.lm.scoring import score_prompts

    language, lora_sha256 = _local(corpus, config)
    tokenizer = language.tokenizer
    language = replace(
        language, verdicts=verdict_tokens(tokenizer, asked.asking.marker, asked.asking.words)
    )
    template = partial(
        tokenizer.apply_chat_template,
        add_generation_prompt=True,
        return_dict=False,
        **asked.asking.extra.get("chat_template_kwargs") or {},
    )
    prompts = [Encoded(_ids(question, tokenizer.encode, template)) for question in questions]
    return score_prompts(language, prompts, adapter_sha256=lora_sha256)


def _ids(
    question: Question,
    encode: Callable[[str], Sequence[int]],
    template: Callable[[list[Any]], Sequence[int]],
) -> tuple[int, ...]:
    """Return the token ids that a server makes of a question: a text, ids, or messages."""
    if isinstance(question, str):
        return tuple(encode(question))
    if question and isinstance(question[0], int):
        return tuple(cast("Sequence[int]", question))
    return tuple(template(list(question)))


def _local(corpus: Corpus, config: ParityConfig) -> tuple[LanguageModel, str]:
    from certify_assets.judges.lm.adapters import load_adapter
    from certify_assets.judges.lm.models import load_model

    base = load_model(config.model, config.revision)
    if not config.adapter:
        return base, ""
    with _adapter_folder(corpus, config.adapter) as folder:
        return load_adapter(base, folder)


@contextmanager
def _adapter_folder(corpus: Corpus, adapter: str) -> Iterator[Path]:
    if adapter in JUDGES:
        JudgedCorpus(corpus, adapter).require_artifact()
        with JudgedCorpus(corpus, adapter).artifact_files() as folder:
            yield folder
        return
    if not Path(adapter).is_dir():
        raise InputError(
            f"the adapter {adapter!r} of the parity test is neither a judge of the platform nor "
            "a folder; correct parity.adapter."
        )
    yield Path(adapter)
