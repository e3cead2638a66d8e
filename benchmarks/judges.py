"""What every judge ranks and certifies on every corpus, and the certifiability law over them.

    python benchmarks/judges.py [--corpus NAME …] [--judge NAME …] [--model smollm2] [--root DIR]
                                [--data DIR] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. A judge is trained as on the platform, at seed 42; CAL alone certifies every judge, so that
all rows are of the same labels. Reject side: certified coverage on CAL, then verdict, coverage and
error of the audit on TEST, "-" where nothing is certified. CPU minutes are of training, scores and
certificates. With --root what is trained is kept there. --model smollm2 (`make smollm2`) is the
ladder base, sft, grpo of SmolLM2. Where `base` is among the judges, the law is fitted to the points
of the corpora at the end. --quick: two attempts a task of one embedded corpus, lexical and base.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from published import PUBLISHED, corpora_parser, labelled_runs

from certify_assets.corpora.config import CorpusConfig, embedded_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.errors import CertifyError
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import ALPHAS
from certify_assets.operations.audit import CertificateAudit, audit_judge
from certify_assets.operations.certifier import certificate_of, certify_judge
from certify_assets.research.certifiability import Measured, fit_measured, measure
from certify_assets.storage.store import Store

JUDGES = ("lexical", "structure", "combined", "base", "sft", "grpo")
QUICK = ("lexical", "base")
ACCEPTED = "this table compares judges under the same leak"
SMOLLM2 = ("lexical", "smol", "smol_sft", "smol_grpo")
SMOLLM2_JUDGES = b"""
judges:
  - {name: smol, family: base, model: smollm2}
  - {name: smol_sft, family: sft, model: smollm2}
  - {name: smol_grpo, family: grpo, start: smol_sft}
"""


def prepared(
    store: Store,
    name: str,
    data: Path,
    *,
    quick: bool = False,
    rl_labels: str = "choose",
) -> str | None:
    """Import and split a corpus; return the name under which it is stored, if it is there."""
    frame = labelled_runs(name, data)
    if isinstance(frame, str):
        print(frame)
        return None
    if name in EMBEDDED and not quick:
        config = embedded_config(name)
    else:
        name = "few_attempts" if quick else f"{name}_runs"
        path = store.local_path(f"{name}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        frame[(frame["attempt"] < 2) | (not quick)].to_parquet(path, index=False)
        config = CorpusConfig(name, paths=(str(path),), rl=True, accept_structural_leak=ACCEPTED)
    if not store.exists(f"corpora/{name}/controls.json"):
        save_config(store, replace(config, rl_labels=rl_labels))
        Corpus(store, name).prepare()
    print(f"{name}: {len(frame):,} runs", flush=True)
    return name


def row(store: Store, corpus: str, judge: str) -> str:
    """Train, score, certify and audit a judge; return what the table says of it."""
    opened, started = Corpus(store, corpus), time.process_time()
    JudgedCorpus(opened, judge).train()
    JudgedCorpus(opened, judge).score()
    certificates = certify_judge(JudgedCorpus(opened, judge))
    minutes = (time.process_time() - started) / 60
    read = audit_judge(JudgedCorpus(opened, judge))
    audits = {audit.alpha: audit for audit in read.audits if audit.side == "reject"}
    cal, _, record = JudgedCorpus(opened, judge).calibration
    cells = "".join(
        f"  {certificate_of(certificates, side='reject', alpha=alpha).coverage:9.3f}"
        f"  {audited(audits.get(alpha)):>20s}"
        for alpha in ALPHAS
    )
    areas = "".join(f"{judge_auroc(table) or float('nan'):8.3f}" for table in (cal, read.scores))
    return f"{areas} {cells}  {minutes:7.2f}  {record.details.get('chosen', '')}".rstrip()


def audited(audit: CertificateAudit | None) -> str:
    if audit is None or audit.realized_error is None:
        return "-"
    return f"{audit.coverage:.3f} {audit.realized_error:.3f} {audit.verdict}"


def show_law(points: list[Measured]) -> None:
    """Print every form of the law over the points, or why there is none."""
    found = fit_measured(points)
    if found.law is None:
        print(found.reason)
        return
    print(f"\n{'form':22}{'a':>8}{'b':>8}{'R²':>8}{'LOOCV':>8}{'MAE':>8}")
    for form in found.law.forms:
        cells = (form.slope, form.intercept, form.r2, form.loocv_r2, form.mae)
        print(f"{form.words:22}" + "".join(f"{'-' if c is None else f'{c:.3f}':>8}" for c in cells))


def main() -> None:
    parser = corpora_parser(__doc__)
    parser.add_argument("--judge", action="append")
    parser.add_argument("--model", choices=("compact", "smollm2"), default="compact")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    corpora, judges = given.corpus or (*EMBEDDED, *PUBLISHED), given.judge or JUDGES
    if given.quick:
        corpora, judges = EMBEDDED[:1], QUICK
    budgets = "".join(f"  CAL α={alpha:g}  TEST coverage, error" for alpha in ALPHAS)
    print(f"{'corpus':21} {'judge':9} AUROC CAL  TEST{budgets}  CPU min")
    points: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(str((given.root or Path(folder)).absolute()))
        if given.model == "smollm2":
            store.write_bytes("judges.yaml", SMOLLM2_JUDGES)
            judges = given.judge or SMOLLM2
        for name in corpora:
            corpus = prepared(store, name, given.data, quick=given.quick)
            if corpus is None:
                continue
            for judge in judges:
                try:
                    said = row(store, corpus, judge)
                except CertifyError as error:
                    said = f"skipped: {error}"
                print(f"{name:21} {judge:9} {said}", flush=True)
            if "base" in judges:
                points.append(measure(Corpus(store, corpus)))
    if points:
        show_law(points)


if __name__ == "__main__":
    main()
