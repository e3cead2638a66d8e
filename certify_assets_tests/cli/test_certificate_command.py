"""``certify certificate``: what is listed, what is refused, and what the document promises."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

EVERY = [
    "pseudo_task",
    "guarded_taskboot",
    "taskboot",
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "betting",
]


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    score_rows(tasks=80, attempts=6, seed=3).to_csv(path, index=False)
    return path


def noise(path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "task_id": np.arange(300) % 40,
            "score": rng.normal(size=300),
            "outcome": rng.integers(0, 2, 300),
        }
    )
    frame.to_csv(path, index=False)


def test_what_was_understood_is_said_and_changes_nothing(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores)
    frame["outcome"] = np.where(frame["outcome"] == 1, "pass", "fail")
    odd = tmp_path / "odd.csv"
    frame.rename(columns={"task_id": "Task ID"}).to_csv(odd, index=False, sep=";", decimal=",")
    plain, read = call(f"certificate {scores} --json"), call(f"certificate {odd} --json")
    assert read.json == plain.json and read.code == plain.code == 0
    assert (
        "odd.csv read as: semicolons between fields; column 'Task ID' as task_id; scores with "
        "decimal commas; outcome: 'pass' as 1 and 'fail' as 0" in read.err
    )
    assert "read as" not in plain.err


def test_the_command_that_would_read_a_table_works(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores)
    frame["outcome"] = np.where(frame["outcome"] == 1, "good", "bad")
    odd = tmp_path / "odd.csv"
    frame.rename(columns={"task_id": "instance"}).to_csv(odd, index=False)
    refused = call(f"certificate {odd} --side reject --json")
    assert refused.code == 2 and "Name the successes among 'bad', 'good' with" in refused.err
    line = refused.err.partition("try: ")[2].strip()
    assert line == (
        f"certify certificate {odd} --side reject --json --columns task=instance --set success=VALUE"
    )
    read = call(line.removeprefix("certify ").replace("VALUE", "good"))
    plain = call(f"certificate {scores} --side reject --json").json
    said = {"success": "good", "columns": "task=instance"}
    assert read.json == {**plain, "provenance": said, "digest": read.json["digest"]}


def test_all_lists_every_procedure_of_the_contract(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "all.json"
    answer = call(f"certificate {scores} --procedure all --json --out {out}")
    items = answer.json["certificates"]
    assert answer.code == 0
    assert [item["procedure"] for item in items[::2]] == EVERY
    one = call(f"certificate {scores} --procedure all --side reject --json").json
    assert set(one) == {"certificates"} and one["certificates"] == items[::2]
    assert set(answer.json) == {"certificates", "decided", "human", "promise"}
    assert [line.split(":")[0] for line in answer.json["promise"].splitlines()] == [
        f"By {name}" for name in EVERY
    ]
    for item in items:
        lacking = "pilot_missing" in [finding["code"] for finding in item["findings"]]
        assert lacking == (item["procedure"] == "betting")
        assert not (lacking and (item["certified"] or item["coverage"]))
    assert call(f"verify {out} {scores}").code == 0


def test_side_by_side_the_best_that_holds_is_marked(call: Call, scores: Path) -> None:
    out = call(f"certificate {scores} --procedure all --side both").out
    (betting,) = [line for line in out.splitlines() if " betting " in line]
    assert betting.count("needs") == 2 and "pilot_missing" not in out
    (best,) = [line for line in out.splitlines() if "▸ " in line and "│" in line]
    assert "▸ naive" not in best and "By " not in out and "nothing_passes" not in out


def test_noise_never_counts_as_certified(call: Call, tmp_path: Path) -> None:
    noise(tmp_path / "noise.csv")
    answer = call(f"certificate {tmp_path}/noise.csv --procedure all --json")
    assert [item["procedure"] for item in answer.json["certificates"][1::2]] == EVERY
    assert answer.code == 3 and not any(item["certified"] for item in answer.json["certificates"])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("--guard floor", "--guard does not apply to pseudo_task"),
        ("--engine montecarlo", "engine montecarlo does not apply to pseudo_task"),
        ("--pilot {scores}", "pseudo_task does not read it"),
        ("--procedure all --pilot {scores}", "shares 80 task(s)"),
        ("--procedure betting --pilot {scores}", "shares 80 task(s)"),
        ("--procedure taskboot --pool {scores}", "taskboot does not read it"),
        ("--pool {scores}", "the calibration table itself"),
        ("--procedure pseudo_task --size-ratio 0.9", "size_ratio is 0.9"),
        ("--joint --side reject", "--side both"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(
    call: Call, scores: Path, arguments: str, word: str
) -> None:
    answer = call(f"certificate {scores} {arguments} --json".format(scores=scores))
    assert answer.code == 2
    assert answer.out == ""
    assert word in answer.err
    assert answer.err.count("\n") == 1


def test_both_sides_promise_together_in_the_document(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "both.json"
    apart = call(f"certificate {scores} --side both --alpha 0.2 --json --out {out}")
    assert set(apart.json) == {"certificates", "decided", "human", "promise"}
    assert "together with 90 % confidence" in apart.json["promise"]
    assert json.loads(out.read_text("utf-8")) == apart.json
    assert call(f"verify {out} {scores}").code == 0 and call(f"decide {out} {scores}").code == 0
    joint = call(f"certificate {scores} --side both --alpha 0.2 --joint --json").json
    assert "together with 95 % confidence" in joint["promise"]
    assert joint["joint_delta"] == 0.05
    # calibrated over the grid, a side frees its half when all of it is certified
    assert all(item["delta"] == 0.025 for item in joint["certificates"])
    guarded = f"certificate {scores} --alpha 0.2 --joint --procedure guarded_taskboot --json"
    shared = call(guarded).json["certificates"]
    assert all(0.025 < item["delta"] < 0.05 for item in shared)
    shown = call(f"certificate {scores} --side both --alpha 0.2").out
    assert "together with 90 % confidence" in " ".join(shown.split())


def test_an_altered_promise_is_refused(call: Call, scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    document = call(f"certificate {scores} --side both --alpha 0.2 --json").json
    for change in (
        {"promise": document["promise"].replace("90 %", "99 %")},
        {"promise": 3},
        {"promise": None},
        {"decided": document["decided"] + 0.01},
        {"human": 0},
        {"joint_delta": 0.05},
        {"joint_delta": True},
        {"more": 1},
    ):
        out.write_text(json.dumps({**document, **change}), "utf-8")
        answer = call(f"verify {out} {scores}")
        assert answer.code == 3 and answer.err
        assert call(f"decide {out} {scores}").code == 2
    for name in ("promise", "decided", "human"):
        del document[name]
    out.write_text(json.dumps(document), "utf-8")
    # two certificates put together by hand promise nothing together, and each is what it is
    assert call(f"verify {out} {scores}").code == 0


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = score_rows(tasks=120, attempts=6, seed=4)
    frame["task_id"] = "pilot-" + frame["task_id"].astype(str)
    frame["trajectory_id"] = [f"pilot/{row}" for row in range(len(frame))]
    path = tmp_path_factory.mktemp("pilot") / "pilot.csv"
    frame.to_csv(path, index=False)
    return path


def test_betting_takes_a_pilot_and_verify_asks_for_it(
    call: Call, scores: Path, pilot: Path, tmp_path: Path
) -> None:
    out = tmp_path / "betting.json"
    answer = call(
        f"certificate {scores} --side reject --procedure betting --pilot {pilot} --alpha 0.2 --json --out {out}"
    )
    assert answer.code == 0
    assert answer.json["certified"]
    assert answer.json["validity"] == "finite-sample"
    assert answer.json["parameters"]["pilot"] and answer.json["estimand"] == "task"
    assert call(f"verify {out} {scores} --pilot {pilot}").code == 0
    lacking = call(f"verify {out} {scores} --json")
    assert lacking.code == 3 and "cannot be recomputed without it" in lacking.json["difference"]
    assert call(f"verify {out} {scores} --pilot {scores}").code == 3
    everything = call(
        f"certificate {scores} --side reject --procedure all --pilot {pilot} --alpha 0.2 --json "
        f"--out {out}"
    ).json
    assert {item["procedure"]: item for item in everything["certificates"]}[
        "betting"
    ] == answer.json
    assert call(f"verify {out} {scores}").code == 3
    assert call(f"verify {out} {scores} --pilot {pilot}").code == 0
    assert call(f"decide {out} {scores} --procedure betting").code == 0


def test_betting_without_a_pilot_is_refused_before_anything_is_read(
    call: Call, tmp_path: Path
) -> None:
    answer = call(f"certificate {tmp_path}/nothing.csv --procedure betting --json")
    assert answer.code == 2 and not answer.out and "give one (--pilot)" in answer.err


def test_rows_without_ids_that_are_there_twice_are_a_finding(call: Call, tmp_path: Path) -> None:
    frame = score_rows(tasks=80, attempts=6, seed=3)
    twice = pd.concat([frame, frame[:11]])
    path, out = tmp_path / "twice.csv", tmp_path / "certificate.json"
    twice.drop(columns="trajectory_id").to_csv(path, index=False)
    document = call(f"certificate {path} --side reject --json --out {out}").json
    (finding,) = [item for item in document["findings"] if item["code"] == "duplicate_rows"]
    assert "11 of 491 rows" in finding["message"]
    assert call(f"verify {out} {path}").code == 0
    named = twice.assign(trajectory_id=range(len(twice)))
    named.to_csv(path, index=False)
    assert not call(f"certificate {path} --side reject --json").json["findings"]
    answer = call(f"verify {out} {path} --json")
    assert answer.code == 3 and answer.json["difference"].startswith("findings")


def test_scores_of_failure_are_noticed_and_read_on_request(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    frame = pd.read_csv(scores)
    path, out = tmp_path / "lower.csv", tmp_path / "both.json"
    frame.assign(score=-frame["score"]).to_csv(path, index=False)
    document = call(f"certificate {path} --json").json
    for item in document["certificates"]:
        assert "scores_look_reversed" in [finding["code"] for finding in item["findings"]]
    plain = tmp_path / "plain.json"
    expected = call(f"certificate {scores} --json --out {plain}").json
    turned = call(f"certificate {path} --lower-is-better --json --out {out}").json
    for item in turned["certificates"]:
        assert item.pop("provenance") == {"lower_is_better": "true"}
    for document in (turned, expected):
        for item in document["certificates"]:
            del item["digest"]
            item.pop("provenance", None)
    assert turned == expected
    # what follows is read as the certificate says, with or without the option
    for option in ("", "--lower-is-better"):
        assert call(f"verify {out} {path} {option}").code == 0
        decided = call(f"decide {out} {path} {option} --json")
        assert "read as: lower scores as better" in decided.err
        del decided.json["certificate_sha256"]
        again = call(f"decide {plain} {scores} --json").json
        assert {**decided.json, "certificate_sha256": again["certificate_sha256"]} == again
    assert call(f"verify {out} {scores}").code == 3
    # a plan keeps it for the draw
    named, drawn = tmp_path / "named.csv", []
    frame.assign(score=-frame["score"], trajectory_id=range(len(frame))).to_csv(named, index=False)
    planned = call(f"batch plan {out} {named} --side reject --out {tmp_path}/plan.json --json")
    assert planned.code == 0
    for source, option in ((out, ""), (tmp_path / "plan.json", ""), (out, "--lower-is-better")):
        side = "" if source.name == "plan.json" else "--side reject"
        rows = tmp_path / "draw.csv"
        assert call(f"batch draw {source} {named} --seed 3 --out {rows} {side} {option}").code == 0
        drawn.append(rows.read_text("utf-8"))
    assert len(set(drawn)) == 1
    for command in ("verify", "decide", "audit", "monitor", "report", "batch plan"):
        refused = call(f"{command} {plain} {path} --lower-is-better")
        assert refused.code == 2 and "leave --lower-is-better out" in refused.err


@pytest.mark.parametrize(
    ("issued", "options", "said"),
    [
        ("{:.4f}", "", {}),
        ("{:.2%}", "", {"score_scale": "percent"}),
        (100, "--score-scale probability", {"score_scale": "percent"}),
        (10, "", {"score_scale": "0 to 10"}),
        (100, "", {"score_scale": "0 to 100"}),
    ],
)
def test_a_certificate_says_how_its_scores_were_read(
    call: Call, scores: Path, tmp_path: Path, issued: str | int, options: str, said: dict[str, str]
) -> None:
    frame = pd.read_csv(scores)
    chances = 1 / (1 + np.exp(-frame["score"]))

    def written(how: str | int) -> Path:
        path = tmp_path / f"{abs(hash(how))}.csv"
        values = chances * how if isinstance(how, int) else chances.map(how.format)
        frame.assign(score=values, trajectory_id=range(len(frame))).to_csv(path, index=False)
        return path

    path, out = written(issued), tmp_path / "c.json"
    document = call(
        f"certificate {path} --side reject --alpha .2 {options} --json --out {out}"
    ).json
    assert document["certified"] and document["provenance"] == said
    assert call(f"verify {out} {path}").code == 0
    share = document["covered_trajectories"]
    assert call(f"decide {out} {path} --json").json["reject"] == share
    for other in ("{:.4f}", "{:.2%}", 10, 100):
        answer = call(f"decide {out} {written(other)} --json")
        alike = {"{:.4f}", "{:.2%}"} if said.get("score_scale") in (None, "percent") else {issued}
        if other in alike or (other == 100 and said.get("score_scale") == "percent"):
            # rounded as it is written
            assert answer.code == 0 and answer.json["reject"] == pytest.approx(share, abs=5)
        else:
            assert answer.code == 2 and "was issued on" in answer.err
            assert "--score-scale" in answer.err and not answer.out
            for command in ("audit", "monitor", "report", "batch plan"):
                assert call(f"{command} {out} {written(other)}").code == 2
    taken = call(f"decide {out} {written(100)} --score-scale probability --json")
    if said.get("score_scale", "percent") == "percent":
        assert taken.json["reject"] == pytest.approx(share, abs=5)
    else:
        assert taken.code == 2 and "--score-scale probability would read" in taken.err


def test_the_pilot_is_its_own_split(call: Call, scores: Path, pilot: Path, tmp_path: Path) -> None:
    frame = pd.concat(
        [pd.read_csv(scores).assign(split="cal"), pd.read_csv(pilot).assign(split="rl")]
    )
    whole = tmp_path / "whole.csv"
    frame.to_csv(whole, index=False)
    apart = call(
        f"certificate {scores} --side reject --procedure betting --pilot {pilot} --alpha 0.2 --json"
    ).json
    assert (
        call(
            f"certificate {whole} --side reject --procedure betting --pilot {whole} --alpha 0.2 --json"
        ).json
        == apart
    )
    frame.assign(split="cal").to_csv(whole, index=False)
    refused = call(f"certificate {scores} --side reject --procedure betting --pilot {whole} --json")
    assert refused.code == 2 and "split='pilot'" in refused.err


@pytest.mark.slow
def test_a_pool_is_read_without_its_outcomes_and_asked_for_again(
    call: Call, scores: Path, pilot: Path, tmp_path: Path
) -> None:
    pool, out = tmp_path / "pool.csv", tmp_path / "certificate.json"
    # an outcome that no table could have: nobody looks at it
    pd.read_csv(pilot).assign(outcome="unknown").to_csv(pool, index=False)
    asked = (
        f"certificate {scores} --side reject --procedure pseudo_task --alpha 0.2 --json --out {out}"
    )
    answer = call(f"{asked} --alpha 0.2 --pool {pool}")
    assert answer.code == 0 and answer.json["certified"]
    assert set(answer.json["inputs"]["pool"]) == {"sha256", "rows", "origin"}
    assert "hand_picked" in [finding["code"] for finding in answer.json["findings"]]
    assert call(f"verify {out} {scores} --pool {pool}").code == 0
    assert call(f"verify {out} {scores} --pool {pilot}").code == 0
    lacking = call(f"verify {out} {scores} --json")
    assert lacking.code == 2 and "give it (--pool)" in lacking.err and not lacking.out
    pd.read_csv(pool).iloc[:-1].to_csv(pool, index=False)
    other = call(f"verify {out} {scores} --pool {pool} --json")
    assert other.code == 3 and "inputs.pool.sha256" in other.json["difference"]
    page = call(f"report {out} {scores} --pool {pilot} --out {tmp_path / 'page.html'}")
    assert page.code == 0 and "calibrated by simulation" in (tmp_path / "page.html").read_text(
        "utf-8"
    )
    every = call(f"certificate {scores} --procedure all --pool {pilot} --json").json
    pools = [item["procedure"] for item in every["certificates"] if "pool" in item["inputs"]]
    assert pools == ["pseudo_task"] * 2


def test_what_an_option_does_not_change_is_said(call: Call, scores: Path) -> None:
    asked = f"certificate {scores} --side reject --json"
    exact = call(f"{asked} --procedure all --engine exact --guard none")
    engines = {
        item["procedure"]: item["parameters"]["engine"] for item in exact.json["certificates"]
    }
    assert set(engines.values()) == {"exact"}
    said = {line.split(" ")[1]: line for line in exact.err.splitlines()}
    assert set(said) == {"--engine", "--guard"}
    assert "naive" in said["--engine"] and "pseudo_task" not in said["--engine"]
    drawn = call(f"{asked} --procedure all --engine montecarlo --draws 500")
    engines = {
        item["procedure"]: item["parameters"]["engine"] for item in drawn.json["certificates"]
    }
    assert engines["taskboot"] == "montecarlo" and engines["pseudo_task"] == "auto"
    assert all("pseudo_task" in line for line in drawn.err.splitlines())
    one = call(f"{asked} --procedure naive --size-ratio 2")
    assert one.err == "certify: --size-ratio changes nothing under naive.\n"
    assert not call(f"{asked} --procedure guarded_taskboot --size-ratio 2 --engine exact").err


def test_a_pool_or_pilot_that_no_certificate_reads_is_said(
    call: Call, scores: Path, pilot: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.json"
    assert call(f"certificate {scores} --procedure naive --side reject --alpha .2 --out {out}").out
    for option in ("--pool", "--pilot"):
        answer = call(f"verify {out} {scores} {option} {pilot}")
        assert answer.code == 0 and answer.err.startswith(f"certify: {option} changes nothing")
    assert not call(f"verify {out} {scores}").err


def test_pools_that_cannot_be_read(call: Call, scores: Path, pilot: Path, tmp_path: Path) -> None:
    pool, frame = tmp_path / "pool.csv", pd.read_csv(pilot)
    for table, word in (
        (frame.drop(columns="score"), "no column 'score'"),
        (frame.assign(split="cal"), "only rows with split=cal"),
        (pd.concat([frame, pd.read_csv(scores)[:1]]), "shares 1 task(s)"),
    ):
        table.to_csv(pool, index=False)
        answer = call(f"certificate {scores} --procedure pseudo_task --pool {pool} --json")
        assert answer.code == 2 and word in answer.err and answer.err.count("\n") == 1
        # no command line is proposed: its columns would be those of both tables
        assert "try:" not in answer.err
    # one file for both: its rows of other splits are the pool
    whole = tmp_path / "whole.csv"
    pd.concat([pd.read_csv(scores).assign(split="cal"), frame.assign(split="test")]).to_csv(
        whole, index=False
    )
    apart, together = (
        call(
            f"certificate {table} --side reject --procedure pseudo_task --pool {other} --json"
        ).json
        for table, other in ((scores, pilot), (whole, whole))
    )
    assert apart == together


def test_the_default_is_both_sides_and_the_total(call: Call, scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    document = call(f"certificate {scores} --alpha 0.2 --json --out {out}").json
    reject, release = document["certificates"]
    assert (reject["side"], release["side"]) == ("reject", "release")
    decided = call(f"decide {out} {scores} --json").json
    total = decided["reject"] + decided["release"] + decided["human"]
    # the table has no unscored row: the shares are those of its rows
    assert document["decided"] == pytest.approx((total - decided["human"]) / total, abs=1e-9)
    assert document["human"] == pytest.approx(decided["human"] / total, abs=1e-9)
    for item in (reject, release):
        one = call(f"certificate {scores} --alpha 0.2 --side {item['side']} --json").json
        assert one == item
    shown = call(f"certificate {scores} --alpha 0.2").out
    assert f"{100 * document['decided']:.1f} % of runs are decided, " in shown and "█░" in shown


def test_a_side_alone_is_certified_and_counted(call: Call, tmp_path: Path) -> None:
    # most runs succeed, so that next to nothing may be rejected
    frame = score_rows(tasks=80, attempts=6, seed=3)
    frame["outcome"], frame["score"] = 1 - frame["outcome"], -frame["score"]
    frame.to_csv(tmp_path / "scores.csv", index=False)
    answer = call(f"certificate {tmp_path}/scores.csv --alpha .02 --json")
    reject, release = answer.json["certificates"]
    assert answer.code == 0 and release["certified"] and not reject["certified"]
    assert answer.json["decided"] == release["coverage"]
    assert answer.json["decided"] + answer.json["human"] == 1


@pytest.mark.slow
def test_what_a_side_no_longer_needs_goes_to_the_other_and_verify_knows(
    call: Call, scores: Path, tmp_path: Path
) -> None:
    out = tmp_path / "joint.json"
    asked = f"certificate {scores} --procedure guarded_taskboot --alpha 0.2 --json"
    document = call(f"{asked} --joint --out {out}").json
    assert call(f"verify {out} {scores}").code == 0 and call(f"decide {out} {scores}").code == 0
    page, words = tmp_path / "page.html", "confidence for both sides together"
    for more in ("", "--side release"):
        assert call(f"report {out} {scores} --out {page} {more}").code == 0
        assert (words in page.read_text("utf-8")) == (not more)
    apart = call(f"{asked} --delta {document['joint_delta'] / 2}")
    # by hand: each at half of it, and no share of the other passed on
    mixed = {**apart.json, "joint_delta": 0.05}
    mixed["promise"] = mixed["promise"].replace("95 %:", "95 %:")
    out.write_text(json.dumps(mixed), "utf-8")
    answer = call(f"verify {out} {scores} --json")
    assert answer.code == 3 and "by sharing 0.05" in answer.json["difference"]
    # no page is drawn of a joint promise that does not recompute
    drawn = call(f"report {out} {scores} --out {tmp_path}/no.html")
    assert drawn.code == 3 and "by sharing 0.05" in drawn.err
    assert not (tmp_path / "no.html").exists()


@pytest.mark.parametrize("name", ["pool", "pilot"])
def test_pool_and_pilot_are_on_the_scale_of_the_scores(
    call: Call, tmp_path: Path, name: str
) -> None:
    def written(which: str, factor: float, ending: str = "csv", sign: int = 1) -> Path:
        frame = score_rows(tasks=100, attempts=4, seed=3 + (which == name))
        frame["task_id"] = f"{which}-" + frame["task_id"].astype(str)
        frame["score"] = sign * factor / (1 + np.exp(-frame["score"]))
        path = tmp_path / f"{which}-{factor:g}{sign}.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        return path

    command = "certificate {} --side reject --alpha .2 --json"
    command += " --pool {}" if name == "pool" else " --procedure betting --pilot {}"
    plain = call(command.format(written("s", 1), written(name, 1)))
    assert plain.json["certified"]
    grades = call(command.format(written("s", 100), written(name, 100)))
    assert grades.json["covered_trajectories"] == plain.json["covered_trajectories"]
    for ours, theirs in ((1, 100), (1, 10), (100, 1), (10, 100)):
        answer = call(command.format(written("s", ours), written(name, theirs)))
        assert answer.code == 2 and not answer.out, (ours, theirs)
        assert f"{name}-{theirs}1.csv has scores " in answer.err
        assert f"s-{ours}1.csv has " in answer.err and "--score-scale" in answer.err
    said = command + " --score-scale probability"
    for ours, theirs in ((1, 100), (100, 1), (100, 100)):
        read = call(said.format(written("s", ours), written(name, theirs)))
        assert read.json["covered_trajectories"] == plain.json["covered_trajectories"]
    lower = command + " --lower-is-better"
    turned = call(lower.format(written("s", 1, sign=-1), written(name, 1, sign=-1)))
    assert turned.json["covered_trajectories"] == plain.json["covered_trajectories"]
