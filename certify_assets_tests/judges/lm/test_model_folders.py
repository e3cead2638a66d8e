"""Folders of somebody's language model: what is wrong with one is a sentence before any training."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets.errors import InputError
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.judges.lm.judge import load_base
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.reading import JudgeInput

Edit = Callable[[Path], None]


def weights(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Edit:
    def edit(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return edit


def text(name: str, content: str) -> Edit:
    return lambda folder: (folder / name).write_text(content, "utf-8") and None


def load(tmp_path: Path, *edits: Edit, **reading: Any) -> Any:
    folder = tmp_path / "model"
    shutil.copytree(compact_model_path(), folder, copy_function=shutil.copyfile)
    for edit in edits:
        edit(folder)
    return load_base(str(folder), None, JudgeInput(tokens=300, **reading))


EDITS: dict[str, tuple[Edit, str]] = {
    "half the weights": (
        weights(lambda found: dict(list(found.items())[: len(found) // 2])),
        r"lacks \d+ of the weights that its config.json names, model\.",
    ),
    "weights of other names": (
        weights(lambda found: {f"x.{name}": value for name, value in found.items()}),
        "belong together",
    ),
    "weights that are no numbers": (
        weights(lambda found: {name: value * float("nan") for name, value in found.items()}),
        r"has weights that are not finite numbers, model\.",
    ),
    "a configuration that is a list": (text("config.json", "[]"), "cannot be loaded"),
    "no tokenizer in its file": (text("tokenizer.json", "{}"), "cannot be loaded"),
    "a template that fails": (text("chat_template.jinja", "{{ 1 / 0 }}"), "ZeroDivisionError"),
}


@pytest.mark.parametrize(("edit", "said"), EDITS.values(), ids=EDITS)
def test_a_folder_with_a_fault_is_refused_in_a_sentence(
    tmp_path: Path, edit: Edit, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=said):
        load(tmp_path, edit)
    # the library's tables and warnings of the same
    assert capfd.readouterr().err == ""


def test_a_whole_folder_is_loaded_and_read(tmp_path: Path) -> None:
    language, encoder = load(tmp_path)
    assert encoder.budget_tokens == 300 and language.source == "model"


@pytest.mark.parametrize("place", ["nothing", "file", "a" * 5000])
def test_what_is_no_folder_is_called_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is not a folder; give the folder of a model"):
        load_base(str(tmp_path / place), None, JudgeInput())


def test_verdicts_that_are_no_words_are_refused() -> None:
    prompt = AuditorPrompt(success=" <|im_end|>", fail=" no")
    with pytest.raises(InputError, match="holds a control token"):
        load_base("compact", None, JudgeInput(tokens=300, prompt=prompt))
