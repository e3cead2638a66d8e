"""Every format is recognised, reads folders and archives alike, leaks nothing, survives damage."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.formats import FORMATS, ImportedCorpus, detect_format, import_corpus
from certify_assets.corpora.leakage import LEAK_KEYS, quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.errors import InputError
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats import CANARY, Format, load_formats, pack
from certify_assets_tests.doc_commands import recipe

SOURCES = load_formats()
EVERY = pytest.mark.parametrize("form", SOURCES, ids=lambda form: form.name)


def read(form: Format, *paths: Path) -> ImportedCorpus:
    return import_corpus(list(paths), format=form.name, name="c")


def test_every_format_has_a_source_here() -> None:
    assert {form.name for form in SOURCES} == set(FORMATS)
    assert all(
        adapter.label_source and adapter.title and adapter.suffixes for adapter in FORMATS.values()
    )


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = recipe("certify_assets/corpora/formats/deck.py")
    (tmp_path / "deck_module.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    # also where somebody tries the recipe
    monkeypatch.setitem(FORMATS, "deck", FORMATS["table"])
    del FORMATS["deck"]
    import_module("deck_module")
    chat = [{"role": "assistant", "content": "I shuffle."}]
    runs = [
        {"deck_run": f"t{n}", "agent": "a", "prompt": "Deal.", "messages": chat}
        | {"result": {"solved": n % 2}}
        for n in range(4)
    ]
    path = write_json(tmp_path / "runs" / "deck.json", runs)
    found = import_corpus(path, name="c")
    assert found.format == "deck" and found.frame["outcome"].tolist() == [0, 1, 0, 1]
    assert set(found.frame["instruction"]) == {"Deal."} and found.dropped == {}


# two modules that cannot be imported
_BROKEN = """
import sys
for name in ("harbor", "scout"):
    sys.modules[f"certify_assets.corpora.formats.{name}"] = None
from certify_assets.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_broken_format_is_named_and_ends_nothing_else(tmp_path: Path) -> None:
    next(form for form in SOURCES if form.name == "harbor").write(tmp_path / "jobs", None)
    write_runs(tmp_path / "runs.jsonl")
    (tmp_path / "t.csv").write_text("task_id,score,outcome\na,0.5,1\nb,0.4,0\n", "utf-8")

    def certify(words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", _BROKEN, *words.split()],
            env=platform_environment(tmp_path / "root"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    said = "The format module harbor cannot be imported (ModuleNotFoundError: "
    code, err = certify("doctor t.csv")
    assert code == 3 and said not in err
    # a log of a broken format is no table without a word
    write_json(tmp_path / "log.json", {"steps": [1]})
    code, err = certify("doctor log.json")
    assert code == 2 and said in err
    save_config(Store(str(tmp_path / "root")), CorpusConfig("h", "harbor", ("jobs",)))
    code, err = certify("corpus list")
    assert code == 0 and "warning: h cannot be read: " in err and said in err
    (tmp_path / "scan").mkdir()
    (tmp_path / "scan" / "_scan.json").write_text("{}", "utf-8")
    code, err = certify("doctor scan")
    assert code == 2 and "The format module scout cannot be imported" in err
    for words in (
        "corpus import jobs --name c",
        "corpus import jobs --name c --format harbor",
        "doctor jobs",
    ):
        code, err = certify(words)
        assert code == 2 and said in err and "Traceback" not in err
    assert certify("corpus import runs.jsonl --name c")[0] == 0


@EVERY
def test_it_is_told_from_the_others(form: Format, tmp_path: Path) -> None:
    form.write(tmp_path / "runs", None)
    assert detect_format([tmp_path / "runs"]) == form.name
    assert detect_format([pack(tmp_path / "runs", tmp_path / "runs.tar.gz")]) == form.name


@EVERY
def test_its_counts(form: Format, tmp_path: Path) -> None:
    form.write(tmp_path / "runs", None)
    imported = read(form, tmp_path / "runs")
    frame = imported.frame
    dropped = {
        reason: count for reason, count in imported.dropped.items() if reason != "file_other_format"
    }
    found = (len(frame), frame["task_id"].nunique(), int(frame["outcome"].sum()), dropped)
    assert found == (
        form.counts.trajectories,
        form.counts.tasks,
        form.counts.successes,
        form.counts.dropped,
    )
    assert all(frame["steps"].map(len) > 0), "a run without a step is nothing to judge"
    assert set(imported.examples) == set(imported.dropped)


@EVERY
def test_archives_hold_the_same_runs(form: Format, tmp_path: Path) -> None:
    form.write(tmp_path / "runs", None)
    plain = read(form, tmp_path / "runs")
    assert read(form, tmp_path / "runs").frame.equals(plain.frame), "two readings are the same"
    for name in ("runs.tar.gz", "runs.zip"):
        packed = read(form, pack(tmp_path / "runs", tmp_path / name))
        assert packed.frame.drop(columns="source_file").equals(
            plain.frame.drop(columns="source_file")
        )
        assert packed.dropped == plain.dropped and packed.label_facts == plain.label_facts


@EVERY
def test_nothing_that_speaks_of_the_outcome_is_rendered(form: Format, tmp_path: Path) -> None:
    form.write(tmp_path / "clean", None)
    form.write(tmp_path / "planted", CANARY)
    clean, planted = read(form, tmp_path / "clean").frame, read(form, tmp_path / "planted").frame
    assert any(
        CANARY in path.read_bytes().decode("latin-1")
        for path in (tmp_path / "planted").rglob("*")
        if path.is_file()
    ) or _binary(tmp_path / "planted")
    assert CANARY not in planted.drop(columns=["outcome"]).to_json()
    assert [item.text for item in render_frame(planted)] == [
        item.text for item in render_frame(clean)
    ]
    assert set(quoted_keys(planted)).isdisjoint(LEAK_KEYS)


def _binary(folder: Path) -> bool:
    """Parquet and zip compress their text, so the canary cannot be seen in the bytes."""
    return any(path.suffix in (".parquet", ".eval", ".gz") for path in folder.rglob("*"))


@EVERY
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(data=st.data())
def test_damage_costs_what_it_hits(form: Format, tmp_path: Path, data: st.DataObject) -> None:
    """Cut or overwrite one file: the import gives the rest, or a sentence that nothing is left."""
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    form.write(root, None)
    path = data.draw(st.sampled_from(sorted(path for path in root.rglob("*") if path.is_file())))
    content = path.read_bytes()
    place = data.draw(st.integers(0, max(0, len(content) - 1)))
    if data.draw(st.booleans()):
        path.write_bytes(content[:place])
    else:
        junk = data.draw(st.binary(min_size=1, max_size=8))
        path.write_bytes(content[:place] + junk + content[place + len(junk) :])
    try:
        imported = read(form, root)
    except InputError as error:
        assert str(error).endswith("."), "an error is a sentence"
    else:
        assert 0 < len(imported.frame) <= form.counts.trajectories + 1
