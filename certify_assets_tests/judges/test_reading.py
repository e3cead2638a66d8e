"""What a judge reads of a run: configured, recorded, registered, shown, and refused."""

import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.corpora.rendering import Renderer
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.canary import LANGUAGE_RUNS
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.judges.lm.judge import load_base
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.reading import JudgeInput
from certify_assets.judges.specs import judge_problems, judge_spec
from certify_assets.operations.certifier import certify_judge, verify_stored
from certify_assets.reports.judge_page import reading_facts
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged

SHORT = {"name": "short", "family": "lexical", "chars": 400, "step_chars": 40}
YES = {"success": " yes", "fail": " no", "system_role": "user"}


def configure(root: str, *entries: dict[str, Any]) -> str:
    (Path(root) / "judges.yaml").write_text(yaml.safe_dump({"judges": list(entries)}), "utf-8")
    return root


def short(store: Store) -> JudgedCorpus:
    return judged(store, "one", "short")


def test_a_configured_judge_reads_what_it_says(corpora: Store) -> None:
    configure(corpora.root, SHORT)
    judge, reads = short(corpora), {"chars": 400, "step_chars": 40}
    record = judge.train()
    assert record.reads.model_dump() == reads and judge.renderer == Renderer(400, 40, 40)
    assert record.renderer_sha256 == Renderer(400, 40, 40).sha256
    judge.score()
    assert judge.registration == {"judge": judge.spec.registration(), "reading": reads}
    certify_judge(judge)
    assert verify_stored(judge) == []
    facts = reading_facts(judge, record)
    assert facts["reads"] == "400 characters of a run, 40 of a step's part"
    # another number there makes it stale, and the first one again does not
    configure(corpora.root, {**SHORT, "chars": 500})
    with pytest.raises(StaleCertificateError, match=r"another reading than judges"):
        _ = short(corpora).artifact
    configure(corpora.root, SHORT)
    short(corpora).require_scores()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"family": "forest"},
            "than lexical, combined, base, sft, grpo, transfer, endpoint; name one",
        ),
        ({"chars": 10}, "chars: input should be greater than or equal to 400"),
        ({"tokens": 512}, "no setting 'tokens'; it has chars, family, name, seed, step_chars"),
        ({"family": "sft", "learning_rate": "2e-4"}, "numbers have none: 2.0e-4, not 2e-4"),
        ({"family": "sft", "budget": 3}, "prompt, revision, runs, seed, step_chars"),
        ({"family": "base", "prompt": {"success": True}}, "texts like yes and no need quotes"),
        ({"family": "base", "prompt": {"fail": " SUCCESS"}}, "give two words"),
        (
            {"family": "sft", "model": "models/mine"},
            "models/mine is not a folder next to judges.yaml",
        ),
        (
            {"family": "base", "model": "me/tiny", "revision": "main"},
            "give the commit of the hub repository, 40 hexadecimal digits",
        ),
        (
            {"family": "sft", "model": str(compact_model_path()), "revision": "0" * 40},
            "is a folder and has none; remove the revision",
        ),
    ],
)
def test_what_cannot_be_read_is_a_sentence(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    (problem,) = judge_problems(configure(str(tmp_path), {**SHORT, **change}))
    assert said in problem and "judge 'short'" in problem


def test_a_language_model_reads_its_own_prompt(tmp_path: Path) -> None:
    entry = {
        "name": "mine",
        "family": "base",
        "model": str(compact_model_path()),
        "tokens": 512,
        "prompt": YES,
    }
    reading = judge_spec("mine", configure(str(tmp_path), entry)).reading
    assert (reading.chars, reading.step_chars, reading.tokens) == (None, None, 512)
    assert reading.prompt.words == (" yes", " no")
    language, encoder = load_base(str(compact_model_path()), None, reading)
    assert encoder.budget_tokens == 512 and language.verdicts == encoder.verdicts
    _, usual = load_base("compact")
    assert usual.budget_tokens == 768 and usual.sha256 != encoder.sha256


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (JudgeInput(tokens=769), "the context of compact is 768; give tokens of at most 768"),
        (JudgeInput(tokens=99), "is too small for a prompt"),
        (
            JudgeInput(prompt=AuditorPrompt(success=" done", fail=" done.")),
            "where one begins the other; choose other words",
        ),
    ],
)
def test_a_reading_that_the_model_cannot_do_is_refused(reading: JudgeInput, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_base("compact", None, reading)


@pytest.mark.parametrize("model", ["compact", "me/tiny", str(compact_model_path())])
def test_no_model_is_loaded_by_a_revision_that_can_move(model: str) -> None:
    with pytest.raises(InputError, match=r"'main'.*(remove the revision|give the commit)"):
        load_base(model, "main")


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.close_connection = True

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", place)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        with pytest.raises(InputError, match=r"me/nothing cannot be loaded \(.*its commit"):
            load_base("me/nothing", "0" * 40)
        server.shutdown()
    # the client looks up other things of its own
    of_model = [path for path in asked if "nothing" in path]
    assert of_model == ["/api/models/me/nothing/revision/" + "0" * 40]


@pytest.mark.parametrize("written", ["models/mine", "./models/mine"])
def test_a_relative_folder_is_next_to_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    for place in ("root", "elsewhere"):
        shutil.copytree(compact_model_path(), tmp_path / place / "models/mine")
    root, folder = str(tmp_path / "root"), str(tmp_path / "root/models/mine")
    monkeypatch.chdir(tmp_path / "elsewhere")
    near = {"name": "near", "family": "base", "model": written}
    configure(root, near, {"name": "far", "url": "http://127.0.0.1:9/v1", "model": written})
    assert judge_spec("near", root).model == folder
    assert judge_spec("far", root).model == written


def test_runs_of_one_outcome_train_no_language_model(corpora: Store) -> None:
    configure(corpora.root, {"name": "mine", "family": "sft", "runs": 1, "tokens": 256})
    judge = judged(corpora, "three", "mine")
    with pytest.raises(InputError, match=r"the 1 runs that mine is to be trained on .* raise runs"):
        judge.train()
    assert not judge.is_trained


@pytest.mark.slow
def test_a_language_model_of_a_folder_goes_from_settings_to_certificates(corpora: Store) -> None:
    folder = str(compact_model_path())
    entry = {"name": "mine", "family": "base", "model": folder, "tokens": 256, "prompt": YES}
    configure(corpora.root, entry)
    judge = judged(corpora, "three", "mine")
    record = judge.train()
    assert record.reads.tokens == 256 and record.reads.prompt.words == (" yes", " no")
    judge.score()
    certify_judge(judge)
    assert verify_stored(judged(corpora, "three", "mine")) == []
    facts = reading_facts(judge, record)
    assert facts["reads"] == "whole runs, 256 tokens of a prompt"
    assert (facts["prompt, success"], facts["prompt, fail"]) == ("yes", "no")
    assert "sceptical auditor" in facts["prompt, system"]
    report = judge.canaries
    assert report is not None and report.runs == LANGUAGE_RUNS and set(report.lifts)
    # a prompt in other words is another judge
    configure(corpora.root, {**entry, "prompt": {**YES, "closing": "Was it done?"}})
    with pytest.raises(StaleCertificateError, match=r"another reading than judges"):
        judged(corpora, "three", "mine").require_scores()
