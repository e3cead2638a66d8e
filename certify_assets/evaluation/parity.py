"""The parity test before a server's log-probabilities may certify.

On the same rows they must be those of a local Transformers model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.files import sha256_bytes
from certify_assets.judges.endpoint.judge import BilledJudge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import renderer, texts
from certify_assets.judges.specs import JUDGES, JudgeSpec

if TYPE_CHECKING:
    from certify_assets.judges.base import Scores
    from certify_assets.judges.endpoint.config import ParityConfig
    from certify_assets.judges.endpoint.scoring import EndpointSetup
    from certify_assets.judges.lm.contract import LanguageModel


def parity_exemption(spec: JudgeSpec) -> str | None:
    """Return why a judge needs no parity test, or None where it does."""
    return spec.no_parity


def run_parity(judge: JudgedCorpus) -> dict[str, Any]:
    """Score rows of CAL with the local counterpart, compare, and store the document.

    The server is not asked.

    Raises
    ------
    InputError
        If the judge has no local counterpart.
    """
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
    questions = billed.questions(texts(frame, renderer()))
    reference, about = _reference(judge.corpus, config, billed.judge.asked, questions)
    # no certificate exists yet whose decisions could change: its threshold will be of these scores
    found = parity(
        reference,
        candidate,
        thresholds=(),
        tolerance=config.tolerance,
        least_agreement=config.least_agreement,
    )
    document = {
        "judge": judge.name,
        "corpus": judge.corpus.name,
        **found.to_dict(),
        "engine": billed.provenance().engine,
        "reference": about,
        "configuration": asdict(config),
        "trajectory_ids": [str(name) for name in frame["trajectory_id"]],
        **_bound(judge),
    }
    judge.store.write_json(judge.key("parity.json"), document)
    return document


def parity_provenance(judge: JudgedCorpus) -> dict[str, str]:
    """Return what the certificates of an endpoint judge say about parity.

    Raises
    ------
    StaleCertificateError
        If the test is missing, failed, or is of other scores, another server or other settings
        than those stored now.
    """
    spec = judge.spec
    if not spec.hosted:
        return {}
    if spec.parity is None:
        return {"no_parity": str(spec.no_parity)}
    how = (
        f"run `certify judge parity {judge.corpus} --judge {judge}` or the check "
        f"{judge}/scores:parity"
    )
    if not judge.store.exists(judge.key("parity.json")):
        raise StaleCertificateError(
            f"the scores of {judge} on {judge.corpus} were not compared with those of the local "
            f"model; {how}."
        )
    document = judge.store.read_json(judge.key("parity.json"))
    expected = {**_bound(judge), "configuration": asdict(spec.parity)}
    stale = next((name for name, value in expected.items() if document.get(name) != value), None)
    if stale is not None:
        raise StaleCertificateError(
            f"the parity test of {judge} on {judge.corpus} is of another "
            f"{stale.removesuffix('_sha256')} than the present one; {how}."
        )
    if document.get("passed") is not True:
        raise StaleCertificateError(sentence(document))
    return {"parity_sha256": judge.store.sha256(judge.key("parity.json"))}


def sentence(document: dict[str, Any]) -> str:
    """Say how a parity test went."""
    if document["passed"]:
        return (
            f"{document['judge']} agrees with {document['reference']['model']} of the local "
            f"engine on {document['rows']} rows: log-odds within "
            f"{document['max_difference']:.2g}, rank agreement {document['rank_agreement']:.4f}."
        )
    return (
        f"{document['judge']} differs from {document['reference']['model']} of the local engine "
        f"on {document['rows']} rows: log-odds by up to {document['max_difference']:.2g} "
        f"({document['tolerance']:g} allowed), rank agreement {document['rank_agreement']:.4f} "
        f"(at least {document['least_agreement']:g}), {document['unscored_by_one']} rows scored "
        "by one of them alone; serve the same weights, prompt template and precision, and score "
        "again."
    )


def _bound(judge: JudgedCorpus) -> dict[str, str]:
    """Return what a parity test depends on: registration, scores and manifest."""
    adapter = judge.store.read_json(judge.key("adapter.json"))
    return {
        "adapter_sha256": adapter["adapter_sha256"],
        "scores_sha256": judge.store.sha256(judge.key("scores.parquet")),
        "manifest_sha256": adapter["manifest_sha256"],
    }


def _rows(corpus: Corpus, count: int) -> Any:
    """Return rows of CAL in the order of the hashes of their names, the same everywhere."""
    cal = corpus.split("cal")
    order = sorted(
        range(len(cal)),
        key=lambda row: sha256_bytes(str(cal["trajectory_id"].iloc[row]).encode("utf-8")),
    )
    return cal.iloc[sorted(order[:count])].reset_index(drop=True)


def _reference(
    corpus: Corpus, config: ParityConfig, asked: EndpointSetup, questions: Sequence[Any]
) -> tuple[Scores, dict[str, Any]]:
    """Score the server's own questions with the local model."""
    from certify_assets.judges.lm.contract import Encoded, verdict_tokens
    from certify_assets.judges.lm.scoring import score_prompts

    with _local(corpus, config) as (language, lora_sha256):
        tokenizer = language.tokenizer
        language = replace(
            language, verdicts=verdict_tokens(tokenizer, asked.asking.marker, asked.asking.words)
        )
        options = dict(asked.asking.extra.get("chat_template_kwargs") or {})
        prompts = [Encoded(tuple(_ids(tokenizer, question, options))) for question in questions]
        run = score_prompts(language, prompts, adapter_sha256=lora_sha256)
    return run.scores, dict(run.fingerprint)


def _ids(tokenizer: Any, question: Any, options: dict[str, Any]) -> list[int]:
    """Return the token ids that a server makes of a question."""
    if isinstance(question, str):
        return list(tokenizer.encode(question))
    if question and isinstance(question[0], int):
        return list(question)
    return list(
        tokenizer.apply_chat_template(
            list(question), add_generation_prompt=True, return_dict=False, **options
        )
    )


@contextmanager
def _local(corpus: Corpus, config: ParityConfig) -> Iterator[tuple[LanguageModel, str]]:
    from certify_assets.judges.lm.adapters import AdapterBank
    from certify_assets.judges.lm.compact import load_compact
    from certify_assets.judges.lm.contract import load_language_model

    base = (
        load_compact()
        if config.model == "compact"
        else load_language_model(config.model, revision=config.revision)
    )
    if not config.adapter:
        yield base, ""
        return
    bank = AdapterBank(base)
    with _adapter_folder(corpus, config.adapter) as folder:
        bank.add("local", folder)
    with bank.using("local") as (language, sha256):
        yield language, sha256


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
