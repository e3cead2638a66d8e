"""Which splits certify a judge: those that it did not learn from, and what was stored before."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError, StaleCertificateError
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import open_deployment
from certify_assets.operations.ledger import registrations
from certify_assets.operations.recertification import plan_recertification
from certify_assets.reports.judge_page import write_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.conftest import copy_world

SCORES = "judges/lexical/c/scores"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a certified and audited lexical judge, copied for every test."""
    folder = tmp_path_factory.mktemp("calibration")
    store = Store(str(folder / "root"))
    register_runs(store, "c", write_runs(folder / "runs.jsonl", tasks=80))
    Corpus(store, "c").prepare()
    judged(store).train()
    judged(store).score()
    certifier.certify_judge(judged(store))
    audit_judge(judged(store))
    return folder / "root"


@pytest.fixture
def certified(world: Path, tmp_path: Path) -> Store:
    return copy_world(world, tmp_path)


def tasks(store: Store, *splits: str) -> set[str]:
    found = Corpus(store, "c").manifest.tasks
    return {task for split in splits for task in found[split]}


def by_command(*words: object) -> bool:
    from certify_assets.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, words)))
    return stopped.value.code == 0


def verified_by_command(store: Store) -> bool:
    files = [
        store.locate(f"judges/lexical/c/{name}") for name in ("certificates.json", "scores.parquet")
    ]
    return by_command("verify", *files)


@pytest.mark.parametrize("name", list(JUDGES))
def test_no_split_certifies_a_judge_that_learned_from_it(name: str) -> None:
    spec = JUDGES[name]
    assert not set(spec.calibration_splits) & set(spec.training_splits)
    assert "cal" in spec.calibration_splits and "test" not in spec.calibration_splits
    # a pool of other corpora keeps apart from CAL and TEST alone
    learned = "rl" in spec.training_splits or spec.family == "transfer"
    assert ("rl" in spec.calibration_splits) == (not learned)


def test_labels_of_rl_certify_a_judge_trained_on_sft(certified: Store) -> None:
    judge = judged(certified)
    rows, _, _ = judge.calibration
    assert set(rows["task_id"]) == tasks(certified, "rl", "cal") and tasks(certified, "rl")
    (first, *_) = certificates = certifier.load_certificates(judge)
    assert {item.provenance["split"] for item in certificates} == {"rl and cal"}
    assert (first.tasks, first.trajectories) == (rows["task_id"].nunique(), len(rows))
    assert certifier.verify_stored(judge) == []
    (plan, *_) = [item.plan for item in registrations(judge.corpus)]
    assert plan["certified_on"] == ["rl", "cal"]
    assert verified_by_command(certified)


def test_the_command_certifies_the_score_table_of_a_judge_as_the_platform_does(
    certified: Store, tmp_path: Path
) -> None:
    judge = judged(certified)
    table = Path(certified.locate(f"{SCORES}.parquet"))
    names = certified.read_table(f"{SCORES}.parquet")["split"]
    assert set(names) == {"cal", "test"} and (names == "cal").sum() == len(judge.calibration[0])
    own = judge.score_table()
    assert set(own["split"]) == {"rl", "cal", "test"}
    # a run without an outcome certifies nothing, and the command does not stumble over it
    own.loc[own.index[own["split"] == "rl"][0], "outcome"] = None
    assert judge._named(own, ("rl", "cal"))[own.index[own["split"] == "rl"][0]] == "rl_unlabelled"
    for item in certifier.load_certificates(judge):
        if item.procedure == "guarded_taskboot":
            asked: dict[str, object] = {name: getattr(item, name) for name in ("side", "alpha")}
            asked |= {"procedure": item.procedure, "set": f"grid={item.settings['grid']}"}
            options = [word for name, value in asked.items() for word in (f"--{name}", value)]
            out = tmp_path / f"{item.side}{item.alpha}.json"
            assert by_command("certificate", table, *options, "--out", out) == item.certified
            named = dict.fromkeys(("provenance", "ledger", "digest"))
            assert json.loads(out.read_text("utf-8")) | named == item.to_dict() | named


def configure(store: Store, **changed: object) -> None:
    save_config(store, replace(load_config(store, "c"), **changed))  # type: ignore[arg-type]


@pytest.mark.slow
def test_labels_of_rl_that_choose_a_judge_do_not_certify_it(certified: Store) -> None:
    configure(certified, rl_labels="choose")
    # scores of before let RL certify, and are not scored again by themselves
    for use in (certifier.load_certificates, certifier.certify_judge):
        with pytest.raises(StaleCertificateError, match="labels of RL choose the judge"):
            use(judged(certified))
    judged(certified).score()
    judge = judged(certified)
    assert judge.calibration_splits == ("cal",)
    with pytest.raises(
        StaleCertificateError,
        match="were made on rl and cal, and the judge is certified on cal now",
    ):
        certifier.load_certificates(judge)
    certifier.certify_judge(judge)
    assert {item.provenance["split"] for item in certifier.load_certificates(judge)} == {"cal"}
    # back again under the same splits they stay out: they have chosen
    configure(certified, rl_labels="certify")
    judged(certified).score()
    assert judged(certified).calibration_splits == ("cal",)


@pytest.mark.slow
def test_a_delivery_does_not_let_labels_certify_that_chose(certified: Store) -> None:
    configure(certified, rl_labels="choose")
    judged(certified).score()
    configure(certified, rl_labels="certify")
    manifest, before = Corpus(certified, "c").manifest, tasks(certified, "rl")
    delivered = write_runs(certified.local_path("later.jsonl"), tasks=100)
    configure(certified, paths=(str(delivered),))
    Corpus(certified, "c").prepare()
    # other splits, in which tasks keep theirs
    assert Corpus(certified, "c").manifest.sha256 != manifest.sha256
    assert before <= tasks(certified, "rl")
    judged(certified).train()
    judged(certified).score()
    assert judged(certified).calibration_splits == ("cal",)


@pytest.mark.parametrize("splits", [["sft", "cal"], ["rl"], ["rl", "cal", "test"], []])
def test_scores_that_name_other_splits_are_refused(certified: Store, splits: list[str]) -> None:
    document = certified.read_json(f"{SCORES}.json")
    certified.write_json(f"{SCORES}.json", document | {"calibration_splits": splits})
    with pytest.raises(IntegrityError, match="which may be rl and cal alone"):
        certifier.load_certificates(judged(certified))


def test_a_deployment_on_cal_alone_still_decides(certified: Store) -> None:
    configure(certified, rl_labels="choose")
    judged(certified).score()
    certifier.certify_judge(judged(certified))
    audit_judge(judged(certified))
    deploy(judged(certified), track=False)
    deployment = open_deployment(Corpus(certified, "c"))
    assert deployment.refusal is None
    assert deployment.certificates[0].provenance["split"] == "cal"


def test_a_recertification_names_the_splits_of_its_rows(certified: Store) -> None:
    plan = plan_recertification(judged(certified))
    assert set(plan.table["provenance"]) == {"rl", "cal"}
    of_rl = plan.table["provenance"] == "rl"
    assert set(plan.table.loc[of_rl, "task_id"]) == tasks(certified, "rl")
    # all rows of a recertification are those of its certificates
    assert set(plan.table["split"]) == {"cal"}


def test_the_page_names_the_rows(certified: Store) -> None:
    corpus = Corpus(certified, "c")
    corpus.measure_profile()
    corpus.measure_leaks()
    write_page(judged(certified))
    page = certified.read_bytes("judges/lexical/c/page.html").decode("utf-8")
    assert "wrong on RL and CAL" in page and "wrong on CAL<" not in page
