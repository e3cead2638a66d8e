"""A ladder of language-model judges on published runs: SmolLM2 as it comes, fine-tuned, and
reinforced by exact GRPO, each with its certificates.

    python benchmarks/gpu_judges.py prepare FOLDER [--corpus NAME …]
    python benchmarks/gpu_judges.py run FOLDER [--tokens 2048] [--limit SECONDS] [--tenth]
                                        [--out FILE]

`prepare` imports the runs, splits them by task as the platform does and writes one small table a
corpus with the rendered texts. `run` reads those tables alone and needs no network. SFT trains on
SFT, GRPO on RL (arm reject_3, fixed beforehand), the certificates are issued on CAL and audited on
TEST. A line is a judge: AUROC on CAL and TEST, the share that each side decides on CAL at
α = 0.1 and 0.2, and the realised error on TEST. --tenth reads a tenth of everything: it shows on a
CPU that the script runs. --out writes every figure as JSON.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from certify_assets.certificates import certify
from certify_assets.certificates.auroc import auroc
from certify_assets.errors import CertifyError
from certify_assets.files import write_json_atomic
from certify_assets.judges.lm.grpo import GrpoConfig, GrpoRun
from certify_assets.judges.lm.judge import CausalJudge, load_base
from certify_assets.judges.lm.language_model import Hardware
from certify_assets.judges.lm.models import SMOLLM2
from certify_assets.judges.lm.reward import ARMS
from certify_assets.judges.lm.sft import SftConfig, train_sft

CORPORA = ("taubench_retail", "terminal_bench_core", "swebench_lite_acr")
SPLITS = ("sft", "rl", "cal", "test")
BUDGETS = (0.1, 0.2)
SIDES = ("reject", "release")
#: characters of a run that is prepared; the encoder then keeps as many tokens as it may
CHARACTERS = 12_000


def prepare(folder: Path, corpora: list[str]) -> None:
    """Write the labelled runs of each corpus, with their splits and texts."""
    from published import DATA, labelled_runs

    from certify_assets.corpora.rendering import Renderer, render_frame
    from certify_assets.corpora.splits import make_manifest

    folder.mkdir(parents=True, exist_ok=True)
    renderer = Renderer(CHARACTERS, CHARACTERS // 4, CHARACTERS // 4)
    for name in corpora:
        frame = labelled_runs(name, DATA)
        if isinstance(frame, str):
            print(frame)
            continue
        frame["split"] = frame["task_id"].map(make_manifest(frame["task_id"], name).assignment)
        frame["text"] = [found.text for found in render_frame(frame, renderer)]
        kept = frame[["split", "task_id", "trajectory_id", "outcome", "text"]]
        kept.to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")
        print(f"{name}: {len(kept):,} runs, {kept['split'].value_counts().to_dict()}")


class Ladder:
    """The three judges on one corpus."""

    def __init__(self, frame: pd.DataFrame, *, tokens: int, tenth: bool) -> None:
        reading = replace(SMOLLM2, tokens=tokens, chars=CHARACTERS)
        language, encoder = load_base("smollm2", None, reading)
        self.base = CausalJudge("smollm2", language, encoder)
        self.tenth = tenth
        self.splits = {name: frame[frame["split"] == name] for name in SPLITS}
        if tenth:
            self.splits = {name: rows.iloc[::10] for name, rows in self.splits.items()}

    def judges(self, folder: Path) -> Iterator[tuple[str, CausalJudge, float]]:
        """Yield name, judge and seconds of training, one rung after the other."""
        yield "base", self.base, 0.0
        start = time.perf_counter()
        tuned = self.tuned(folder / "sft")
        yield "sft", tuned, time.perf_counter() - start
        start = time.perf_counter()
        judge = self.reinforced(tuned, folder / "grpo")
        yield "grpo", judge, time.perf_counter() - start

    def tuned(self, folder: Path) -> CausalJudge:
        """Fine-tune on the verdicts of SFT."""
        rows = self.splits["sft"]
        train_sft(
            self.base.language,
            self.base.encoder.encode_texts(rows["text"].tolist()),
            [int(outcome) for outcome in rows["outcome"]],
            folder,
            config=SftConfig(epochs=2.0, learning_rate=2e-4),
        )
        return self.base.with_adapter(folder)

    def reinforced(self, tuned: CausalJudge, folder: Path) -> CausalJudge:
        """Train the adapter on by exact GRPO on RL, in place."""
        rows = self.splits["rl"]
        for name, weight in tuned.language.model.named_parameters():
            weight.requires_grad_("lora_" in name)
        prompts = tuned.encoder.encode_texts(rows["text"].tolist())
        outcomes = [int(outcome) for outcome in rows["outcome"]]
        config = GrpoConfig(learning_rate=2e-5, steps=5 if self.tenth else 150, save_every=0)
        GrpoRun(tuned.language, prompts, outcomes, ARMS["reject_3"], config).train(folder)
        return tuned


def measure(judge: CausalJudge, splits: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Score CAL and TEST; certify both sides on CAL and count what they do on TEST."""
    start = time.perf_counter()
    scores = {name: judge.score(splits[name]["text"].tolist()).score for name in ("cal", "test")}
    found: dict[str, Any] = {"scoring_seconds": time.perf_counter() - start}
    truth = {name: splits[name]["outcome"].to_numpy(int) for name in scores}
    for name in scores:
        found[f"auroc_{name}"] = float(auroc(scores[name], truth[name]))
    for side in SIDES:
        for alpha in BUDGETS:
            tasks = splits["cal"]["task_id"].tolist()
            issued = certify(scores["cal"], truth["cal"], tasks, alpha=alpha, side=side)
            cell = {"coverage": issued.coverage, "certified": issued.certified}
            if issued.threshold is not None:
                low = scores["test"] <= issued.threshold
                decided = low if side == "reject" else scores["test"] >= issued.threshold
                wrong = truth["test"] == (1 if side == "reject" else 0)
                cell["test_coverage"] = float(decided.mean())
                cell["test_error"] = float(wrong[decided].mean()) if decided.any() else None
            found[f"{side}_{alpha:g}"] = cell
    return found


def error_of(cell: dict[str, Any]) -> str:
    """Return the realised error on TEST, or "-" where nothing is decided."""
    return "-" if cell.get("test_error") is None else f"{cell['test_error']:.3f}"


def line(corpus: str, name: str, found: dict[str, Any]) -> str:
    """Return a row of the table."""
    cells = [
        f"{cell['coverage']:.3f} ({error_of(cell)})"
        for cell in (found[f"{side}_{alpha:g}"] for side in SIDES for alpha in BUDGETS)
    ]
    areas = f"{found['auroc_cal']:.3f} {found['auroc_test']:.3f}"
    seconds = f"{found['training_seconds']:7.1f} {found['scoring_seconds']:7.1f}"
    return f"{corpus:20} {name:5} {areas}  " + "  ".join(f"{cell:14}" for cell in cells) + seconds


def run(folder: Path, *, tokens: int, limit: float, tenth: bool, out: Path | None) -> None:
    """Climb the ladder on every prepared corpus, as long as the limit allows."""
    begun, whole = time.perf_counter(), {"device": str(Hardware.present()), "judges": []}
    sides = "".join(f"{side} α={alpha:g}".ljust(16) for side in SIDES for alpha in BUDGETS)
    print(f"{'corpus':20} {'judge':5} AUROC CAL, TEST  {sides}training scoring s")
    for path in sorted(folder.glob("*.parquet")):
        if time.perf_counter() - begun > limit:
            print(f"{path.stem}: no time left")
            continue
        ladder = Ladder(pd.read_parquet(path), tokens=tokens, tenth=tenth)
        with tempfile.TemporaryDirectory() as work:
            for name, judge, seconds in ladder.judges(Path(work)):
                try:
                    found = measure(judge, ladder.splits)
                except CertifyError as error:
                    print(f"{path.stem:20} {name:5} {error}")
                    continue
                found |= {"corpus": path.stem, "judge": name, "training_seconds": seconds}
                whole["judges"].append(found)
                print(line(path.stem, name, found), flush=True)
                if out:
                    write_json_atomic(out, whole)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    first = actions.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("--corpus", nargs="+", default=list(CORPORA))
    second = actions.add_parser("run")
    second.add_argument("folder", type=Path)
    second.add_argument("--tokens", type=int, default=2048)
    second.add_argument("--limit", type=float, default=420.0, help="seconds to begin a corpus in")
    second.add_argument("--tenth", action="store_true")
    second.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.action == "prepare":
        prepare(given.folder, given.corpus)
    else:
        run(given.folder, tokens=given.tokens, limit=given.limit, tenth=given.tenth, out=given.out)


if __name__ == "__main__":
    main()
