"""Error budgets and thresholds of a corpus: from its configuration to what is deployed."""

from pathlib import Path

import pytest

from certify_assets import InputError, Workspace
from certify_assets.corpora.config import CorpusConfig
from certify_assets.errors import GateClosedError
from certify_assets.operations.certifier import deciding_sides
from certify_assets.reports.judge_page import write_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs


@pytest.mark.slow
def test_a_corpus_has_budgets_and_a_grid_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    runs = write_runs(tmp_path / "runs.jsonl", tasks=200, attempts=4)
    register_runs(Store(str(root)), "shop", runs, rl=False, alphas=(0.15, 0.3), grid=20)
    corpus = Workspace.open(str(root)).corpus("shop")
    corpus.prepare()
    judge = corpus.judge("lexical")
    judge.train()
    judge.score()
    made = judge.certify()
    assert {item.alpha for item in made} == {0.15, 0.3}
    assert {item.settings["grid"] for item in made} == {20}
    # a certificate is judged possible at these budgets before anything is scored
    assert {gate.alpha for gate in corpus.profile.gates} == {0.15, 0.3}
    judge.audit()
    strictest = deciding_sides(made).lead
    assert strictest.certified and strictest.alpha == 0.15
    record = judge.deploy()
    assert record.alpha["reject"] == 0.15 and record.fingerprint["grid"] == "20"
    assert corpus.deployment().refusal is None


def test_where_the_default_certifies_nothing_the_promise_on_average_is_shown_but_not_deployed(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path / "root"))
    runs = write_runs(tmp_path / "runs.jsonl", tasks=80, attempts=1)
    register_runs(store, "shop", runs, rl=False, alphas=(0.1,))
    corpus = Workspace.open(store.root).corpus("shop")
    corpus.prepare()
    judge = corpus.judge("lexical")
    judge.train()
    judge.score()
    judge.certify()
    lead = deciding_sides(judge.certificates).lead
    assert lead.certified and (lead.promise, lead.after) == ("average", "pseudo_task")
    judge.audit()
    write_page(judge)
    page = store.read_bytes(judge.key("page.html")).decode()
    assert "On average over certificates made this way" in page
    assert "pseudo_task was tried before on these labels and certified nothing" in page
    assert "would give an even chance of 95 % confidence" in page
    with pytest.raises(GateClosedError, match="deploy_average"):
        judge.deploy()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"alphas": ()}, "alphas of corpus.json is .*at least 1 item"),
        ({"alphas": (0.1, 1.2)}, "alphas of corpus.json is 1.2: .*less than 1"),
        ({"alphas": (0.2, 0.1)}, "each error budget once, the strictest first"),
        ({"alphas": (0.1, 0.1)}, "each error budget once, the strictest first"),
        ({"grid": 0}, "grid of corpus.json is 0: .*equal to 1"),
    ],
)
def test_what_cannot_be_a_budget_is_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        CorpusConfig("shop", **keys)  # type: ignore[arg-type]
