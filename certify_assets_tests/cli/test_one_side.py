"""A judge that certifies only releases: command, page, index, metadata, check and deployment agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.judges import certified
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import load_pool
from certify_assets.operations.audit import audit_judge, overview
from certify_assets.operations.certifier import (
    certify_judge,
    deciding_sides,
    load_certificates,
    why_nothing,
)
from certify_assets.operations.checks import deployment_stands
from certify_assets.operations.deploying import deploy
from certify_assets.reports.index_page import write_index
from certify_assets.reports.judge_page import verdict, write_page
from certify_assets.reports.wording import percent
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.cli.calling import Call


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> JudgedCorpus:
    """Most runs succeed, so that rejections are wrong more often than the budget allows."""
    folder = tmp_path_factory.mktemp("release")
    runs = write_runs(folder / "runs.jsonl", tasks=200, attempts=4)
    lines = [json.loads(line) for line in runs.read_text("utf-8").splitlines()]
    flipped = [json.dumps({**line, "outcome": 1 - line["outcome"]}) for line in lines]
    runs.write_text("\n".join(flipped) + "\n", "utf-8")
    store = Store(str(folder / "root"))
    register_runs(store, "shop", runs, rl=False, alphas=(0.05, 0.07))
    corpus = Corpus(store, "shop")
    corpus.prepare()
    made = JudgedCorpus(corpus, "lexical")
    made.train()
    made.score()
    certify_judge(made)
    audit_judge(made)
    return made


def test_all_say_the_same_of_a_judge_that_certifies_one_side(judge: JudgedCorpus) -> None:
    sides = deciding_sides(load_certificates(judge))
    (release,) = sides.certified
    assert release.side == "release" and sides.lead == release
    assert sides.shares == {
        "reject": 0.0,
        "release": release.coverage,
        "human": pytest.approx(1 - release.coverage),
    }
    share = percent(sides.decided)
    page = Path(write_page(judge)).read_text("utf-8")
    assert f"{share} of runs decided" in page and "Nothing certified" not in page
    index = Path(write_index(judge.store)).read_text("utf-8")
    assert f'<span class="big num">{share}</span>' in index and "every run to" not in index
    block = verdict(sides)
    assert f"{share} decided" in block and "Nothing certified" not in block
    check = certified(judge)
    assert check.passed and sides.sentence in check.sentence
    # the other side is not passed over: it is said why nothing is certified there
    assert {reason.split(":")[0] for reason in why_nothing(judge)} >= {
        "Auto-fail, at most 5 % wrong"
    }
    (shown,) = overview(judge.corpus)["judges"]
    assert (shown["decided"], shown["summary"]) == (sides.decided, sides.sentence)
    made = deploy(judge, track=False)
    assert dict(made.alpha) == {"release": release.alpha}
    assert made.certificates == (release.sha256,)
    assert sides.sentence in deployment_stands(judge.corpus).sentence


def test_the_command_says_so_on_the_same_scores(
    judge: JudgedCorpus, call: Call, tmp_path: Path
) -> None:
    cal, _, _ = judge.calibration
    cal[["task_id", "score", "outcome"]].to_csv(tmp_path / "cal.csv", index=False)
    certificates = load_certificates(judge)
    sides, pool = deciding_sides(certificates), load_pool(judge, certificates)
    assert pool is not None
    (tmp_path / "pool.json").write_bytes(pool.to_json())
    asked = f"certificate {tmp_path}/cal.csv --pool {tmp_path}/pool.json --alpha {sides.lead.alpha}"
    document = call(f"{asked} --json").json
    assert document["decided"] == sides.decided and document["human"] == sides.human
    assert call(asked).out.startswith(f"{sides.sentence}\n")
