"""The language-model judge: a base model, a prompt, and perhaps an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from certify_assets.errors import InputError, IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.base import JudgeProvenance, Scores
from certify_assets.judges.lm.adapters import load_adapter
from certify_assets.judges.lm.contract import (
    Encoded,
    Hardware,
    LanguageModel,
    reason_of,
    require_hub,
)
from certify_assets.judges.lm.models import known_model, load_model, require_commit
from certify_assets.judges.lm.prompt import PromptEncoder
from certify_assets.judges.lm.scoring import ScoringConfig, engine_fingerprint, score_prompts
from certify_assets.judges.reading import COMPACT, JudgeInput


@dataclass(frozen=True, slots=True)
class Parity:
    """How far the scores of an engine are from those of the reference on the same rows."""

    rows: int
    unscored_by_one: int
    # of the log-odds, absolute
    max_difference: float
    mean_difference: float
    rank_agreement: float  # Kendall's tau-b of the two orders; 1 where all rows tie in both
    tolerance: float
    least_agreement: float

    @property
    def passed(self) -> bool:
        """Whether the engine may stand in for the reference."""
        close = (
            self.max_difference <= self.tolerance and self.rank_agreement >= self.least_agreement
        )
        return self.rows > 0 and close and self.unscored_by_one == 0

    def require(self, engine: str) -> None:
        """Raise unless the engine passed."""
        if not self.passed:
            raise StaleCertificateError(
                f"engine {engine} differs from the reference on {self.rows} rows: log-odds by up "
                f"to {self.max_difference:.2g} ({self.tolerance:g} allowed), rank agreement "
                f"{self.rank_agreement:.4f} (at least {self.least_agreement:g}), "
                f"{self.unscored_by_one} rows scored by one of them alone; certify with the "
                "reference's scores, or calibrate again with this engine's."
            )

    def to_dict(self) -> dict[str, float]:
        """Return the report as a JSON object."""
        return {**asdict(self), "passed": self.passed}


def parity(
    scores_a: Scores,
    scores_b: Scores,
    *,
    tolerance: float = 0.02,
    least_agreement: float = 0.99,
) -> Parity:
    """Compare two engines on the same rows."""
    from scipy.stats import kendalltau

    a, b = scores_a.score, scores_b.score
    both = ~np.isnan(a) & ~np.isnan(b)
    first, second = a[both], b[both]
    # equal infinities are no difference
    with np.errstate(invalid="ignore"):
        apart = np.where(first == second, 0.0, np.abs(first - second))
    flat = len(first) < 2 or (np.ptp(first) == 0 and np.ptp(second) == 0)
    tau = 1.0 if flat else float(kendalltau(first, second).statistic)
    return Parity(
        rows=int(both.sum()),
        unscored_by_one=int((np.isnan(a) != np.isnan(b)).sum()),
        max_difference=float(apart.max(initial=0.0)),
        mean_difference=float(apart.mean()) if len(apart) else 0.0,
        rank_agreement=0.0 if np.isnan(tau) else tau,
        tolerance=tolerance,
        least_agreement=least_agreement,
    )


_ROWS = 16


class EngineLimits(TypedDict):
    """What the parity of an engine asks for."""

    rows: int
    tolerance: float
    least_agreement: float


def engine_limits(judge: LanguageModel) -> EngineLimits:
    """Return what `engine_parity` asks for, as JSON values."""
    # weights of eight bits of precision round otherwise in other batches; an engine that read
    # another row's tokens, or the wrong position, would differ by the spread of the scores
    half = Hardware.of(judge.model).half
    return {
        "rows": _ROWS,
        "tolerance": 0.5 if half else 1e-3,
        "least_agreement": 0.8 if half else 0.99,
    }


def engine_parity(
    judge: LanguageModel, prompts: Sequence[Encoded], *, config: ScoringConfig
) -> Parity:
    """Compare an engine with the reference, which reads each row alone."""
    limits = engine_limits(judge)
    order = sorted(range(len(prompts)), key=lambda row: (len(prompts[row].ids), prompts[row].ids))
    step = max(1, len(order) // limits["rows"])
    sample = [prompts[row] for row in order[::step][:_ROWS]]
    reference = score_prompts(judge, sample, config=ScoringConfig(rows=1))
    found = score_prompts(judge, sample, config=config)
    return parity(
        reference.scores,
        found.scores,
        # a trained judge gives more extreme log-odds, which rounding moves further
        tolerance=limits["tolerance"] * max(1.0, float(np.nanstd(reference.scores.score))),
        least_agreement=limits["least_agreement"],
    )


JUDGE_FILE = "judge.json"
_SCHEMA = "certify_assets/causal-judge/1"
# of a prompt where nothing else is configured and the model's context is no shorter
_TOKENS = 5120


@dataclass(frozen=True, eq=False)
class CausalJudge:
    """A causal language model read at one position, Eq. 4 of the paper."""

    name: str
    language: LanguageModel
    encoder: PromptEncoder
    adapter: Path | None = None
    lora_sha256: str = ""
    # where finished shares of a scoring are kept, so that a killed one resumes
    shards: Path | None = None
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)

    @property
    def adapter_sha256(self) -> str:
        """Hash of everything that was chosen or trained: base model, prompt and adapter."""
        return sha256_bytes(canonical_json(self._document()))

    def provenance(self) -> JudgeProvenance:
        """Say what the scores depend on."""
        config = ScoringConfig.suited(self.language)
        fingerprint = engine_fingerprint(self.language, self.lora_sha256, config)
        fast = not config.is_reference
        return JudgeProvenance(
            judge=self.name,
            adapter_sha256=self.adapter_sha256,
            renderer_sha256=self.encoder.renderer.sha256,
            engine=fingerprint.engine,
            dtype=fingerprint.dtype,
            settings={
                **self._document(),
                "batching": fingerprint.batching,
                "attention": fingerprint.attention,
                **({"parity": engine_limits(self.language)} if fast else {}),
            },
        )

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories."""
        prompts, config = self.encoder.encode_texts(texts), ScoringConfig.suited(self.language)
        if prompts and not config.is_reference:
            fingerprint = engine_fingerprint(self.language, self.lora_sha256, config)
            engine_parity(self.language, prompts, config=config).require(fingerprint.engine)
        return score_prompts(
            self.language,
            prompts,
            config=config,
            adapter_sha256=self.lora_sha256,
            shards=self.shards,
            progress=self.progress,
        ).scores

    def save(self, folder: Path) -> None:
        """Write the adapter, where there is one, and what it belongs to; not the base model."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.adapter is not None and self.adapter != folder:
            for path in sorted(path for path in self.adapter.iterdir() if path.is_file()):
                write_atomic(folder / path.name, path.read_bytes())
        write_atomic(folder / JUDGE_FILE, canonical_json(self._document()))

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        base: LanguageModel,
        encoder: PromptEncoder,
        name: str,
        expected_sha256: str,
    ) -> CausalJudge:
        """Read a saved judge."""
        document = read_json(folder / JUDGE_FILE)
        judge = cls(name, base, encoder)
        if isinstance(document, dict) and document.get("lora_sha256"):
            judge = judge.with_adapter(folder)
        differing = [
            key
            for key, value in judge._document().items()
            if not isinstance(document, dict) or document.get(key) != value
        ]
        if differing:
            raise StaleCertificateError(
                f"the judge in {folder} was made with another {differing[0]} than the present "
                "one; train it again."
            )
        if judge.adapter_sha256 != expected_sha256:
            raise IntegrityError(
                f"the judge in {folder} is not the one that was recorded; train it again or "
                "restore its files."
            )
        return judge

    def with_adapter(self, folder: Path) -> CausalJudge:
        """Return the judge with an adapter on its base model."""
        language, sha256 = load_adapter(self.language, folder)
        return replace(self, language=language, adapter=folder, lora_sha256=sha256)

    def _document(self) -> dict[str, str]:
        return {
            "schema": _SCHEMA,
            "model": self.language.source,
            "revision": self.language.revision,
            "encoder_sha256": self.encoder.sha256,
            "lora_sha256": self.lora_sha256,
        }


def load_base(
    model: str, revision: str | None = None, reading: JudgeInput = COMPACT
) -> tuple[LanguageModel, PromptEncoder]:
    """Load a base model with the encoder of its prompts; refuse a reading it is not made for."""
    language = load_model(model, revision, reading.prompt, Hardware.present())
    encoder = PromptEncoder(
        language.tokenizer,
        prompt=reading.prompt,
        renderer=reading.renderer,
        budget_tokens=_budget(model, language, reading),
    )
    return replace(language, verdicts=encoder.verdicts), encoder


def _budget(name: str, language: LanguageModel, reading: JudgeInput) -> int:
    """Return the tokens of a prompt; refuse more than the model's context."""
    context = known_model(name).context or _context(language.model.config)
    if reading.tokens is None:
        return min(_TOKENS, context or _TOKENS)
    if context is not None and reading.tokens > context:
        raise InputError(
            f"a judge is to read {reading.tokens:,} tokens and the context of {name} is "
            f"{context:,}; give tokens of at most {context:,}."
        )
    return reading.tokens


def _context(config: Any) -> int | None:
    """Return the longest input that a model's configuration declares, if it does."""
    # of a model that also reads images, that of its text; MPT has a name of its own
    text = config.get_text_config(decoder=True)
    found = [getattr(text, name, None) for name in ("max_position_embeddings", "max_seq_len")]
    # XLNet declares −1 for any
    return next((size for size in found if type(size) is int and size > 0), None)


def load_tokenizer(model: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a base model alone."""
    from transformers import AutoTokenizer

    require_commit(model, revision)
    folder = Path(known_model(model).path(model))
    if not folder.is_dir() and revision is None:
        raise InputError(
            f"{model} is no folder and has no revision; give the commit of the hub repository of "
            "the tokenizer."
        )
    if revision is not None:
        require_hub(model, revision)
    keywords = {} if revision is None else {"revision": revision}
    try:
        return AutoTokenizer.from_pretrained(
            str(folder) if folder.is_dir() else model, trust_remote_code=False, **keywords
        )
    except Exception as error:
        # somebody's files decide what fails in the library that reads them
        raise InputError(
            f"the tokenizer of {model} cannot be loaded ({reason_of(error)}); check name and "
            "revision."
        ) from None
