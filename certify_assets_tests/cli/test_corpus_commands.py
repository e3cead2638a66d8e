"""``certify corpus``: what an import says, refuses and leaves behind."""

import shutil
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data root that is not there yet; partitions are another test's matter."""
    from certify_assets.cli import launching

    monkeypatch.setattr(launching, "change_partition", lambda *_, **__: None)
    path = tmp_path / "data" / "root"
    monkeypatch.setenv("CERTIFY_ROOT", str(path))
    return path


def test_the_gates_are_those_of_cal_and_test(call: Call, root: Path, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.jsonl", tasks=110, attempts=2)
    answer = call(f"corpus import {tmp_path}/runs.jsonl --name c --json")
    assert answer.code == 0
    gates = {(gate["split"], gate["alpha"]): gate["tasks"] for gate in answer.json["gates"]}
    assert set(gates) == {
        (split, alpha) for split in ("rl and cal", "test") for alpha in (0.1, 0.2)
    }
    assert gates["rl and cal", 0.1] > gates["test", 0.1]
    # each procedure has the number of thresholds that it was calibrated with
    assert Corpus(Store(str(root)), "c").config.grid is None
    paper = call(f"corpus import {tmp_path}/runs.jsonl --name p --set profile=paper")
    assert "50 tasks are available to certify (RL and CAL)" in paper.out


def test_what_was_left_out_is_said_and_many_agents_are_not_all_listed(
    call: Call, root: Path, tmp_path: Path
) -> None:
    rows = [f"t{row % 30},{row % 2},person {row},run {row}" for row in range(90)]
    (tmp_path / "runs.csv").write_text(
        "\n".join(["task_id,outcome,agent,text", *rows, "t1,,nobody,x"]),
        "utf-8",
    )
    answer = call(f"corpus import {tmp_path}/runs.csv --name c")
    assert answer.code == 0 and "person 0: 1" in answer.out and "and 87 more" in answer.out
    assert (
        "no_label (1), the first: runs.csv row 92 has no outcome; keep such runs with the "
        "option keep_unlabelled."
    ) in answer.out
    assert (
        call(
            f"corpus import {tmp_path}/runs.csv --name a_name_of_forty_characters_that_is_not_cut"
        ).code
        == 0
    )
    assert "a_name_of_forty_characters_that_is_not_cut" in call("corpus list").out


def test_a_corpus_is_replaced_only_when_asked(call: Call, root: Path, tmp_path: Path) -> None:
    write_runs(tmp_path / "one.jsonl", tasks=20, attempts=2)
    write_runs(tmp_path / "two.jsonl", tasks=30, attempts=2)
    imported = "corpus import --name c"
    assert call(f"{imported} {tmp_path}/one.jsonl").code == 0
    before = Store(str(root)).now().ledger("c")
    # a call that was killed is made again in the same words
    repeated = call(f"{imported} {tmp_path}/one.jsonl")
    assert repeated.code == 0 and "nothing changes" in repeated.err
    assert Store(str(root)).now().ledger("c") == before
    again = call(f"{imported} {tmp_path}/two.jsonl")
    assert again.code == 2
    assert "registered already (40 runs)" in again.err
    assert "--replace" in again.err
    (tmp_path / "bad.csv").write_text("x\n", "utf-8")
    assert call(f"{imported} {tmp_path}/bad.csv --replace").code == 2
    shutil.copy(tmp_path / "two.jsonl", tmp_path / "one.jsonl")
    assert call(f"{imported} {tmp_path}/one.jsonl").code == 2
    assert Store(str(root)).now().ledger("c") == before
    replaced = call(f"{imported} {tmp_path}/two.jsonl --replace --json")
    assert replaced.code == 0
    assert replaced.json["trajectories"] == 60
    assert "these runs replace its 40 runs" in replaced.err


def test_a_delivery_keeps_the_settings_that_are_not_named(
    call: Call, root: Path, tmp_path: Path
) -> None:
    one = write_runs(tmp_path / "one.jsonl", tasks=20, attempts=2)
    two = tmp_path / "two.jsonl"
    more = one.read_text("utf-8").replace("agent-0", "agent-new")
    more = more.replace('/0"', '/8"').replace('/1"', '/9"').replace("page", "a page")
    two.write_text(more, "utf-8")
    imported = "corpus import --name c"
    made = call(f"{imported} {one} --set rl=false --set seed=7 --json")
    assert (made.code, made.json["version"]) == (0, 1)
    assert call(f"{imported} {two} --add --replace").code == 2
    applied = call(f"{imported} {two} --add --json")
    assert applied.json["version"] == 2 and applied.json["trajectories"] == 80
    assert "Version 2: New agents: agent-new." in applied.err
    config = Store(str(root)).read_json("corpora/c/corpus.json")
    assert (config["seed"], config["rl"], len(config["paths"])) == (7, False, 2)
    again = call(f"{imported} {one} {two} --replace --json")
    assert again.json["version"] == 2 and "nothing changes" in again.err
    assert (
        "assigns all tasks to splits again" in call(f"{imported} {one} --replace --set rl=true").err
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=-1", "seed of corpus.json is -1"),
        ("profile=none", "profile of corpus.json is 'none'"),
        ("colour=red", "unknown key 'colour'; known keys are name"),
        ("format=table", "--set does not take format"),
        ('leak_thresholds={"lenght": 0.8}', "for length, steps, agent or"),
        ('leak_thresholds={"length": 0.3}', "leak_thresholds of corpus.json is 0.3"),
        ("length", "not NAME=VALUE"),
    ],
)
def test_impossible_settings_are_refused(
    call: Call, root: Path, tmp_path: Path, setting: str, said: str
) -> None:
    write_runs(tmp_path / "runs.jsonl", tasks=4)
    named = ("--name", "c")
    answer = call("corpus", "import", tmp_path / "runs.jsonl", *named, "--set", setting)
    assert answer.code == 2 and said in answer.err and not root.exists()


def test_the_name_of_a_corpus_is_told_in_words(call: Call, root: Path, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.jsonl", tasks=4)
    answer = call("corpus", "import", tmp_path / "runs.jsonl", "--name", "my corpus")
    assert answer.code == 2 and "a letter, then letters, digits" in answer.err
    assert "pattern" not in answer.err and not root.exists()


def test_an_embedded_corpus_is_shown_from_nothing(call: Call, root: Path) -> None:
    shown = call("corpus show miniwob_weak --json").json
    assert shown["domain"] == {"name": "web", "origin": "stated"}
    assert shown["profile"]["tasks"] == 125
    assert shown["splits"]["cal"]["tasks"] >= 50
    assert not root.exists()
    assert shown["page"] is None
    assert 0 < shown["profile"]["flips"]["cell_rate"] < shown["profile"]["flips"]["task_rate"]
    assert call("corpus show nothing").code == 2


def test_a_removed_corpus_keeps_its_history(
    call: Call, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from certify_assets.cli import launching

    monkeypatch.setattr(launching, "change_partition", lambda *_, **__: None)
    write_runs(tmp_path / "runs.jsonl", tasks=20, attempts=2)
    call(f"corpus import {tmp_path}/runs.jsonl --name c")
    certificates = "judges/lexical/c/certificates.json"
    Store(str(root)).write_json(certificates, {"certificates": []})
    unanswered = call("corpus rm c --json")
    assert (unanswered.code, unanswered.out) == (2, "") and "give --yes" in unanswered.err
    assert Store(str(root)).exists("corpora/c/trajectories.parquet")
    answer = call("corpus rm c --yes --json")
    assert answer.code == 0
    assert set(answer.json["removed"]) == {"corpus.json", "import.json", "trajectories.parquet"}
    kept = Store(str(root))
    assert kept.exists(certificates) and len(Corpus(kept, "c").deliveries.read()) == 1
    assert kept.names("corpora/c") == []
    again = call("corpus rm c --yes --json")
    assert (again.code, again.json["removed"]) == (0, [])
    # what it stored goes when it is given up, and the ledger still holds
    gone = call("gc --discard space --discard-older 0 --older 0 --json").json
    assert gone["discarded"] == gone["removed"] > 0
    assert call("ledger verify c").code == 0
    refused = call(f"corpus import {tmp_path}/runs.jsonl --name c")
    assert refused.code == 2 and "c was removed and its objects were discarded" in refused.err
    assert call("corpus rm never --yes").code == 2
    call(f"corpus import {tmp_path}/runs.jsonl --name d")
    assert call("corpus rm d --yes").code == 0
    assert Store(str(root)).names("corpora/d") == []
    assert "comes with the package" in call("corpus rm miniwob_weak --yes").err


@pytest.mark.parametrize("words", ["corpus list", "ledger status", "judge list"])
def test_a_file_is_no_data_root(call: Call, root: Path, tmp_path: Path, words: str) -> None:
    (file := tmp_path / "a.csv").touch()
    answer = call(f"{words} --root {file}")
    assert answer.code == 2 and not answer.out
    assert f"the data root {file} is a file. Name a folder with --root or CERT" in answer.err
