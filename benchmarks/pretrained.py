"""What a pretrained language model ranks and certifies next to the judges that need seconds.

    python benchmarks/pretrained.py [--data DIR] [--corpus NAME …] [--per-task 5] [--tokens 512]
                                    [--runs N] [--seed 42] [--root DIR] [--speed] [--quick]

Terminal-Bench, InterCode and τ-bench retail of the folder of published runs DIR (../shared/data),
where they are there, at most --per-task runs of a task (the same for every judge; 0 for all). The
seed splits the tasks; a judge is trained on SFT, and RL and CAL certify it at δ = .05:
  lexical, combined   the judges of words, and of words and structure;
  compact base, sft   the compact model of the package as it comes, and with LoRA on verdicts;
  smollm2 base, sft   SmolLM2-135M-Instruct of the extra [smollm2] likewise, --tokens of a prompt
                      and at most --runs runs of the training (by default what `model: smollm2` has).
A row has
  runs     those of the training;
  AUROC    on CAL and TEST together, which no judge is trained on, and on TEST alone;
  guarded  certified coverage by guarded_taskboot (0 where nothing is certified), rejected at α = .1
           and .2, then released at .1 and .2; pseudo: … by pseudo_task;
  above    certificates of both whose error on TEST is above α, of those issued (noise of TEST
           included);
  CPU s    of the training, and of scoring RL, CAL and TEST, rendering left out; MiB: the peak of the
           process so far.
With --root checkpoints and scores are kept there, and a run that was stopped resumes; its CPU
seconds are then those of the rest. --speed prints instead what SmolLM2 reads and trains on in a CPU
second, in bfloat16 and in float32, prompts of --tokens tokens. --quick: both, with ten tasks of an
embedded corpus, 144 tokens, 2 runs of a training and of the speed, which is that of the type that
suits this CPU; SmolLM2 only where it is installed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED, labelled_runs
from structure import FIRST_SEED, PROCEDURES, USING, combined, lexical, thresholds

from certify_assets.certificates import Settings, observe
from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.errors import InputError
from certify_assets.judges.base import Judge, score_table
from certify_assets.judges.lm.contract import Encoded, Hardware, load_language_model
from certify_assets.judges.lm.judge import CausalJudge, load_base
from certify_assets.judges.lm.models import SMOLLM2, known_model
from certify_assets.judges.lm.scoring import score_prompts
from certify_assets.judges.lm.sft import fine_tuned, train_sft
from certify_assets.judges.lm.sft_config import SftConfig, SftRow
from certify_assets.judges.lm.smollm2 import smollm2_path
from certify_assets.judges.reading import COMPACT, JudgeInput
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, SIDES

CORPORA = ("terminal_bench_core", "intercode_bash", "taubench_retail")
MODELS = {"compact": COMPACT, "smollm2": SMOLLM2}
SPEED_ROWS = 8
# the prompt around a run has 107 tokens
QUICK_TASKS, QUICK_TOKENS, QUICK_RUNS = 10, 144, 2


def judges(
    sft: pd.DataFrame, root: Path, options: argparse.Namespace
) -> Iterator[tuple[str, int, Judge, float]]:
    """Train judge after judge: name, rows of the training, the judge, CPU seconds."""
    texts = [item.text for item in render_frame(sft, USING)]
    for name, train in (("lexical", lexical), ("combined", combined)):
        started = time.process_time()
        model = train(sft, texts, options.seed)
        yield name, len(sft), model, time.process_time() - started
    for name, reading in MODELS.items():
        try:
            base = causal(name, reading, root, options)
        except InputError as error:
            print(f"{name}: skipped, {error}")
            continue
        yield f"{name} base", 0, base, 0.0
        recipe = known_model(name).recipe
        if options.runs and name == "smollm2":
            recipe = replace(recipe, runs=options.runs)
        started = time.process_time()
        model, trained = fine_tuned(
            causal(name, reading, root, options),
            sft,
            root / name,
            model=name,
            seed=options.seed,
            recipe=recipe,
        )
        yield f"{name} sft", trained.inputs.rows, model, time.process_time() - started


def causal(name: str, reading: JudgeInput, root: Path, options: argparse.Namespace) -> CausalJudge:
    """Load a language model as it comes."""
    asked = options.tokens if name == "smollm2" else None
    reading = replace(reading, tokens=asked or reading.tokens)
    return CausalJudge(name, *load_base(name, None, reading), shards=root / "shards")


def corpus_rows(name: str, options: argparse.Namespace) -> pd.DataFrame | str:
    """Return the labelled runs, at most so many of a task; a sentence where there are none."""
    frame = labelled_runs(name, options.data)
    if isinstance(frame, str) or not options.per_task:
        return frame
    shuffled = frame.sample(frac=1.0, random_state=options.seed)
    return shuffled.groupby("task_id").head(options.per_task).sort_index().reset_index(drop=True)


def show(name: str, frame: pd.DataFrame, root: Path, options: argparse.Namespace) -> None:
    """Print the table of a corpus, a row as soon as it is known."""
    manifest = make_manifest(frame["task_id"].unique(), name, seed=options.seed)
    split = frame["task_id"].map(manifest.assignment)
    counts = split.value_counts()
    print(
        f"\n{name}: {len(frame)} runs of {frame['task_id'].nunique()} tasks, "
        + ", ".join(f"{part} {counts.get(part, 0)}" for part in ("sft", "rl", "cal", "test"))
        + f"; successes {frame['outcome'].mean():.2f}\n{'judge':14}{'runs':>5}{'AUROC':>7}{'TEST':>6}"
        f"  {'guarded: reject, release':28}{'pseudo: reject, release':28}{'above':>6}{'CPU s':>14}"
        f"{'MiB':>7}",
        flush=True,
    )
    rest = frame[split != "sft"]
    rendered, where = render_frame(rest, USING), split[split != "sft"].to_numpy()
    for judge, runs, model, train_seconds in judges(frame[split == "sft"], root, options):
        started = time.process_time()
        table = score_table(model, rest, USING, rendered=rendered)
        seconds = time.process_time() - started
        test, certifying = (columns(table[(where == "test") == side]) for side in (True, False))
        unseen = columns(table[where != "rl"])
        observed = observe(*certifying)
        found = [
            thresholds(
                observed,
                *test[:2],
                Settings(alpha=alpha, delta=DELTA, side=side, procedure=procedure),
            )
            for procedure, side, alpha in product(PROCEDURES, SIDES, ALPHAS)
        ]
        issued = [above for coverage, above in found if coverage]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{judge:14}{runs:5}{auroc(unseen[0], unseen[1].astype(np.float64)):7.3f}"
            f"{auroc(test[0], test[1].astype(np.float64)):6.3f}  "
            + "".join(f"{coverage:7.3f}" for coverage, _ in found)
            + f"{sum(issued):4}/{len(issued)}{train_seconds:8.1f}{seconds:8.1f}"
            + f"{peak / (1024 if sys.platform != 'darwin' else 1024**2):7,.0f}",
            flush=True,
        )


def speed(tokens: int, *, quick: bool) -> None:
    """Print tokens per CPU second of scoring and of fine-tuning, in either type of weights."""
    here = Hardware.present().dtype
    count, dtypes = (QUICK_RUNS, [here]) if quick else (SPEED_ROWS, ["bfloat16", "float32"])
    marker, words = SMOLLM2.prompt.marker, SMOLLM2.prompt.words
    ids = np.random.default_rng(0).integers(100, 40_000, (count, tokens)).tolist()
    prompts = [Encoded(tuple(row)) for row in ids]
    rows = [SftRow(prompt, place % 2) for place, prompt in enumerate(prompts)]
    config = SftConfig(max_tokens=tokens + 1)
    print(f"\nSmolLM2, {tokens} tokens a prompt, tokens per CPU second; suited to this CPU: {here}")
    for dtype in dtypes:
        model = load_language_model(smollm2_path(), dtype=dtype, marker=marker, words=words)
        score_prompts(model, prompts[:1])
        started = time.process_time()
        score_prompts(model, prompts)
        scored = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            train_sft(model, rows, Path(folder), config=config, packed=True)
        done = time.process_time()
        read = tokens * count
        print(
            f"{dtype:10}scoring{read / (scored - started):8.0f}  "
            f"training{read / (done - scored):8.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--per-task", type=int, default=5)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    corpora = options.corpus or list(CORPORA)
    if options.quick:
        corpora = [next(iter(EMBEDDED))]
        options.tokens, options.runs, options.per_task = QUICK_TOKENS, QUICK_RUNS, 2
    if options.speed or options.quick:
        try:
            speed(options.tokens or SMOLLM2.tokens, quick=options.quick)
        except InputError as error:
            print(f"SmolLM2: skipped, {error}")
    if options.speed:
        return
    for name in corpora:
        frame = corpus_rows(name, options)
        if isinstance(frame, str):
            print(frame)
            continue
        if options.quick:
            first = frame["task_id"].unique()[:QUICK_TASKS]
            frame = frame[frame["task_id"].isin(first)].reset_index(drop=True)
        with tempfile.TemporaryDirectory() as temporary:
            show(name, frame, (options.root or Path(temporary)) / name, options)


if __name__ == "__main__":
    main()
