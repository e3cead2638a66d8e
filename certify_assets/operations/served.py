"""A deployed judge as files of its own, by which a server decides without the data root."""

# What a batch is decided by, as far as one run shows it: score, certificates, and whether the
# certificate of the corpus covers the run. Draws, certificates of batches and agents whose scores
# have moved need the batch, alarms and corrected labels the data root.

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets._version import __version__
from certify_assets.certificates import Certificate, decide
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.documents import Document
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import name_digest, sha256_bytes, write_atomic
from certify_assets.judges.base import Judge, score_table
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import families
from certify_assets.names import folded_names
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd


#: what is asked of a run; steps are objects with action and observation
COLUMNS: Final = ("task_id", "agent", "instruction", "steps")
#: what is answered
ANSWERS: Final = ("score", "decision", "reason", "certificate_sha256")
_DOCUMENT = "served.json"
# of what is stored of a judge, without what a server has no use for
_SUFFIXES = {".safetensors", ".json"}
# what the record of the judge says, and what a server does not train by
_NOT_SERVED = {"reading", "recipe"}


class ServedDocument(Document):
    """What the other files are, and what they may decide."""

    SCHEMA = "certify_assets/served_judge/1"
    TITLE = "served judge"
    REFUSAL = IntegrityError

    corpus: str
    judge: str
    deployment: int
    specification: Mapping[str, Any]
    adapter_sha256: str
    renderer_sha256: str
    # at most one a side; none of a deployment for batches alone
    certificates: tuple[str, ...]
    # of the corpus: whether its certificate decides runs of agents without a run in CAL
    new_agents: str
    # hashes of the tasks of the splits and of the agents in CAL: more people read an MLflow server
    # than may know their names
    tasks: tuple[str, ...]
    agents: tuple[str, ...]
    # hashes of the judge's files by their keys
    files: dict[str, str]


def export_judge(
    judge: JudgedCorpus, certificates: Sequence[Certificate], folder: Path, *, deployment: int = 0
) -> str:
    """Write what decides into a folder; return the hash that `ServedJudge.open` asks for."""
    corpus, store = judge.corpus, judge.store
    record, objects = judge.artifact, Store(str(folder)).objects
    names = [name for name in store.names(judge.key("adapter")) if Path(name).suffix in _SUFFIXES]
    keys = [judge.key("adapter.json"), *(judge.key("adapter", name) for name in names)]
    document = ServedDocument(
        corpus=corpus.name,
        judge=judge.name,
        deployment=deployment,
        specification=judge.spec.model_dump(mode="json", exclude=_NOT_SERVED),
        adapter_sha256=record.adapter_sha256,
        renderer_sha256=judge.renderer.sha256,
        certificates=tuple(objects.put(item.to_json()) for item in certificates),
        new_agents=corpus.current.config.new_agents,
        tasks=_digests(folded_names([*corpus.manifest.assignment])),
        agents=_digests(judge.calibration[0]["agent"].unique()),
        files={key: objects.put(store.read_bytes(key)) for key in keys},
    )
    write_atomic(folder / _DOCUMENT, document.to_json())
    return document.sha256


@dataclass(frozen=True, eq=False)
class ServedJudge:
    """A judge with its certificates, verified as it was opened."""

    document: ServedDocument
    model: Judge
    judge: JudgedCorpus
    certificates: tuple[Certificate, ...]

    @classmethod
    def open(cls, folder: Path, sha256: str) -> ServedJudge:
        """Open what `export_judge` wrote; refuse it where a file is not what was deployed."""
        path, store = folder / _DOCUMENT, Store(str(folder))
        data = path.read_bytes() if path.is_file() else b""
        if sha256_bytes(data) != sha256:
            raise _altered(path)
        document = ServedDocument.from_json(data)
        certificates = tuple(_certificate(store, name, document) for name in document.certificates)
        judge = JudgedCorpus.of(
            Corpus(store, document.corpus), _specification(document.specification)
        ).pinned(document.files)
        if judge.renderer.sha256 != document.renderer_sha256:
            raise IntegrityError(
                f"{judge} was certified on texts of renderer {document.renderer_sha256[:12]}, and "
                f"certify_assets {__version__} renders otherwise; serve it with the version that "
                "deployed it."
            )
        model = judge.load(expected_sha256=document.adapter_sha256)
        return cls(document, model, judge, certificates)

    def decide(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Decide runs with the columns `COLUMNS`: columns `ANSWERS`, rows in their order.

        The decision is reject, release or human, and the reason says why it is human: known_task
        and new_agent are of runs that the certificate does not cover.
        """
        import pandas as pd

        if missing := [name for name in COLUMNS if name not in runs.columns]:
            raise InputError(f"the runs lack {', '.join(missing)}; give {', '.join(COLUMNS)}.")
        rows = [
            _trajectory(number, row, self.document.corpus)
            for number, row in enumerate(runs[list(COLUMNS)].itertuples(index=False, name=None))
        ]
        table = score_table(self.model, to_frame(rows), self.judge.renderer)
        scores = table.sort_values("trajectory_id")["score"].to_numpy(np.float64)
        decisions = np.full(len(rows), "human", dtype=object)
        reasons = np.full(len(rows), "no_certificate", dtype=object)
        uncovered = np.array([*self._uncovered(rows)], dtype=object)
        covered = uncovered == ""
        if self.certificates:
            decided = decide(list(self.certificates), scores)
            decisions, reasons = (np.asarray(part, dtype=object) for part in decided)
            decisions[~covered], reasons[~covered] = "human", uncovered[~covered]
        named = ";".join(item.sha256 for item in self.certificates)
        return pd.DataFrame(
            {
                "score": scores,
                "decision": decisions,
                "reason": reasons,
                "certificate_sha256": np.where(covered, named, ""),
            }
        )

    def _uncovered(self, runs: Sequence[Trajectory]) -> Iterator[str]:
        """Say why the certificate does not cover each run; empty where it does."""
        known, agents = set(self.document.tasks), set(self.document.agents)
        accepted = self.document.new_agents == "accept"
        for run in runs:
            if name_digest(folded_names([run.task_id])[0]) in known:
                yield "known_task"
            else:
                yield "" if accepted or name_digest(run.agent) in agents else "new_agent"


def _specification(document: Mapping[str, Any]) -> JudgeSpec:
    known = families().get(document["family"])
    if known is None or not known.judges:
        raise IntegrityError(
            f"no judge of the family {document['family']!r} is known; serve it with the "
            "version of certify_assets that deployed it."
        )
    return type(known.judges[0]).model_validate(document)


def _certificate(store: Store, sha256: str, document: ServedDocument) -> Certificate:
    """Read a certificate; refuse one that is none, of another judge, or that certifies nothing."""
    item = Certificate.from_json(store.objects.get(sha256))
    of_judge = (item.provenance.get(name) for name in ("adapter_sha256", "renderer_sha256"))
    if (*of_judge,) != (document.adapter_sha256, document.renderer_sha256) or not item.certified:
        raise _altered(store.objects.path(sha256))
    return item


def _altered(path: Path) -> IntegrityError:
    return IntegrityError(
        f"{path} is not what was deployed, so nothing is decided; deploy the judge again."
    )


def _trajectory(number: int, row: Sequence[Any], corpus: str) -> Trajectory:
    task, agent, instruction, steps = row
    try:
        exchanges = tuple(Step(step["action"], step["observation"]) for step in steps)
    except (TypeError, KeyError, IndexError):
        raise InputError(
            f"the steps of run {number} are not objects with action and observation; give both."
        ) from None
    return Trajectory(
        corpus=corpus,
        task_id=task,
        trajectory_id=f"{number:012d}",
        agent=agent,
        attempt=0,
        instruction=instruction,
        steps=exchanges,
        outcome=None,
    )


def _digests(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(name_digest, names)))


#: folder of the model among the artifacts of its run
MODEL_FOLDER: Final = "model"
#: artifact of the model, and the key of its configuration that has the hash of the artifact
JUDGE_FILES: Final = "judge"
JUDGE_HASH: Final = "served_sha256"
# copied into the model, and run by MLflow where it is loaded: nothing is pickled
_CODE = Path(__file__).parent / "served_model_code.py"


def log_model(
    uri: str,
    run: str,
    judge: JudgedCorpus,
    certificates: Sequence[Certificate],
    *,
    deployment: int,
) -> None:
    """Log a judge with its certificates as a model of a run."""
    from mlflow.tracking import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / MODEL_FOLDER
        save_model(model, judge, certificates, deployment=deployment)
        MlflowClient(tracking_uri=uri).log_artifacts(run, str(model), MODEL_FOLDER)


def save_model(
    path: Path, judge: JudgedCorpus, certificates: Sequence[Certificate], *, deployment: int = 0
) -> None:
    """Write a judge with its certificates as a model of MLflow into a folder."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # MLflow warns of the annotations of its own models, and of deprecated calls of its own
        warnings.simplefilter("ignore")
        from mlflow import pyfunc

        files = Path(folder) / JUDGE_FILES
        sha256 = export_judge(judge, certificates, files, deployment=deployment)
        pyfunc.save_model(
            path=str(path),
            python_model=str(_CODE),
            artifacts={JUDGE_FILES: str(files)},
            model_config={JUDGE_HASH: sha256},
            signature=_signature(),
            pip_requirements=[f"certify_assets=={__version__}"],
        )


def _signature() -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Object, Property, Schema

    texts = [Property(name, DataType.string) for name in ("action", "observation")]
    asked = [ColSpec(DataType.string, name) for name in ("task_id", "agent", "instruction")]
    answered = [
        ColSpec(DataType.string, name) for name in ("decision", "reason", "certificate_sha256")
    ]
    return ModelSignature(
        inputs=Schema([*asked, ColSpec(Array(Object(texts)), "steps")]),
        outputs=Schema([ColSpec(DataType.double, "score"), *answered]),
    )
