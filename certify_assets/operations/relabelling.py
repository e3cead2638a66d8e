"""Labels and runs that were changed or left out after a certificate was seen."""

# A share of δ pays for looking again at what is delivered. It does not pay for a choice by outcome:
# whoever corrects labels only where the judge errs, or leaves such runs out, certifies nearly any
# judge. An honest correction looks the same, so it is counted and said, and a user accepts it.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from certify_assets.certificates.counts import covers
from certify_assets.certificates.findings import RELABELLED
from certify_assets.corpora.deliveries import left_out, relabelled
from certify_assets.judges.specs import PROCEDURES
from certify_assets.operations.split_history import certified_versions, corpora_of_the_same_runs
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.judged import JudgedCorpus

_UNASSIGNED: Final = "no split"


@remembered
def relabelling_finding(judge: JudgedCorpus) -> dict[str, str]:
    """Compare the runs that certify or audit a judge with the same runs as first certified.

    The finding by its code; empty where nothing changed.
    """
    import pandas as pd

    corpus, splits = judge.corpus, (*judge.calibration_splits, "test", _UNASSIGNED)
    assigned = corpus.stored_manifest.assignment_so_far

    def certifying(table: pd.DataFrame) -> pd.DataFrame:
        # tasks that another seed or profile left out are in no split
        split = table["task_id"].map(lambda task: assigned.get(task, _UNASSIGNED))
        return table.assign(split=split)[split.isin(splits)]

    own, others = map(certifying, _first_certified(judge))
    now = corpus.runs
    gone = left_out(own, now)
    changed = pd.concat(
        table[table["trajectory_id"].isin(relabelled(table, now))] for table in (own, others)
    )
    said = [
        f"{what}: {len(runs)} ({', '.join(f'{split.upper()} {many}' for split, many in counts)})"
        for what, runs in (("labels changed", changed), ("runs left out", gone))
        if (counts := sorted(Counter(runs["split"]).items()))
    ]
    if tasks := len({*gone["task_id"]} - {*now["task_id"]}):
        said.append(f"tasks left out: {tasks}")
    if not said:
        return {}
    sentence = f"Since these runs were first certified, {'; '.join(said)}."
    stored = judge.read("certificates.json").get("certificates", [])
    for item in stored:
        # what certificates of the same runs say
        provenance = item["provenance"]
        known = str(provenance.get(RELABELLED, ""))
        same = provenance["trajectories_sha256"] == corpus.trajectories_sha256
        if same and known.startswith(sentence):
            return {RELABELLED: known}
    return {RELABELLED: sentence + _direction(judge, stored, changed["trajectory_id"])}


def _first_certified(judge: JudgedCorpus) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return labelled runs as they were first certified, here and in other corpora."""
    corpus = judge.corpus
    deliveries, certified = corpus.deliveries.read(), certified_versions(corpus)
    same = [
        item.number for item in deliveries if item.trajectories_sha256 == corpus.trajectories_sha256
    ]
    # runs that are delivered again as they were certified come before whatever was seen since
    number = min((item for item in same if item in certified), default=max(same, default=0))
    earlier = [item for item in deliveries if item.number < number and item.number in certified]
    since = [item.changes for item in deliveries if earlier and earlier[0].number < item.number]
    own = corpus.runs.iloc[:0]
    if any(item is None or item.changed_labels or item.gone_runs for item in since):
        for item in earlier:
            own = _extended(own, corpus.deliveries.runs(item))
    others, contents = own.iloc[:0], set(corpus.runs["content"])
    for other, versions in corpora_of_the_same_runs(corpus):
        times = certified_versions(other)
        for item in other.deliveries.read():
            # "~" comes after every time
            if item.number in versions and times.get(item.number, "~") < certified.get(number, "~"):
                table = other.deliveries.runs(item)
                others = _extended(others, table[table["content"].isin(contents)])
    return own, others


def _extended(known: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the labelled runs that are not known yet."""
    import pandas as pd

    new = table["outcome"].notna() & ~table["content"].isin(set(known["content"]))
    return pd.concat([known, table[new]], ignore_index=True)


def _direction(
    judge: JudgedCorpus, certificates: Sequence[Mapping[str, Any]], changed: Iterable[str]
) -> str:
    """Say how many changed labels agree with the earlier certificates; empty if not known."""
    adapter = judge.stored_artifact.adapter_sha256
    scores = judge.score_table().set_index("trajectory_id")["score"].dropna()
    outcomes = judge.corpus.runs.set_index("trajectory_id")["outcome"].dropna()
    names = [name for name in changed if name in scores.index and name in outcomes.index]
    decided = {
        name: item["side"] == "release"
        for item in certificates
        if item["procedure"] == PROCEDURES[0]
        and item["certified"]
        and item["provenance"]["adapter_sha256"] == adapter
        for name in names
        if covers(item["side"], item["threshold"], scores[name])
    }
    if not decided:
        return ""
    agree = sum(int(outcomes[name]) == success for name, success in decided.items())
    return (
        f" The judge had decided {len(decided)} of the runs with changed labels; {agree} of the "
        "labels now agree with it."
    )
