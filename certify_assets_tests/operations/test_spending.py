"""The account of δ: schedules that add up, and one number for each set of inputs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.specs import DELTA
from certify_assets.operations.spending import Claim, Schedule, claim, declare, read_spending
from certify_assets.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(),
        Schedule("planned", count=6),
        Schedule("inverse_square"),
    ],
)
def test_a_schedule_never_spends_more_than_its_total_and_nearly_all_of_it(
    schedule: Schedule,
) -> None:
    spent = math.fsum(schedule.share(number) for number in range(1, 3000))
    assert 0.99 * schedule.total < spent <= schedule.total
    assert all(schedule.share(number) >= schedule.share(number + 1) for number in range(1, 50))


def recertified(corpus: Corpus, inputs: str, judge: str = "lexical") -> Claim:
    return claim(corpus, judge, "recertification", inputs)


def test_the_same_inputs_are_the_same_number_and_others_the_next(store: Store) -> None:
    declare(Corpus(store, "c"), Schedule("inverse_square"))
    first = recertified(Corpus(store, "c"), "a")
    assert recertified(Corpus(store, "c"), "a") == first and first.number == 1
    second = recertified(Corpus(store, "c"), "b")
    assert second.number == 2 and second.delta < first.delta
    spending = read_spending(Corpus(store, "c"))
    assert spending.claims == (first, second) and spending.spent == pytest.approx(
        first.delta + second.delta
    )
    assert "2 recertifications" in spending.joint() and "90 %" in spending.joint()


def test_a_claim_of_another_process_is_found_within_a_step(store: Store) -> None:
    view = store.now()
    with view.step():
        view.exists("corpora/c/page.html")
        first = recertified(Corpus(store, "c"), "a")
        assert recertified(Corpus(view, "c"), "a") == first


def test_another_schedule_needs_a_sentence_and_what_was_spent_stays_spent(store: Store) -> None:
    declare(Corpus(store, "c"), Schedule())
    before = store.now().ledger("c")
    declare(Corpus(store, "c"), Schedule())
    assert store.now().ledger("c") == before
    spent = recertified(Corpus(store, "c"), "a").delta
    with pytest.raises(InputError, match="reason for the change"):
        declare(Corpus(store, "c"), Schedule("planned", 0.02, count=1))
    after = declare(
        Corpus(store, "c"), Schedule("planned", 0.02, count=1), reason="Labels come monthly now."
    )
    assert after.promised == pytest.approx(spent + 0.02)
    assert recertified(Corpus(store, "c"), "b").delta == pytest.approx(0.016), (
        "the new schedule begins at its own first share"
    )


def test_later_certificates_and_recertifications_of_a_judge_share_one_schedule(
    store: Store,
) -> None:
    corpus, schedule = Corpus(store, "c"), Schedule()
    assert claim(corpus, "lexical", "certificate", "v1").delta == DELTA
    first = read_spending(corpus).of("lexical")
    assert first.total().startswith("0.05 of at most 0.1 ")
    assert "with 95 % confidence. Once the schedule is spent, it is 90 %." in first.joint()
    assert claim(corpus, "lexical", "certificate", "v1").number == 1, (
        "the same again spends nothing"
    )
    assert claim(corpus, "lexical", "certificate", "v2").delta == schedule.share(1)
    assert recertified(corpus, "labels").delta == schedule.share(2)
    assert claim(corpus, "lexical", "certificate", "v3").delta == schedule.share(3)
    # another judge has a first certificate and shares of its own; recertifications are numbered
    # for the corpus
    assert claim(corpus, "structure", "certificate", "v3").delta == DELTA
    other = recertified(corpus, "other labels", "structure")
    assert (other.number, other.delta) == (2, schedule.share(1))
    mine = read_spending(corpus).of("lexical")
    assert mine.spent == pytest.approx(sum(map(schedule.share, (1, 2, 3)))) and mine.later == 3
    assert (
        "the first certificate, 2 later certificates and 1 recertification all hold" in mine.joint()
    )
    declare(corpus, Schedule("planned", 0.01, count=1), reason="the last one.")
    assert claim(corpus, "lexical", "certificate", "v4").delta == 0.008
