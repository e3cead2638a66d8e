"""Time and memory of each stage of every judge, and the comparison of judges, from a data root.

    python benchmarks/comparison.py --root DIR [--corpus NAME ...] [--quick]

Prints AUROC, certified coverage and audits of every corpus with scores, what training and scoring
took (CPU seconds of all threads, largest memory of the process so far), and runs of unseen agents
where they were evaluated. With --quick it makes what it prints: the lexical judges on an embedded
corpus in the data root (a new one where --root is not given), from runs to audits, each stage in a
process of its own so that its memory is its own, and the folds over agents. About a minute.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile

from certify_assets.corpora.corpus import Corpus
from certify_assets.evaluation import certification
from certify_assets.evaluation.agent_folds import evaluate_agent_folds
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.comparison import gather_table
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.reports.comparison_page import comparison_tables, write_table
from certify_assets.storage.store import Store

QUICK_CORPUS = "miniwob_weak"
QUICK_JUDGES = ("lexical", "lexical_weighted")
STAGES = {
    "train": JudgedCorpus.train,
    "score": JudgedCorpus.score,
    "certify": certification.certify_judge,
    "audit": audit_judge,
}


def prepare(store: Store, corpus: str) -> None:
    """Import and split a corpus, and measure what every certificate asks for."""
    Corpus(store, corpus).prepare()


def quick(root: str) -> None:
    """Make the lexical judges of one embedded corpus."""
    prepare(Store(root), QUICK_CORPUS)
    for judge in QUICK_JUDGES:
        subprocess.run(
            [
                *(sys.executable, __file__, "--root", root, "--corpus", QUICK_CORPUS),
                *("--judge", judge, "--stage", *STAGES),
            ],
            check=True,
        )
        evaluate_agent_folds(JudgedCorpus(Corpus(Store(root), QUICK_CORPUS), judge))


def show(store: Store, corpora: list[str]) -> None:
    """Print every table and finding."""
    document = gather_table(store, corpora or None)
    for table in comparison_tables(document["corpora"]):
        print(f"{table.title}\n\n{write_table(table, 'markdown')}")
    for item in document["corpora"]:
        for finding in item["findings"]:
            print(f"{item['corpus']}: {finding['message']}")
    for item in document["left_out"]:
        print(f"left out: {item['corpus']}: {item['reason']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default="")
    parser.add_argument("--corpus", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--stage",
        nargs="+",
        choices=tuple(STAGES),
        default=(),
        help="stages of one judge, in this process",
    )
    parser.add_argument("--judge", default="lexical")
    arguments = parser.parse_args()
    if not arguments.root and not arguments.quick:
        parser.error("give --root, or --quick for a data root of its own")
    with tempfile.TemporaryDirectory() as folder:
        root = arguments.root or folder
        for stage in arguments.stage:
            STAGES[stage](JudgedCorpus(Corpus(Store(root), arguments.corpus[0]), arguments.judge))
        if arguments.stage:
            return
        if arguments.quick:
            quick(root)
        show(Store(root), arguments.corpus)


if __name__ == "__main__":
    main()
