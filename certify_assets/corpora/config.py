"""Configuration of corpora, validated, and their registration in a data root."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import pydantic
from pydantic.dataclasses import dataclass as validated

from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import SplitManifest, extend_manifest, make_manifest
from certify_assets.errors import InputError
from certify_assets.storage.events import Stored
from certify_assets.storage.store import Store
from certify_assets.storage.urls import shown_url

#: AUROC from which a leak check counts as a structural leak
THRESHOLDS: Mapping[str, float] = {"length": 0.85, "steps": 0.85, "agent": 0.85, "phrases": 0.85}

#: judge that is named where a corpus names none
NAMED_JUDGE = "combined"
#: of corpus.json
SCHEMA = 2
_CONFIG = "corpus.json"
_NAME = r"[A-Za-z][A-Za-z0-9_\-]{0,63}"
_DOMAIN = r"[a-z][a-z0-9_]{0,39}"


def _field(description: str, default: Any = ..., **about: Any) -> Any:
    return pydantic.Field(default, description=description, **about)


def _mapping(description: str) -> Any:
    return pydantic.Field(description=description, default_factory=dict)


_Threshold = Annotated[float, pydantic.Field(strict=True, gt=0.5, le=1)]
_Check = Annotated[str, pydantic.Field(pattern=f"^({'|'.join(THRESHOLDS)})$")]
_Alpha = Annotated[float, pydantic.Field(gt=0, lt=1)]


@validated(frozen=True, config=pydantic.ConfigDict(extra="forbid", title="Corpus"))
class CorpusConfig:
    """The configuration of one corpus; `corpus_schema` is its JSON schema."""

    name: str = _field(
        "Partition key: a letter, then letters, digits, '_' or '-', at most 64.",
        examples=["my_corpus"],
        pattern=f"^{_NAME}$",
    )
    format: str = _field("Source format, auto for the one that fits, or embedded.", "auto")
    paths: tuple[str, ...] = _field(
        "Files, folders, archives and URLs with the runs.", (), examples=[["runs"]]
    )
    options: Mapping[str, Any] = _mapping("Options of the source format.")
    profile: Literal["certify", "paper", "paper_miniwob"] = _field(
        "Split profile: certify, paper or paper_miniwob.", "certify"
    )
    seed: int = _field("Seed of the splits.", 42, strict=True, ge=0)
    rl: bool = _field(
        "Whether a judge is trained on the RL split; if none is, its share goes to CAL.",
        True,
        strict=True,
    )
    rl_labels: Literal["certify", "choose"] = _field(
        "Use of the labels of RL: certify judges that did not learn from them, or choose a judge "
        "by them; then only CAL certifies.",
        "certify",
    )
    accept_structural_leak: str | None = _field(
        "Reason for accepting a structural leak; every certificate carries it.", None
    )
    accept_shared_tasks: str | None = _field(
        "Reason why tasks that share instructions or runs are separate tasks; every certificate "
        "carries it.",
        None,
    )
    leak_thresholds: Mapping[_Check, _Threshold] = _mapping(
        "AUROC from which a leak check is a structural leak, for length, steps, agent or phrases; "
        ".85 by default."
    )
    canary_lift: float = _field(
        "Share of failed runs that a text may lift over the median success without a warning.",
        0.25,
        ge=0,
        le=1,
    )
    alphas: tuple[_Alpha, ...] = _field(
        "Error budgets that are certified, the strictest first.",
        (0.1, 0.2),
        examples=[[0.05, 0.1]],
        min_length=1,
    )
    grid: int | None = _field(
        "Number of thresholds tried on each side; by default 160 by pseudo_task, else 40.",
        None,
        strict=True,
        ge=1,
    )
    domain: str = _field(
        "Kind of work, such as web, shell or software; by default that of the format.",
        "",
        pattern=f"^({_DOMAIN})?$",
    )
    batch_runs: int = _field(
        "Runs of a batch from which on labels are drawn to certify it; fewer wait for more.",
        150,
        strict=True,
        ge=1,
    )
    batch_days: int = _field("Days after which labels are drawn from fewer.", 28, strict=True, ge=0)
    judge: str = _field(
        "Judge to deploy, named before any is certified. Another one is deployed where "
        "judges_compared pays for the choice.",
        NAMED_JUDGE,
        examples=["lexical"],
    )
    judges_compared: int = _field(
        "Judges to choose from by their certificates; δ of each is divided by their number.",
        1,
        strict=True,
        ge=1,
    )
    audit_runs: int = _field(
        "Number of runs that are labelled of each task of the audit sample, at most.",
        1,
        strict=True,
        ge=1,
    )
    estimand: Literal["tasks", "runs"] = _field(
        "What a recertification counts: every task once, or every run once.", "tasks"
    )
    most: int | None = _field(
        "With estimand runs: as how many runs a task counts, at most. Fix it before any label.",
        None,
        strict=True,
        ge=1,
    )
    promise: Literal["confident", "proved"] = _field(
        "Promise of a recertification: confident by all labelled runs of CAL, or proved by one "
        "run of every task.",
        "confident",
    )
    deploy_average: bool = _field(
        "Whether certificates of the promise average may be deployed.",
        False,
        strict=True,
    )

    @pydantic.model_validator(mode="wrap")
    @classmethod
    def _in_sentences(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except pydantic.ValidationError as error:
            raise InputError(_sentence(error.errors()[0])) from None

    def __post_init__(self) -> None:
        # an InputError is no ValueError, so pydantic lets it pass as it is
        if secret := [path for path in self.paths if shown_url(path) != path]:
            raise InputError(
                f"the path {shown_url(secret[0])} has a user, a password or a query, which "
                "corpus.json would keep; give the URL without them, and credentials by the "
                "environment."
            )
        if list(self.alphas) != sorted(set(self.alphas)):
            raise InputError(
                f"alphas of corpus.json is {list(self.alphas)}; give each error budget once, the "
                "strictest first."
            )

        if (self.estimand == "runs") != (self.most is not None):
            raise InputError(
                "estimand runs and most go together in corpus.json: most limits the runs that a "
                "task counts as. Give both, or neither."
            )
        if self.estimand == "runs" and self.audit_runs > 1:
            raise InputError(
                "Where every run counts once, one run of a drawn task is labelled. Remove "
                "audit_runs from corpus.json."
            )

    @property
    def certifying(self) -> tuple[str, ...]:
        """Splits that certify a judge if it did not learn from RL."""
        return CERTIFYING if self.rl_labels == "certify" else ("cal",)

    def thresholds(self, procedure: str) -> int:
        """Return the number of thresholds of a procedure, by default its own."""
        from certify_assets.certificates.procedures import find_procedure

        return find_procedure(procedure).grid if self.grid is None else self.grid

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CorpusConfig:
        """Read a configuration; an InputError names the fault and the remedy."""
        if not isinstance(document, Mapping):
            raise InputError("corpus.json is not a JSON object; import the corpus again.")
        return cls(**{name: value for name, value in document.items() if name != "schema"})


def _sentence(found: Any) -> str:
    about = {name: each["description"] for name, each in corpus_schema()["properties"].items()}
    names, (key, *_) = [*about], found["loc"]
    # a value that was given without its key has a number
    key = names[key] if isinstance(key, int) else key
    if key not in about:
        return f"corpus.json has the unknown key {key!r}; known keys are {', '.join(names)}."
    given = "missing" if found["type"] == "missing" else repr(found["input"])
    # the description says what a pattern allows
    why = "" if found["type"] == "string_pattern_mismatch" else f": {found['msg']}"
    return f"{key} of corpus.json is {given}{why}. Expected: {about[key]}"


def corpus_schema() -> dict[str, Any]:
    """Return the JSON schema of a corpus's configuration."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **pydantic.TypeAdapter(CorpusConfig).json_schema(),
    }


def complete_thresholds(given: Mapping[str, float]) -> dict[str, float]:
    """Return a threshold for every leak check, by default that of `THRESHOLDS`."""
    return {name: float(given.get(name, default)) for name, default in THRESHOLDS.items()}


@dataclass(frozen=True, slots=True)
class Domain:
    """Kind of work of a corpus, and whether it is stated, derived or unknown."""

    # a strict transfer judge is trained on no corpus of its target's domain
    name: str
    origin: str

    def __str__(self) -> str:
        derived = f"{self.name} (derived from the format)"
        return {"stated": self.name, "derived": derived}.get(self.origin, "not stated")


def format_domain(format: str) -> Domain:
    """Return the domain of a format."""
    from certify_assets.corpora.formats import BROKEN, FORMATS, format_error

    known = {name: form.domain for name, form in FORMATS.items()} | {"embedded": "web"}
    if BROKEN and format not in (*known, "auto"):
        raise format_error(f"there is no format {format!r}.")
    name = known.get(format, "")
    return Domain(name, "derived" if name else "unknown")


def corpus_file(name: str, *parts: str) -> str:
    """Return the storage key of a file of a corpus; of its folder without a name."""
    return "/".join(("corpora", name, *parts))


def is_registered(store: Store, name: str) -> bool:
    """Whether the data root holds the configuration of a corpus."""
    return store.exists(corpus_file(name, _CONFIG))


def embedded_config(name: str) -> CorpusConfig:
    """Return the configuration of one of the corpora that come with the package."""
    return CorpusConfig(name=name, format="embedded", domain="web")


def save_config(store: Store, config: CorpusConfig) -> None:
    """Register a corpus in the data root."""
    store.write_json(corpus_file(config.name, _CONFIG), {**asdict(config), "schema": SCHEMA})


def load_config(store: Store, name: str) -> CorpusConfig:
    """Return a registered corpus's configuration; embedded corpora need no registration."""
    # a name is a part of a key
    if re.fullmatch(_NAME, name) and is_registered(store, name):
        return CorpusConfig.from_dict(store.read_json(corpus_file(name, _CONFIG)))
    if name in EMBEDDED:
        return embedded_config(name)
    known = ", ".join(registered_corpora(store))
    raise InputError(
        f"no corpus is called {name!r}; known are {known}. Import one with `certify corpus import "
        "PATH --name NAME`."
    )


def registered_corpora(store: Store) -> list[str]:
    """Return the names of the embedded corpora and of those in the data root, sorted."""
    imported = [name for name in store.corpora() if is_registered(store, name)]
    return sorted({*EMBEDDED, *imported})


def removed_corpora(store: Store) -> list[str]:
    """Return the names of the corpora that were removed from the data root."""
    view = store.now()
    found = {name: view.last(name, Stored, corpus_file(name, _CONFIG)) for name in view.corpora()}
    return [name for name, stored in found.items() if stored and not stored.content.objects]


def require_removable(store: Store, name: str) -> None:
    """Refuse a corpus that the data root does not have, or that comes with the package."""
    if name in EMBEDDED:
        raise InputError(f"{name} comes with the package and cannot be removed.")
    # one with events may be removed already, by a call that was killed before it said so
    if name not in store.corpora():
        load_config(store, name)


def remove_corpus(store: Store, name: str) -> list[str]:
    """Remove a corpus from the data root and return the keys that were deleted."""
    require_removable(store, name)
    folder, view = corpus_file(name), store.now()
    # judges, certificates and all events stay: they are the record of what was claimed
    with view.step():
        return [key.removeprefix(f"{folder}/") for key in view.remove_tree(folder)]


def plan_splits(
    config: CorpusConfig, tasks: Iterable[str], earlier: SplitManifest | None = None
) -> SplitManifest:
    """Assign tasks to splits by a configuration, without storing the result."""
    # tasks that were assigned before keep their splits, unless another profile or seed is asked for
    asked = config.profile, config.seed, config.rl
    if earlier and asked == (earlier.profile, earlier.seed, earlier.train_rl):
        return extend_manifest(earlier, tasks)
    return make_manifest(
        tasks,
        config.name,
        config.profile,
        config.seed,
        train_rl=config.rl,
    )
