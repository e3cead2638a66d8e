"""The compact model as it is shipped, before any training on the corpus: AUROC of its verdict's
log-odds, next to the lexical judge's.

    python benchmarks/compact_model.py [--quick] [--model DIR] [--corpus miniwob_weak] [--split rl
    --split cal] [--seed 42]

The lexical judge is trained on the corpus's own SFT split. TEST is not read. --quick: one corpus,
its split CAL, two runs a task.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.embedded import EMBEDDED, load_embedded
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.corpora.splits import make_manifest, select
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.judges.lm.contract import Encoded, LanguageModel, load_language_model
from certify_assets.judges.lm.prompt import PromptEncoder

BATCH = 32


@torch.no_grad()
def log_odds(language_model: LanguageModel, prompts: Sequence[Encoded]) -> NDArray[np.float64]:
    """Log-odds of success at the last position, float32 throughout."""
    success, fail = language_model.verdicts.success[0], language_model.verdicts.fail[0]
    found = np.empty(len(prompts))
    order = np.argsort([len(prompt.ids) for prompt in prompts], kind="stable")
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        lengths = torch.tensor([len(prompts[row].ids) for row in rows])
        ids = torch.zeros((len(rows), int(lengths.max())), dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : lengths[place]] = torch.tensor(prompts[row].ids)
        states = language_model.model.model(input_ids=ids).last_hidden_state[
            torch.arange(len(rows)), lengths - 1
        ]
        logits = language_model.model.lm_head(states)
        found[rows] = (logits[:, success] - logits[:, fail]).double().numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=compact_model_path())
    parser.add_argument("--corpus", action="append", choices=EMBEDDED)
    parser.add_argument("--split", action="append", choices=("rl", "cal"))
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--budget", type=int, default=768, help="tokens of a prompt")
    parser.add_argument(
        "--quick", action="store_true", help="one corpus and split, two runs a task"
    )
    options = parser.parse_args()
    corpora, splits = options.corpus or EMBEDDED, options.split or ("rl", "cal")
    if options.quick:
        corpora, splits = corpora[:1], splits[-1:]
    torch.set_num_threads(2)
    language_model = load_language_model(options.model)
    encoder = PromptEncoder(language_model.tokenizer, budget_tokens=options.budget)
    print(
        f"{'corpus':15}{'split':7}{'tasks':>6}{'runs':>6}{'cut':>5}{'base':>8}{'lexical':>9}"
        f"{'ms a run (CPU)':>16}"
    )
    for name in corpora:
        frame = load_embedded(name)
        manifest = make_manifest(frame["task_id"], name, seed=options.seed)
        sft = select(frame, manifest, "sft")
        renderer = Renderer()
        lexical = LexicalJudge.train(
            [item.text for item in render_frame(sft, renderer)],
            sft["outcome"].to_numpy(np.int8),
            renderer_sha256=renderer.sha256,
        )
        for split in splits:
            part = select(frame, manifest, split)
            part = part.groupby("task_id").head(2) if options.quick else part
            outcomes = part["outcome"].to_numpy(np.float64)
            texts = [item.text for item in render_frame(part, renderer)]
            prompts = encoder.encode_texts(texts)
            started = time.process_time()
            base = auroc(log_odds(language_model, prompts), outcomes)
            spent = 1000 * (time.process_time() - started) / len(part)
            floor = auroc(lexical.score(texts).score, outcomes)
            cut = sum(prompt.cut_tokens > 0 for prompt in prompts)
            print(
                f"{name:15}{split:7}{part['task_id'].nunique():6}{len(part):6}{cut:5}"
                f"{base:8.3f}{floor:9.3f}{spent:16.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
