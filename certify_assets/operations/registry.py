"""The deployed judge in MLflow's model registry: a version a deployment, the certificates attached, and the alias that says which decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.files import canonical_json
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.store import Store
from certify_assets.storage.tracking import Record, Tracker

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = ["ALIAS", "model_name", "register_deployment"]

ALIAS: Final = "deployed"
_FILES = {".safetensors", ".json"}


def model_name(corpus: str) -> str:
    """Return the name of the registered model whose versions are the deployments on a corpus."""
    return f"certify-{corpus}"


def register_deployment(
    store: Store, document: Mapping[str, Any], certificates: Sequence[Certificate]
) -> dict[str, str]:
    """Record the document of a deployment and its certificates; return model, version, alias and run, or under ``error`` why MLflow took none of it.

    Notes
    -----
    A deployment holds whatever MLflow does: the registry is the record that other tools read, the data root is the truth.
    """
    try:
        return _registered(Tracker.for_store(store), store, document, certificates)
    except Exception as error:
        # whatever MLflow's backend raises
        return {
            "error": f"not recorded: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        }


def _registered(
    tracker: Tracker, store: Store, document: Mapping[str, Any], certificates: Sequence[Certificate]
) -> dict[str, str]:
    corpus, judge = str(document["corpus"]), str(document["judge"])
    tags = {
        "certify.corpus": corpus,
        "certify.judge": judge,
        "certify.deployment": str(document["number"]),
        "adapter_sha256": str(document["fingerprint"]["adapter_sha256"]),
        **{f"certificate_sha256.{item.side}": item.sha256 for item in certificates},
    }
    with JudgedCorpus(Corpus(store, corpus), judge).artifact_files() as folder:
        url = tracker.write(
            Record(
                name=f"deploy {judge} on {corpus}",
                tags={
                    "dagster.asset": "operations/deployment",
                    "dagster.partition": corpus,
                    **tags,
                },
                params={f"alpha_{item.side}": item.alpha for item in certificates},
                metrics={f"coverage_{item.side}": item.coverage for item in certificates},
                documents={
                    "deployment.json": canonical_json(_without_seed(document)).decode("utf-8"),
                    **{
                        f"certificates/{item.side}.json": item.to_json().decode("utf-8")
                        for item in certificates
                    },
                },
                files={
                    path: "adapter" for path in sorted(folder.iterdir()) if path.suffix in _FILES
                },
            )
        )
    version = _version(tracker.uri, model_name(corpus), url.rsplit("/", 1)[-1], tags)
    return {"model": model_name(corpus), "version": version, "alias": ALIAS, "run": url}


def _without_seed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave the seed of the draw out: more people read a tracking server than may know which tasks nobody reads."""
    return {
        **document,
        "sampling": {name: value for name, value in document["sampling"].items() if name != "seed"},
    }


def _version(uri: str, name: str, run: str, tags: Mapping[str, str]) -> str:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(
            name,
            description="Judges that decide new runs; the alias deployed marks the one that does now.",
        )
    source = f"{client.get_run(run).info.artifact_uri}/adapter"
    version = str(client.create_model_version(name, source, run_id=run, tags=dict(tags)).version)
    client.set_registered_model_alias(name, ALIAS, version)
    return version
