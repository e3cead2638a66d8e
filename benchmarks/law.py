"""The certifiability law with an A₀ of an untrained judge on every corpus, and of lexical.

    python benchmarks/law.py [--data DIR] [--root DIR] [--corpus NAME …] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. Certified coverage is that of the better of lexical and combined (reject side, α = .1); A₀
is the AUROC on CAL of the compact model as it comes, then that of lexical. Each line of the table
is a form of the law, fitted to both. With --root what is scored is kept, and `certify research
law --root DIR` prints the points and their findings. --quick: one embedded corpus, two attempts a
task, no fit.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from canaries import prepared
from compact_model import few_attempts
from new_agents import DATA, PUBLISHED
from transfer import ACCEPTED

from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.errors import CertifyError
from certify_assets.evaluation.certification import certify_judge
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.research.certifiability import Measured, fit_measured, measure
from certify_assets.storage.store import Store

UNTRAINED, TRAINED = "base", "lexical"
JUDGES = (UNTRAINED, TRAINED, "combined")


def main() -> None:
    """Print the points as they are measured, then the two laws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    points: list[tuple[Measured, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(str((arguments.root or Path(folder)).absolute()))
        corpora = arguments.corpus or [*EMBEDDED, *PUBLISHED]
        if arguments.quick:
            corpora = [few_attempts(store, Path(folder) / "runs.parquet")]
        print(
            f"{'corpus':22}{'π':>7}{'A₀ base':>9}{'lexical':>9}{'n_eff':>7}{'coverage':>10}  judge"
        )
        for name in corpora:
            if not arguments.quick:
                corpus = prepared(store, name, arguments.data)
                if isinstance(corpus, str):
                    print(corpus)
                    continue
                save_config(store, replace(corpus.config, accept_structural_leak=ACCEPTED))
                Corpus(store, name).prepare()
            points.append(point(store, name))
    for number, of in enumerate((UNTRAINED, TRAINED)):
        print(f"\nA₀ of {of}")
        fit([item if number == 0 else _with_area(item, area) for item, area in points])


def point(store: Store, name: str) -> tuple[Measured, float]:
    """Certify a corpus by every judge, print its point; return it with the AUROC of lexical."""
    for judge in JUDGES:
        try:
            certify_judge(JudgedCorpus(Corpus(store, name), judge))
        except CertifyError:
            JudgedCorpus(Corpus(store, name), judge).train()
            JudgedCorpus(Corpus(store, name), judge).score()
            certify_judge(JudgedCorpus(Corpus(store, name), judge))
    found = measure(Corpus(store, name))
    area = _area(store, name)
    said = found.point
    print(
        f"{name:22}{said.success_rate:7.3f}{said.auroc:9.3f}{area:9.3f}{said.n_eff or 0:7.0f}"
        f"{said.coverage:10.3f}  {found.best_judge or '-'}",
        flush=True,
    )
    return found, area


def _area(store: Store, name: str) -> float:
    return judge_auroc(JudgedCorpus(Corpus(store, name), TRAINED).calibration[0]) or float("nan")


def _with_area(found: Measured, area: float) -> Measured:
    return replace(found, point=replace(found.point, auroc=area))


def fit(points: list[Measured]) -> None:
    """Print every form of the law over the points, or why there is none."""
    found = fit_measured(points)
    if found.law is None:
        print(found.reason)
        return
    print(f"{'form':22}{'a':>8}{'b':>8}{'R²':>8}{'LOOCV':>8}{'MAE':>8}")
    for form in found.law.forms:
        cells = (form.slope, form.intercept, form.r2, form.loocv_r2, form.mae)
        print(f"{form.words:22}" + "".join(f"{'-' if c is None else f'{c:.3f}':>8}" for c in cells))


if __name__ == "__main__":
    main()
