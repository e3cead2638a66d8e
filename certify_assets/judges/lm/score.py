"""Eq. 4 of the paper: log-probabilities of the two verdicts where the prompt ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.base import Scores
from certify_assets.judges.lm.adapters import inner_model
from certify_assets.judges.lm.language_model import Encoded, Hardware, LanguageModel
from certify_assets.processes import own_cores

# what some architectures do to the logits after the head; reading the head alone would leave it out
_AFTER_THE_HEAD = (
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)

#: prompts that are read at once
Batch = Sequence[Encoded]


@dataclass(frozen=True, slots=True)
class ScoringConfig:
    """How prompts are put into batches."""

    # most tokens in a batch, padding included; a longer prompt has a batch for itself
    token_budget: int = 16_384
    rows: int = 0  # most prompts in a batch; 0 = as many as the budget holds
    # batches at once on a CPU, each on one thread; 0 = one for each core of this process. The
    # numbers do not depend on it
    workers: int = 0
    shard_rows: int = 64  # least prompts in a share of the work that is kept

    @classmethod
    def suited(cls, judge: LanguageModel) -> ScoringConfig:
        """Return what suits a model and its device."""
        # on a CPU a prompt fills a core, so each has a batch for itself: no padding, and a score
        # that depends on no other prompt, which is the reference of all engines
        return cls(token_budget=65_536) if Hardware.of(judge.model).accelerated else cls(rows=1)

    @property
    def is_reference(self) -> bool:
        """Whether each prompt is read by itself."""
        return self.rows == 1

    def numbers(self) -> dict[str, int]:
        """Return the settings that the numbers depend on."""
        return {"token_budget": self.token_budget, "rows": self.rows}

    def tokens(self, batch: Batch) -> int:
        """Return the size of a batch, its padding included."""
        return len(batch) * max(len(prompt.ids) for prompt in batch)


@dataclass(frozen=True, slots=True)
class EngineFingerprint:
    """What the numbers of a run depend on, besides the prompts; equal for comparable runs."""

    model: str
    revision: str
    adapter_sha256: str
    engine: str
    attention: str
    dtype: str
    verdicts: list[list[int]]
    batching: dict[str, int]

    @classmethod
    def of(
        cls, judge: LanguageModel, adapter_sha256: str, config: ScoringConfig
    ) -> EngineFingerprint:
        """Say what the scores of a model depend on."""
        import torch
        import transformers

        on = Hardware.of(judge.model)
        return cls(
            model=judge.source,
            revision=judge.revision,
            adapter_sha256=adapter_sha256,
            engine=f"transformers {transformers.__version__}, torch {torch.__version__}, "
            f"{on.device}",
            attention=str(getattr(judge.model.config, "_attn_implementation", "")),
            dtype=on.dtype,
            verdicts=[list(judge.verdicts.success), list(judge.verdicts.fail)],
            batching=config.numbers(),
        )


@dataclass(frozen=True, eq=False)
class ScoringRun:
    """Scores and how they came about."""

    scores: Scores  # NaN where a logit was not finite
    fingerprint: EngineFingerprint
    # of the prompts; of the batches as planned, padding included
    tokens: int
    padded_tokens: int
    # times that memory ran out; prompts whose scores an earlier run left
    out_of_memory: int
    kept_rows: int


def score_prompts(
    judge: LanguageModel,
    prompts: Sequence[Encoded],
    *,
    config: ScoringConfig | None = None,
    adapter_sha256: str = "",
    shards: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ScoringRun:
    """Score prompts; shares of the work that are kept in the folder `shards` are taken up."""
    config = config or ScoringConfig.suited(judge)
    fingerprint = EngineFingerprint.of(judge, adapter_sha256, config)
    batches = compose(prompts, config)
    values = np.full((len(prompts), 2), np.nan)
    done = kept = 0

    def report(further: int) -> None:
        if progress is not None:
            progress(done + further, len(prompts))

    with _Runner.on(judge, config) as runner:
        for group in _groups(batches, config.shard_rows):
            places = [place for batch in group for place in batch]
            wanted = [[prompts[place] for place in batch] for batch in group]
            shard = None if shards is None else shards / f"{_key(fingerprint, wanted)}.json"
            found = _kept(shard, len(places))
            if found is None:
                found = runner.run(wanted, report)
                _keep(shard, found)
            else:
                kept += len(places)
            values[places] = found
            done += len(places)
            report(0)
    return ScoringRun(
        scores=Scores(values[:, 0].copy(), values[:, 1].copy()),
        fingerprint=fingerprint,
        tokens=sum(len(prompt.ids) for prompt in prompts),
        padded_tokens=sum(config.tokens([prompts[row] for row in batch]) for batch in batches),
        out_of_memory=runner.out_of_memory,
        kept_rows=kept,
    )


def compose(prompts: Batch, config: ScoringConfig) -> list[list[int]]:
    """Put prompts into batches, the longest first: memory runs out at the start or never."""
    batches: list[list[int]] = []
    for row in sorted(
        range(len(prompts)), key=lambda row: (-len(prompts[row].ids), prompts[row].ids)
    ):
        joined = [*batches[-1], row] if batches else [row]
        fits = config.tokens([prompts[one] for one in joined]) <= config.token_budget
        if batches and fits and not 0 < config.rows < len(joined):
            batches[-1] = joined
        else:
            batches.append([row])
    return batches


def _groups(batches: list[list[int]], least: int) -> Iterator[list[list[int]]]:
    """Join batches to shares of the work that are kept together."""
    group: list[list[int]] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= least or batch is batches[-1]:
            yield group
            group = []


def _key(fingerprint: EngineFingerprint, group: Sequence[Batch]) -> str:
    """Name a share by everything its numbers depend on."""
    batches = [[list(prompt.ids) for prompt in batch] for batch in group]
    return sha256_bytes(canonical_json({"engine": asdict(fingerprint), "batches": batches}))


def _keep(shard: Path | None, values: NDArray[np.float64]) -> None:
    if shard is not None:
        rows = [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]
        document = {"log_probs": rows, "sha256": sha256_bytes(canonical_json(rows))}
        write_atomic(shard, canonical_json(document))


def _kept(shard: Path | None, rows: int) -> NDArray[np.float64] | None:
    """Return the numbers of a share; None where it is absent or damaged."""
    if shard is None or not shard.is_file():
        return None
    try:
        document = read_json(shard)
        found = document["log_probs"]
        whole = document["sha256"] == sha256_bytes(canonical_json(found))
        return np.array(found, dtype=np.float64).reshape(rows, 2) if whole else None
    except (CertifyError, KeyError, TypeError, ValueError):
        return None


class _Runner:
    """Runs batches; where memory runs out, halves the token budget for the rest of the run."""

    def __init__(
        self, judge: LanguageModel, config: ScoringConfig, pool: ThreadPoolExecutor | None
    ) -> None:
        self._reader = VerdictReader.of(judge)
        self._config = config
        self._map = map if pool is None else pool.map
        self.out_of_memory = 0

    @classmethod
    @contextmanager
    def on(cls, judge: LanguageModel, config: ScoringConfig) -> Iterator[_Runner]:
        if Hardware.of(judge.model).accelerated:
            yield cls(judge, config, None)
            return
        # the number of threads of a matrix product may change its last bits: one thread each, many
        # batches at once
        with ThreadPoolExecutor(config.workers or own_cores(), initializer=_one_thread) as pool:
            yield cls(judge, config, pool)

    def run(self, batches: Sequence[Batch], report: Callable[[int], None]) -> NDArray[np.float64]:
        found: list[NDArray[np.float64]] = []
        for values in self._map(self._read, batches):
            found.append(values)
            report(sum(map(len, found)))
        return np.concatenate(found)

    def _read(self, batch: Batch) -> NDArray[np.float64]:
        while True:
            config = self._config
            parts = compose(batch, config)
            try:
                read = [self._reader.read([batch[row].ids for row in part]) for part in parts]
                return np.concatenate(read)
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                if len(parts) == len(batch):
                    raise InputError(
                        f"a prompt of {len(batch[0].ids)} tokens alone does not fit into the "
                        f"memory of {self._reader.hardware.device}; encode with fewer tokens."
                    ) from None
            # outside the handler: the traceback would keep the tensors of the failed pass alive
            self.out_of_memory += 1
            tokens = min(config.token_budget, config.tokens(batch))
            self._config = replace(config, token_budget=max(1, tokens // 2))
            self._reader.hardware.free_memory()


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    return isinstance(
        error, MemoryError | torch.OutOfMemoryError
    ) or "can't allocate memory" in str(error)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@dataclass(frozen=True, eq=False)
class VerdictReader:
    """The parts of a model that a verdict is read from (Eq. 4)."""

    decoder: Any
    # the head in float32: in bfloat16, 224 prompts had 45 distinct scores
    head: Any
    bias: Any
    verdicts: tuple[tuple[int, ...], tuple[int, ...]]
    hardware: Hardware

    @classmethod
    def of(cls, judge: LanguageModel) -> VerdictReader:
        """Take a language model apart."""
        inner = inner_model(judge.model)
        text = inner.config.get_text_config()
        for name in _AFTER_THE_HEAD:
            if getattr(text, name, None) not in (None, 1, 1.0):
                raise InputError(
                    f"{judge.source} changes its logits after the head ({name}); choose a model "
                    "without it, such as Qwen3."
                )
        head = inner.get_output_embeddings()
        bias = getattr(head, "bias", None)
        return cls(
            decoder=inner.get_decoder(),
            head=head.weight.detach().float(),
            bias=None if bias is None else bias.detach().float(),
            verdicts=(judge.verdicts.success, judge.verdicts.fail),
            hardware=Hardware.of(inner),
        )

    def read(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return log-probabilities of success and failure for a batch, of shape (rows, 2)."""
        import torch

        # a verdict's last token is predicted, the ones before it are read
        passes: dict[tuple[int, ...], Any] = {}
        totals = []
        with torch.inference_mode():
            for verdict in self.verdicts:
                before = verdict[:-1]
                if before not in passes:
                    passes[before] = self._log_probs(rows, before)
                tokens = torch.tensor(verdict, device=passes[before].device)
                steps = torch.arange(len(verdict), device=tokens.device)
                totals.append(passes[before][:, steps, tokens].sum(dim=1))
            values = torch.stack(totals, dim=1).double().cpu().numpy()
        values[~np.isfinite(values).all(axis=1)] = np.nan
        return np.asarray(values, dtype=np.float64)

    def _log_probs(self, rows: Sequence[Sequence[int]], before: tuple[int, ...]) -> Any:
        """Return log-probabilities at the end of each prompt and after each token of a verdict."""
        import torch

        read = [[*row, *before] for row in rows]
        width = max(map(len, read))
        # token 0 pads: it comes after everything that is read, where causal attention does not look
        ids = self.hardware.tensor([row + [0] * (width - len(row)) for row in read])
        hidden = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        ends = torch.tensor([[len(row) - 1] for row in rows], device=hidden.device)
        places = ends + torch.arange(len(before) + 1, device=hidden.device)
        last = hidden[torch.arange(len(rows), device=hidden.device)[:, None], places]
        logits = torch.nn.functional.linear(last.float(), self.head, self.bias)
        return torch.log_softmax(logits, dim=-1)
