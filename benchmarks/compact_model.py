"""The ladder of the compact model, base → SFT → GRPO, next to the lexical judge: AUROC, certified
coverage of the reject side on CAL, audit on TEST, CPU minutes.

    python benchmarks/compact_model.py [--root DIR] [--data DIR] [--corpus NAME …] [--judge NAME …]
    [--model smollm2] [--quick]

Corpora, data root and the folder of published runs are as in transfer.py; published runs have an RL
split here, for GRPO. CAL alone certifies every judge, so that all rows are of the same labels. TEST
is read through the ledger, after the certificates. The audit is its verdict with coverage and error
on TEST; "-" where nothing is certified. CPU minutes are of this rung alone, in this process:
training (with GRPO every arm and the choice), scores, certificates. --model smollm2: the same with
SmolLM2 (`make smollm2`). --quick: two attempts a task of one embedded corpus, lexical and base.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from transfer import prepare

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED, load_embedded
from certify_assets.evaluation.audit import CertificateAudit, audit_judge
from certify_assets.evaluation.certification import certificate_of, certify_judge
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import ALPHAS
from certify_assets.storage.store import Store

LADDER = ("lexical", "base", "sft", "grpo")
QUICK = ("lexical", "base")
# rungs of a ladder, and the judges of a data root that they are
SMOLLM2 = {"lexical": "lexical", "base": "smol", "sft": "smol_sft", "grpo": "smol_grpo"}
SMOLLM2_JUDGES = """
judges:
  - {name: smol, family: base, model: smollm2}
  - {name: smol_sft, family: sft, model: smollm2}
  - {name: smol_grpo, family: grpo, start: smol_sft}
"""


def main() -> None:
    """Print the table, one line a corpus and judge, as soon as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="data root (default: a temporary folder)")
    parser.add_argument("--data", type=Path, default=None, help="folder of published runs")
    parser.add_argument("--corpus", action="append", help="repeat for more (default: all)")
    parser.add_argument("--judge", action="append", choices=LADDER, help="rung (default: all)")
    parser.add_argument("--model", choices=("compact", "smollm2"), default="compact")
    parser.add_argument(
        "--quick", action="store_true", help="two attempts a task of one corpus, lexical and base"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(str(Path(given.root or folder).absolute()))
        if given.quick:
            ladder(store, [few_attempts(store, Path(folder) / "runs.parquet")], QUICK)
        else:
            rungs = given.judge or LADDER
            if given.model == "smollm2":
                store.write_bytes("judges.yaml", SMOLLM2_JUDGES.encode())
                rungs = [SMOLLM2[rung] for rung in rungs]
            ladder(store, prepare(store, given.data, rl=True, only=given.corpus or ()), rungs)


def few_attempts(store: Store, path: Path) -> str:
    """Prepare an embedded corpus with two attempts a task; return its name."""
    frame = load_embedded(EMBEDDED[0])
    frame[frame["attempt"] < 2].to_parquet(path, index=False)
    config = CorpusConfig("few_attempts", paths=(str(path),), rl=True, rl_labels="choose")
    save_config(store, config)
    Corpus(store, config.name).prepare()
    return config.name


def ladder(store: Store, corpora: Sequence[str], judges: Sequence[str]) -> None:
    """Print a table of judges on corpora, a judge after the one that it starts from."""
    budgets = "".join(f"  CAL α={alpha:g}  TEST coverage, error" for alpha in ALPHAS)
    print(f"{'corpus':14s} {'judge':9s} AUROC CAL  TEST{budgets}  CPU min")
    for corpus in corpora:
        for judge in judges:
            print(f"{corpus:14s} {judge:9s} {row(store, corpus, judge)}", flush=True)


def row(store: Store, corpus: str, judge: str) -> str:
    """Train, score, certify and audit a judge; return what the table says of it."""
    opened, started = Corpus(store, corpus), time.process_time()
    JudgedCorpus(opened, judge).train()
    trained = time.process_time()
    JudgedCorpus(opened, judge).score()
    certificates = certify_judge(JudgedCorpus(opened, judge))
    minutes, training = (time.process_time() - started) / 60, (trained - started) / 60
    read = audit_judge(JudgedCorpus(opened, judge))
    audits = {audit.alpha: audit for audit in read.audits if audit.side == "reject"}
    cal, _, record = JudgedCorpus(opened, judge).calibration
    cells = "".join(
        f"  {certificate_of(certificates, side='reject', alpha=alpha).coverage:9.3f}"
        f"  {_audit(audits.get(alpha)):>20s}"
        for alpha in ALPHAS
    )
    areas = "".join(f"{judge_auroc(table) or float('nan'):8.3f}" for table in (cal, read.scores))
    chosen = record.details.get("chosen", "")
    return f"{areas} {cells}  {minutes:7.2f}  {training:.2f} training {chosen}".rstrip()


def _audit(audit: CertificateAudit | None) -> str:
    if audit is None or audit.realized_error is None:
        return "-"
    return f"{audit.coverage:.3f} {audit.realized_error:.3f} {audit.verdict}"


if __name__ == "__main__":
    main()
