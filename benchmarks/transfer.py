"""Judges trained on other corpora next to the judge trained at home: AUROC on CAL, certified
coverage of the reject side, audit on TEST.

    python benchmarks/transfer.py [--root DIR] [--quick] [--judge NAME …] [--target CORPUS …]
    [--data DIR]

The data root DIR (a temporary folder by default) is filled on first use with the two embedded
corpora and, where --data names a folder of published runs, with those of it that are listed below;
nothing that is there is read again. --quick takes the first embedded corpus as the target and the
other one as the source. What was trained before is trained again only where it is stale. CPU
seconds are of training, scoring and certificates together, in this process. The audit is the
verdict on TEST with the realised error; "-" where nothing is certified. A judge without a
source is skipped with the reason.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from certify_assets.corpora.config import CorpusConfig, embedded_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.errors import CertifyError, InputError
from certify_assets.evaluation import certification
from certify_assets.evaluation.audit import CertificateAudit, audit_judge, load_audits
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import ALPHAS, JUDGES
from certify_assets.storage.store import Store

LEXICAL = ("lexical", "lexical_transfer", "lexical_transfer_strict")
# folder of published runs: name of the corpus, and its format where more than one is needed to read
# it
PUBLISHED = {
    "intercode_bash": ("intercode", "auto"),
    "multi_swe_bench_java": ("java", "auto"),
    "swebench_lite_acr": ("swebench_lite", "autocoderover+swe_agent"),
    "taubench_retail": ("retail", "auto"),
    "terminal_bench_core": ("terminal", "auto"),
}
ACCEPTED = "this table compares judges under the same leak"


@dataclass(frozen=True)
class Row:
    """A judge on a target: rows and sources of its training, AUROC on CAL, certified reject
    coverage and audit at every budget, CPU seconds.
    """

    target: str
    judge: str
    rows: int
    sources: int
    auroc: float
    certified: tuple[float, ...]
    audits: tuple[str, ...]
    seconds: float


def prepare(
    store: Store, data: Path | None, *, rl: bool = False, only: Collection[str] = ()
) -> list[str]:
    """Import and split what is not there yet, published runs with an RL split or not, of all
    corpora or of some; return the corpora.
    """
    wanted = [embedded_config(name) for name in EMBEDDED]
    for folder, (name, format_name) in PUBLISHED.items():
        archives = sorted((data / folder).glob("*.tar.gz")) if data else []
        if archives:
            paths = tuple(str(path.absolute()) for path in archives)
            wanted.append(
                CorpusConfig(
                    name, format=format_name, paths=paths, rl=rl, accept_structural_leak=ACCEPTED
                )
            )
    there = [config.name for config in wanted]
    if unknown := [name for name in only if name not in there]:
        raise InputError(f"there is no {unknown[0]}; name one of {', '.join(there)}.")
    wanted = [config for config in wanted if not only or config.name in only]
    for config in wanted:
        if not store.exists(f"corpora/{config.name}/controls.json"):
            # all judges on the same rows: labels of RL certify no transfer judge
            save_config(store, replace(config, rl_labels="choose"))
            Corpus(store, config.name).prepare()
    return [config.name for config in wanted]


def measure(store: Store, target: str, judge: str) -> Row:
    """Train, score, certify and audit one judge, or read what is there and current."""
    started = time.process_time()
    try:
        certificates = certification.load_certificates(JudgedCorpus(Corpus(store, target), judge))
    except CertifyError:
        JudgedCorpus(Corpus(store, target), judge).train()
        JudgedCorpus(Corpus(store, target), judge).score()
        certificates = certification.certify_judge(JudgedCorpus(Corpus(store, target), judge))
        store.delete(f"judges/{judge}/{target}/audits.json")
    seconds = time.process_time() - started
    if not store.exists(f"judges/{judge}/{target}/audits.json"):
        audit_judge(JudgedCorpus(Corpus(store, target), judge))
    cal, _, adapter = JudgedCorpus(Corpus(store, target), judge).calibration
    audits = {
        audit.alpha: audit
        for audit in load_audits(JudgedCorpus(Corpus(store, target), judge))[0]
        if audit.side == "reject"
    }
    return Row(
        target=target,
        judge=judge,
        rows=adapter.sft_trajectories,
        sources=len(adapter.detail("transfer").get("sources", [""])),
        auroc=judge_auroc(cal),
        certified=tuple(
            certification.certificate_of(certificates, side="reject", alpha=alpha).coverage
            for alpha in ALPHAS
        ),
        audits=tuple(_audit(audits.get(alpha)) for alpha in ALPHAS),
        seconds=seconds,
    )


def _audit(audit: CertificateAudit | None) -> str:
    if audit is None or audit.realized_error is None:
        return "-"
    return f"{audit.verdict} {audit.realized_error:.3f}"


def main() -> None:
    """Print the table, one line a target and judge, as soon as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="data root (default: a temporary folder)")
    parser.add_argument("--data", type=Path, default=None, help="folder of published runs")
    parser.add_argument(
        "--judge",
        action="append",
        choices=JUDGES,
        help=f"judge; repeat for more (default: {', '.join(LEXICAL)})",
    )
    parser.add_argument("--target", action="append", help="corpus; repeat for more (default: all)")
    parser.add_argument("--quick", action="store_true", help="one embedded target")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(given, Store(str(Path(given.root or folder).absolute())))


def run(given: argparse.Namespace, store: Store) -> None:
    corpora = prepare(store, None if given.quick else given.data)
    judges = given.judge or LEXICAL
    budgets = "".join(f"  cov α={alpha:g}  audit on TEST" for alpha in ALPHAS)
    print(f"{'target':14s} {'judge':24s}  rows  sources  AUROC{budgets}  CPU s")
    for target in given.target or (corpora[:1] if given.quick else corpora):
        for judge in judges:
            try:
                row = measure(store, target, judge)
            except InputError as error:
                print(f"{target:14s} {judge:24s}  skipped: {error}", flush=True)
                continue
            cells = "".join(
                f"  {coverage:9.3f}  {audit:>13s}"
                for coverage, audit in zip(row.certified, row.audits, strict=True)
            )
            print(
                f"{target:14s} {judge:24s} {row.rows:5d} {row.sources:8d}  {row.auroc:.3f}{cells} "
                f"{row.seconds:6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
