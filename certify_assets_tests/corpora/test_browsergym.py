from pathlib import Path
from typing import Any, NoReturn

import pytest

from certify_assets.corpora.formats import FORMATS, SourceFile, detect_format
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader
from certify_assets_tests.corpora.formats.browsergym import DATE, info, infos, summary, write_run

FOLDER = f"{DATE}_alpha_on_web.press_3"

read = reader("browsergym")


def good(root: Path) -> None:
    write_run(root, f"{DATE}_gamma_on_web.press_1", summary(), infos("good"))


def test_a_run_pairs_an_action_with_the_page_after_it(tmp_path: Path) -> None:
    steps = infos()
    html = {"axtree_txt": None, "pruned_html": "<p>one</p>"}
    steps[1]["obs"] |= {"last_action_error": "Timeout"} | html
    steps[2]["obs"] = {"dom_txt": "button 'Go'"}
    write_run(tmp_path, FOLDER, summary(), steps)
    (run,) = from_frame(read(tmp_path).frame)
    assert (run.task_id, run.agent, run.attempt, run.outcome) == ("web.press", "alpha", 0, 1)
    assert (run.trajectory_id, run.instruction) == (FOLDER, "Press the button.")
    assert run.steps == (
        Step("", "url: http://web.test/0\nRootWebArea 'page 0'"),
        Step("thought 0\nclick('3')", "url: http://web.test/1\nerror: Timeout\n<p>one</p>"),
        Step("thought 1\nsend_msg_to_user('done')", "button 'Go'"),
    )


@pytest.mark.parametrize(
    ("folder", "task", "agent"),
    [
        (f"{DATE}_my-agent_gpt_on_shop.on_sale-2_12", "shop.on_sale-2", "my-agent_gpt"),
        (f"{DATE}_a_on_shop.val.3_12_1", "shop.val.3", "a"),
        ("a_on_b_0", "b", "a"),
    ],
)
def test_the_folder_names_agent_task_and_seed(
    tmp_path: Path, folder: str, task: str, agent: str
) -> None:
    write_run(tmp_path, folder, summary(), infos())
    for path in (tmp_path, tmp_path / folder):
        (run,) = from_frame(read(path).frame)
        assert (run.task_id, run.agent) == (task, agent)


@pytest.mark.parametrize(
    ("folder", "verdict", "steps", "reason", "words"),
    [
        (FOLDER, summary(), infos()[-1], "unreadable_record", "option save_json leaves it"),
        (
            FOLDER,
            summary(),
            [info(0, "a"), info(2, "b")],
            "unreadable_record",
            "some may be missing",
        ),
        (FOLDER, summary(), [info(0, None)], "no_trajectory", "no action"),
        (FOLDER, summary(), None, "no_trajectory", "no steps_info.json"),
        (FOLDER, None, infos(), "no_label", "has no outcome"),
        ("run7", summary(), infos(), "unreadable_record", "rename the folder"),
    ],
)
def test_what_cannot_be_used_is_counted(
    tmp_path: Path, folder: str, verdict: Any, steps: Any, reason: str, words: str
) -> None:
    good(tmp_path)
    write_run(tmp_path, folder, verdict, steps)
    imported = read(tmp_path)
    assert len(imported.frame) == 1 and imported.dropped == {reason: 1}
    assert words in imported.examples[reason]


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    def refuse() -> NoReturn:
        raise AssertionError("a pickle was opened")

    adapter, pickled = (
        FORMATS["browsergym"],
        SourceFile(f"study/{FOLDER}/step_0.pkl.gz", refuse),
    )
    assert not adapter.fits(pickled) and "runs code" in (adapter.explain(pickled) or "")
    mark = tmp_path / "loaded"
    folder = write_run(tmp_path / "study", FOLDER, None, None)
    folder.mkdir(parents=True)
    for name in ("exp_args.pkl", "step_0.pkl.gz"):
        (folder / name).write_bytes(f"cos\nmkdir\n(S'{mark}'\ntR.".encode())
    with pytest.raises(
        InputError,
        match=r"no known format fits .*exp_args\.pkl is a pickle.*ExpResult\(folder\)\.steps_info",
    ) as found:
        detect_format([tmp_path / "study"])
    assert str(found.value).count("is a pickle") == 1
    with pytest.raises(InputError, match=r"exp_args\.pkl is a pickle"):
        read(tmp_path / "study")
    good(tmp_path / "study")
    assert read(tmp_path / "study").dropped == {"file_pickle_refused": 2}
    assert not mark.exists()
