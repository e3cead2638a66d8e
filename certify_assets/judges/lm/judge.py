"""The language-model judge: a base model, a prompt, and perhaps an adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError, IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.base import JudgeProvenance, Scores
from certify_assets.judges.lm.adapters import Provenance, load_adapter
from certify_assets.judges.lm.language_model import Hardware, LanguageModel, files_of, is_folder
from certify_assets.judges.lm.models import known_model, require_commit
from certify_assets.judges.lm.prompt import PromptEncoder
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.lm.score import ScoringConfig, score_prompts
from certify_assets.judges.reading import COMPACT, JudgeInput
from certify_assets.work import Advance, Report, silent

if TYPE_CHECKING:
    import pandas as pd

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
    progress: Callable[[int, int], None] = field(default=lambda *_: None, repr=False)

    @property
    def adapter_sha256(self) -> str:
        """Hash of everything chosen or trained: base model, prompt and adapter."""
        return sha256_bytes(canonical_json(self._document()))

    def provenance(self) -> JudgeProvenance:
        """Say what the scores depend on."""
        import torch
        import transformers

        model, config = self.language.model, ScoringConfig.suited(self.language)
        on = Hardware.of(model)
        versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
        return JudgeProvenance(
            judge=self.name,
            adapter_sha256=self.adapter_sha256,
            renderer_sha256=self.encoder.renderer.sha256,
            engine=f"{versions}, {on.device}",
            dtype=on.dtype,
            settings={
                **self._document(),
                "batching": {"token_budget": config.token_budget, "rows": config.rows},
                "attention": str(getattr(model.config, "_attn_implementation", "")),
            },
        )

    def score(self, texts: Sequence[str]) -> Scores:
        """Judge rendered trajectories."""
        return score_prompts(
            self.language,
            self.encoder.encode_texts(texts),
            identity=self.provenance().sha256,
            shards=self.shards,
            progress=self.progress,
        )

    def save(self, folder: Path) -> None:
        """Write the adapter, if there is one, and its provenance, without the base model."""
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
        if document["lora_sha256"]:
            judge = judge.with_adapter(folder)
        for key, value in judge._document().items():
            if document.get(key) != value:
                raise StaleCertificateError(
                    f"the judge in {folder} was made with another {key} than the present one; "
                    "train it again."
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

    def fine_tuned(
        self,
        labelled: pd.DataFrame,
        folder: Path,
        *,
        recipe: Recipe,
        seed: int,
        report: Report = silent,
    ) -> tuple[CausalJudge, Provenance]:
        """Fine-tune the base model; return the judge with its adapter, and the provenance."""
        from certify_assets.judges.lm.sft import SftConfig, require_both_outcomes, train_sft

        labelled = recipe.drawn(labelled, seed)
        outcomes = [int(outcome) for outcome in labelled["outcome"]]
        require_both_outcomes(self.name, outcomes)
        trained = train_sft(
            self.language,
            self.encoder.encode_frame(labelled),
            outcomes,
            folder,
            config=SftConfig(epochs=recipe.epochs, learning_rate=recipe.learning_rate, seed=seed),
            checkpoint_steps=recipe.checkpoint_steps,
            progress=lambda step, steps, loss: report(Advance("sft", step, steps, loss)),
        )
        return self.with_adapter(folder), trained

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
    """Load a language model with the encoder of its prompts, by its name in a configuration.

    Parameters
    ----------
    model, revision
        A known name, a folder, or a hub's name with its commit.
    reading
        How much of a run is read, and the prompt around it.

    Raises
    ------
    InputError
        When there is no such model, its files cannot be read or lack weights, or it is not made
        for the reading.
    """
    require_commit(model, revision)
    known = known_model(model)
    files = files_of(known.path(model), revision)
    # refused before the weights, which take longest
    encoder = PromptEncoder(
        files.tokenizer(),
        prompt=reading.prompt,
        renderer=reading.renderer,
        budget_tokens=_budget(model, known.context or _context(files.config()), reading),
    )
    language = LanguageModel(
        model=files.model(Hardware() if known.exact else Hardware.present()),
        tokenizer=encoder.tokenizer,
        verdicts=encoder.verdicts,
        source=Path(model).name if is_folder(model) else model,
        revision=known.revision or files.revision,
    )
    return language, encoder


def _budget(name: str, context: int | None, reading: JudgeInput) -> int:
    """Return the tokens of a prompt; refuse more than the model's context."""
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
