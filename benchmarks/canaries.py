"""How far texts that claim success lift failed runs, by corpus and judge.

    python benchmarks/canaries.py [--data DIR] [--corpus NAME …] [--judge NAME …] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. A judge is trained on SFT and scores as on the platform; its canaries are copies of at most
60 failed runs of RL and CAL (12 for a language model), each with a text of
`certify_assets/judges/canaries.json` as its last observation. A figure is the share of them that
the text lifts over the median score of the successes; `known_words` are the 30 strongest words of
the judge's own lexical part, or of one trained on 500 runs of SFT. `CPU s` are those
of all copies. --quick: one embedded corpus, the lexical judge.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from new_agents import DATA, PUBLISHED

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.judges.canary import KNOWN_WORDS, canary_texts, score_canaries
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.store import Store

JUDGES = ("lexical", "structure", "combined")


def prepared(store: Store, name: str, data: Path) -> Corpus | str:
    """Import and split a corpus; a sentence where it is not there."""
    if name not in EMBEDDED:
        archives = sorted((data / name).glob("*.tar.gz"))
        if not archives:
            return f"{name}: skipped, {data / name} has no archive"
        paths = tuple(str(path) for path in archives)
        save_config(store, CorpusConfig(name=name, format=PUBLISHED[name], paths=paths))
    corpus = Corpus(store, name)
    corpus.prepare()
    return Corpus(store, name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--judge", action="append")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    corpora = arguments.corpus or [*EMBEDDED, *PUBLISHED]
    judges = arguments.judge or list(JUDGES)
    if arguments.quick:
        corpora, judges = [next(iter(EMBEDDED))], ["lexical"]
    names = [*canary_texts()[0], KNOWN_WORDS]
    print(f"{'corpus':22}{'judge':11}{'runs':>5}" + "".join(f"{n:>13}" for n in names) + "  CPU s")
    with tempfile.TemporaryDirectory() as root:
        for name in corpora:
            corpus = prepared(Store(root), name, arguments.data)
            if isinstance(corpus, str):
                print(corpus)
                continue
            for judge in judges:
                judged = JudgedCorpus(Corpus(Store(root), name), judge)
                judged.train()
                table = judged.score()
                splits = judged.spec.calibration_splits
                started = time.process_time()
                found = score_canaries(
                    judged.corpus,
                    judged.spec,
                    judged.renderer,
                    judged.load(),
                    table[table["split"].isin(splits)],
                    scores_sha256="",
                )
                seconds = time.process_time() - started
                cells = (f"{found.lifts.get(text, float('nan')):13.2f}" for text in names)
                row = f"{name:22}{judge:11}{found.runs:5d}" + "".join(cells)
                print(f"{row}{seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
