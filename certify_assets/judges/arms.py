"""The arms of GRPO: trained on RL from one judge, one of them chosen on CAL and paid for."""

# An arm is a reward (`rewards.ARMS`). judges/<judge>/<corpus>/arms/ has a folder for each:
#
#     run.json            what the training depends on, with its hash
#     step_<n>/           the adapter after n steps
#     arm.json            written last: without it the training was cut short, and resumes
#     cal_<n>.parquet     scores of CAL, with their sources in cal_<n>.json

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError, IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_json_atomic
from certify_assets.judges.base import score_table
from certify_assets.judges.family import Progress
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.grpo_config import GrpoConfig, arm_named
from certify_assets.judges.record import CandidateScore, texts
from certify_assets.judges.reinforced import (
    START,
    Candidate,
    GrpoSpec,
    candidates,
    grpo_config,
    reward_of,
)
from certify_assets.judges.selection import certify_candidates
from certify_assets.storage.store import Snapshot
from certify_assets.work import Advance, Report, reported, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer


#: how a certificate words the choice
_RULE = (
    "the largest certified coverage on CAL among {count} candidates ({names}), each certified at "
    "delta over their number; start on a tie (at alpha {alpha:g})"
)


def _spec(judge: JudgedCorpus) -> GrpoSpec:
    spec = judge.spec
    assert isinstance(spec, GrpoSpec)
    return spec


@dataclass(frozen=True, kw_only=True)
class ArmRecord:
    """A trained arm, stored as arm.json."""

    # all that the training depends on, and its hash
    inputs: Mapping[str, Any]
    key: str
    rl_trajectories: int
    # hash of the adapter after each number of steps
    steps: Mapping[str, str]
    # the log of the optimiser, whose entries differ in what they measure
    history: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class ArmChoice:
    """The arm and step that certify most on CAL, and what the choice cost."""

    candidate: Candidate
    rows: tuple[CandidateScore, ...]
    rule: str
    # of the judge's record
    details: Mapping[str, object]


def train_arm(judge: JudgedCorpus, arm: str, *, report: Report = silent) -> ArmRecord:
    """Train an arm, or resume it, and score CAL with each of its steps."""
    run = _Run.of(judge, arm)
    record = run.finished() or run.train(report)
    for step in grpo_config(_spec(judge)).evaluate_at:
        scored_candidate(judge, Candidate(arm, step), report=report)
    return record


def select_arm(judge: JudgedCorpus, *, report: Report = silent) -> ArmChoice:
    """Choose the arm and step that certify most on CAL, or the start where none beats it."""
    spec = _spec(judge)
    before, options = judge.sibling(spec.start).artifact, candidates(spec)
    records = {arm: train_arm(judge, arm, report=report) for arm in spec.arms}
    tables = {each.name: scored_candidate(judge, each, report=report) for each in options}
    rows = certify_candidates(tables, judge.corpus.config)
    chosen = max(rows, key=lambda row: (row["coverage"], row["name"] == START))["name"]
    tuned = before.detail("training")
    curves = {
        name: [
            {"step": entry["step"], "loss": entry["loss"]}
            for entry in record.history
            if entry.get("loss") is not None and "step" in entry
        ]
        for name, record in records.items()
    }
    details = {
        "chosen": chosen,
        "training": {
            **spec.settings,
            "loss_curves": curves,
            "rl_trajectories": records[spec.arms[0]].rl_trajectories,
            # of SFT, which its start read, where its record says so
            **{name: tuned[name] for name in ("rows",) if name in tuned},
        },
        "start_sha256": before.adapter_sha256,
        "arms": {name: record.key for name, record in records.items()},
    }
    return ArmChoice(
        next(each for each in options if each.name == chosen),
        tuple(rows),
        _RULE.format(count=len(tables), names=", ".join(tables), alpha=rows[0]["alpha"]),
        details,
    )


def scored_candidate(
    judge: JudgedCorpus, candidate: Candidate, *, report: Report = silent
) -> pd.DataFrame:
    """Score CAL with a candidate, or return its stored scores."""
    name = f"arms/{candidate.arm}/cal_{candidate.step}"
    key = judge.key(name)
    frame = judge.corpus.split("cal")
    frame = frame[frame["outcome"].notna()]
    with candidate_adapter(judge, candidate) as folder:
        of = {
            "lora_sha256": _lora_sha256(folder),
            "rows_sha256": _rows_sha256(frame, judge.spec.reading.renderer),
            "manifest_sha256": judge.corpus.manifest.sha256,
        }
        known = judge.read(f"{name}.json")
        if of.items() <= known.items():
            return judge.store.read_table(f"{key}.parquet")
        table = _scores_of_start(judge, frame) if candidate.name == START else None
        if table is None:
            progress = reported(report, f"scoring cal with {candidate.name}")
            table = _score(judge, folder, frame, progress)
    with judge.store.step(judge.corpus.name, apart=True):
        scores_sha256 = judge.store.write_table(f"{key}.parquet", table)
        judge.store.write_json(f"{key}.json", {**of, "scores_sha256": scores_sha256})
    return table


def _scores_of_start(judge: JudgedCorpus, frame: pd.DataFrame) -> pd.DataFrame | None:
    """Return CAL as the start itself has scored it; None where it has not, or read otherwise."""
    start = judge.sibling(judge.spec.start)
    if not start.read("scores.json") or start.spec.reading != judge.spec.reading:
        return None
    try:
        table, _, _ = start.scores
    except StaleCertificateError:
        return None
    table = table[table["split"] == "cal"]
    # runs without an outcome were read in the same batches, and a batch may move the last digit
    if table["trajectory_id"].tolist() != frame["trajectory_id"].tolist():
        return None
    return table.drop(columns="split").reset_index(drop=True)


def candidate_adapter(judge: JudgedCorpus, candidate: Candidate) -> AbstractContextManager[Path]:
    """Give a candidate's adapter as a folder."""
    if candidate.arm == START:
        return judge.sibling(judge.spec.start).artifact_files()
    return judge.store.as_folder(judge.key("arms", candidate.arm, f"step_{candidate.step}"))


def _score(
    judged: JudgedCorpus, adapter: Path, frame: pd.DataFrame, progress: Progress
) -> pd.DataFrame:
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    spec = judged.spec
    base, encoder = load_base(spec.model, spec.revision, spec.reading)
    with judged.store.workplace(judged.key("arms/shards")) as shards:
        judge = replace(
            CausalJudge(spec.name, base, encoder).with_adapter(adapter),
            shards=shards,
            progress=progress,
        )
        table = score_table(judge, frame, spec.reading.renderer)
    return table.astype({"outcome": "Int8"})


def _lora_sha256(folder: Path) -> str:
    from certify_assets.judges.lm.adapters import read_adapter

    return read_adapter(folder).sha256


def _rows_sha256(frame: pd.DataFrame, using: Renderer) -> str:
    """Hash of what is read of trajectories: names, outcomes and rendered texts."""
    outcomes = [
        None if outcome is None or outcome != outcome else int(outcome)
        for outcome in frame["outcome"]
    ]
    rows = [
        list(row) for row in zip(frame["trajectory_id"], outcomes, texts(frame, using), strict=True)
    ]
    return sha256_bytes(canonical_json({"renderer": using.sha256, "rows": rows}))


@dataclass(frozen=True)
class _Run:
    """One training and what it depends on."""

    judge: JudgedCorpus
    arm: str
    config: GrpoConfig
    rows: pd.DataFrame
    inputs: Mapping[str, Any]

    @classmethod
    def of(cls, judge: JudgedCorpus, arm: str) -> _Run:
        spec, rl = _spec(judge), judge.corpus.split("rl")
        reward = arm_named(arm, spec.rewards)
        rl = rl[rl["outcome"].notna()]
        if rl.empty:
            raise InputError(
                f"{judge.corpus} has no RL split, so nothing can be reinforced; import it with "
                f"--set rl=true, or leave {judge} out."
            )
        config = grpo_config(spec)
        inputs = {
            "start": spec.start,
            "start_sha256": judge.sibling(spec.start).artifact.adapter_sha256,
            "reward": reward_of(reward),
            "optimiser": spec.optimiser,
            "config": config.to_dict(),
            "rl_sha256": _rows_sha256(rl, spec.reading.renderer),
            "renderer_sha256": spec.reading.renderer.sha256,
        }
        return cls(judge, arm, config, rl, inputs)

    @property
    def store(self) -> Snapshot:
        return self.judge.store

    @property
    def folder(self) -> str:
        return self.judge.key("arms", self.arm)

    @property
    def key(self) -> str:
        return sha256_bytes(canonical_json(self.inputs))

    def finished(self) -> ArmRecord | None:
        """Return the record of a finished training with the same key; check its adapters."""
        name = f"{self.folder}/arm.json"
        if not self.store.exists(name):
            return None
        record = ArmRecord(**self.store.read_json(name))
        if record.key != self.key:
            return None
        for step, sha256 in record.steps.items():
            with candidate_adapter(self.judge, Candidate(self.arm, int(step))) as folder:
                if _lora_sha256(folder) != sha256:
                    place = self.store.locate(f"{self.folder}/step_{step}")
                    raise IntegrityError(
                        f"{place} is not the adapter that was trained; delete {name}."
                    )
        return record

    def train(self, report: Report) -> ArmRecord:
        """Train from the start, or from where a training with the same key was killed."""
        with (
            self.store.workplace(self.folder) as folder,
            self.judge.sibling(self.judge.spec.start).artifact_files() as start,
        ):
            self._begin(folder)
            history = self._optimise(start, folder, report)
            record = ArmRecord(
                inputs=self.inputs,
                key=self.key,
                rl_trajectories=len(self.rows),
                steps={
                    str(step): _lora_sha256(folder / f"step_{step}")
                    for step in self.config.evaluate_at
                },
                history=history,
            )
            # kept, whatever becomes of the other arms
            with self.store.step(self.judge.corpus.name, apart=True):
                self._upload(folder)
                self.store.write_json(f"{self.folder}/arm.json", asdict(record))
        return record

    def _begin(self, folder: Path) -> None:
        """Clear away what a run with another key left: its checkpoints are not this one's."""
        note = folder / "run.json"
        if note.exists() and read_json(note)["key"] == self.key:
            return
        for name in ("checkpoint", *(f"step_{step}" for step in self.config.evaluate_at)):
            shutil.rmtree(folder / name, ignore_errors=True)
        write_json_atomic(note, {"key": self.key, "inputs": self.inputs})

    def _optimise(self, start: Path, folder: Path, report: Report) -> Sequence[Mapping[str, float]]:
        """Train the adapter; return the log of the optimiser."""
        from certify_assets.judges.lm.adapters import load_adapter, save_adapter
        from certify_assets.judges.lm.exact_grpo import train_exact
        from certify_assets.judges.lm.judge import load_base

        spec = _spec(self.judge)
        base, encoder = load_base(spec.model, spec.revision, spec.reading)
        language, _ = load_adapter(base, start, trainable=True)
        about = {
            "base": base.source,
            "base_revision": base.revision,
            "arm": self.arm,
            "start": spec.start,
        }

        def keep(step: int) -> None:
            save_adapter(
                language.model,
                folder / f"step_{step}",
                {**about, "steps": step},
                source=base.source,
            )

        def advance(step: int, loss: float | None = None) -> None:
            report(Advance(f"grpo {self.arm}", step, self.config.steps, loss))

        prompts = encoder.encode_frame(self.rows)
        outcomes = [int(outcome) for outcome in self.rows["outcome"]]
        arm = arm_named(self.arm, spec.rewards)
        checkpoints = folder / "checkpoint"
        if spec.optimiser == "trl":
            from certify_assets.judges.lm.trl_grpo import train_trl

            sampled = train_trl(
                language,
                prompts,
                outcomes,
                arm=arm,
                config=self.config,
                folder=checkpoints,
                evaluate=keep,
                progress=advance,
            )
            return sampled.history
        exact = train_exact(
            language,
            prompts,
            outcomes,
            arm=arm,
            config=self.config,
            folder=checkpoints,
            evaluate=keep,
            progress=lambda step: advance(step.step, step.loss),
        )
        return [asdict(step) for step in exact.history]

    def _upload(self, folder: Path) -> None:
        for step in self.config.evaluate_at:
            for path in sorted((folder / f"step_{step}").iterdir()):
                self.store.write_bytes(f"{self.folder}/step_{step}/{path.name}", path.read_bytes())
