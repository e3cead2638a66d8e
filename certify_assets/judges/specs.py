"""The catalogue of judges: those that the families declare, and those of judges.yaml."""

# A family is a module of `certify_assets.judges.families`. Its specification class derives from
# `JudgeSpec` with a literal ``family``, so the specifications form a union tagged by that field.

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from certify_assets.corpora import CERTIFYING
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, parse_yaml
from certify_assets.judges.lm.models import known_model, placed
from certify_assets.judges.lm.recipe import RECIPE_SETTINGS, Recipe
from certify_assets.judges.reading import JudgeInput
from certify_assets.storage.store import Store, default_root

if TYPE_CHECKING:
    import pandas as pd


ALPHAS = (0.1, 0.2)
DELTA = 0.05
SIDES = ("reject", "release")
# the first one decides; the others are stored next to it, for comparison
PROCEDURES = ("pseudo_task", "guarded_taskboot", "taskboot", "naive")

FILE = "judges.yaml"
VARIABLE = "CERTIFY_JUDGES"
#: judges of the platform that have assets next to those of the document, with commas; all without
SHOWN_VARIABLE = "CERTIFY_SHOWN"

# groups of other assets, which jobs select by, and the leak controls of a comparison
_TAKEN = (
    "corpora",
    "embedded",
    "monitoring",
    "study",
    "comparison",
    "models",
    "length_only",
    "step_count",
    "agent_only",
    "operation",
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class JudgeSpec(BaseModel):
    """A judge: what every family knows of it. Each family adds its own fields and answers."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    # tag of the union; a literal in every subclass
    family: str
    # key prefix and group of its assets
    name: str
    # one sentence for the asset page
    summary: str
    seed: int = 42
    # language model that it reads: "compact", a folder, a hub name, or a server's name for it
    model: str = ""
    revision: str | None = None
    # judge whose artifact or certificate the training starts from
    start: str = ""
    # what the next training of it reads of a run; a trained judge reads what its record says
    reading: JudgeInput = JudgeInput()
    # how a language model is trained; None is what suits the model
    recipe: Recipe | None = None

    #: library that its assets show as a kind where it reads no language model
    library: ClassVar[str] = "python"
    #: splits of the corpus that it is trained on, with labels or pseudo-labels
    training_splits: ClassVar[tuple[str, ...]] = ("sft",)
    #: whether it is a language model as it comes
    untrained: ClassVar[bool] = False
    #: whether it is trained on the other corpora of the data root
    needs_other_corpora: ClassVar[bool] = False
    #: whether a certificate must let its training through, so that there may be no such judge
    gated: ClassVar[bool] = False
    #: whether a server scores: it costs money, and every answer is kept
    hosted: ClassVar[bool] = False
    #: whether it learns from SFT rows alone, so that it can be trained without some agents
    retrainable: ClassVar[bool] = False
    #: whether it says what features add to a score
    explained: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """Family as documents and tags name it: that of the recipe."""
        return self.family

    @property
    def group(self) -> str:
        """Group of its assets, which jobs select by."""
        return self.family if self.everywhere else "baseline"

    @property
    def everywhere(self) -> bool:
        """Whether every corpus gets it, where it is quick."""
        return True

    @property
    def quick(self) -> bool:
        """Whether it needs seconds and nothing but its corpus."""
        return not (
            self.uses_language_model or self.needs_other_corpora or self.gated or self.hosted
        )

    @property
    def libraries(self) -> frozenset[str]:
        """Libraries that its assets show as kinds."""
        return frozenset({"pytorch" if self.uses_language_model else self.library})

    @property
    def candidates(self) -> int:
        """Number of candidates that it is chosen among on CAL; its level is divided by it."""
        return 1

    @property
    def chooses(self) -> bool:
        """Whether it is chosen among candidates on CAL."""
        return self.candidates > 1

    @property
    def calibration_splits(self) -> tuple[str, ...]:
        """Splits whose labels may certify it: RL and CAL, without those that it learned from."""
        # what chose features, weights, steps or pseudo-labels was learned from as well. A choice
        # among `candidates` on CAL is paid for in the level, so it takes no split away.
        return tuple(split for split in CERTIFYING if split not in self.training_splits)

    def calibration_name(self, splits: Sequence[str]) -> str:
        """Return how certificates name the rows of some splits that certify it."""
        return " and ".join(splits)

    def calibration_rows(self, labelled: pd.DataFrame) -> pd.DataFrame:
        """Return those of the labelled rows of its calibration splits that certify it."""
        return labelled

    @property
    def upstream(self) -> str:
        """Judge that comes before it: its start, else the base judge of its model; may be empty."""
        if self.start or not self.uses_language_model or self.untrained:
            return self.start
        same = (
            name
            for name, other in platform_judges().items()
            if other.untrained and (other.model, other.revision) == (self.model, self.revision)
        )
        return next(same, "")

    @property
    def uses_language_model(self) -> bool:
        """Whether it trains or reads a language model on this machine, minutes for seconds."""
        return bool(self.model) and not self.hosted

    @property
    def reads_compact(self) -> bool:
        """Whether its language model is the one that the package builds and ships."""
        return known_model(self.model).shipped

    @property
    def cost(self) -> str:
        """What a corpus takes: money where a server scores, minutes or seconds of this machine."""
        return "money" if self.hosted else "minutes" if self.uses_language_model else "seconds"

    @property
    def training(self) -> Recipe:
        """How a language model is trained."""
        return self.recipe or known_model(self.model).recipe

    def resolved(self, known: Mapping[str, JudgeSpec]) -> JudgeSpec:
        """Return it with what it takes from the judge that it starts from, if from any."""
        return self

    def registration(self) -> object:
        """Return what is registered before TEST is read; by default all that defines the judge."""
        # what it reads is the record's: see `JudgedCorpus.registration`
        about = {"name", "summary", "seed", "reading", "recipe"}
        return self.model_dump(mode="json", exclude=about)

    @property
    def registered(self) -> object:
        """Registration as documents have it."""
        return json.loads(canonical_json(self.registration()))

    def changed_since(self, then: object) -> str:
        """Name what an earlier registration of it has otherwise; empty for nothing."""
        now = self.registered
        if not isinstance(now, dict) or not isinstance(then, dict):
            return "" if now == then else "setting"
        for name in {**then, **now}:
            before, after = (found.get(name) for found in (then, now))
            if before != after:
                return _settings_of(before, after) if name == "recipe" else name
        return ""


class CausalSpec(JudgeSpec):
    """A language model of this machine, read at the verdict's place."""

    @property
    def group(self) -> str:
        """Jobs of the language models."""
        return "lm"

    def registration(self) -> object:
        """Return the model, what it started from, and how it is trained where that was written."""
        names = ("family", "model", "revision", "start")
        recipe = {} if self.recipe is None else {"recipe": self.recipe.to_dict()}
        return {**{name: getattr(self, name) for name in names}, **recipe}


def _settings_of(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Name the settings of a training that differ; all of them where only one side has any."""
    names = [
        name for name in RECIPE_SETTINGS if (before or {}).get(name) != (after or {}).get(name)
    ]
    return " and ".join(names) if before and after and names else "training"


class Family(Protocol):
    """What the catalogue of judges asks of a family; `JudgeFamily` is what implements it."""

    position: ClassVar[int]
    judges: ClassVar[Sequence[JudgeSpec]]

    @property
    def configurable(self) -> bool:
        """Whether the user's document can add judges of it."""

    def configure(self, name: str, entry: Mapping[str, Any]) -> JudgeSpec:
        """Return the judge that an entry of the user's document describes."""


_FAMILIES: dict[str, Family] = {}


def register_family(name: str, family: Family) -> None:
    """Add a family under the tag of its specifications, and its judges to those of the platform."""
    if name in _FAMILIES:
        raise InputError(f"there is a judge family {name!r} already; choose another name.")
    _FAMILIES[name] = family
    if platform_judges.cache_info().currsize:
        platform_judges().update({spec.name: spec for spec in family.judges})


@cache
def _discover() -> None:
    from certify_assets.judges import families as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def families() -> Mapping[str, Family]:
    """Return the families by their tag."""
    _discover()
    return _FAMILIES


@cache
def platform_judges() -> dict[str, JudgeSpec]:
    """Return the judges of the platform by name, in the order of lists."""
    known = sorted(families().values(), key=lambda family: family.position)
    return {spec.name: spec for family in known for spec in family.judges}


JUDGES: dict[str, JudgeSpec]
#: judges that need seconds: what every corpus gets
QUICK_JUDGES: tuple[str, ...]
#: rounds of CertHarvest: jobs of their own
HARVEST_JUDGES: tuple[str, ...]


def __getattr__(name: str) -> Any:
    # families import this module, so their judges are gathered at first use and not on import
    if name == "JUDGES":
        return platform_judges()
    if name == "QUICK_JUDGES":
        known = platform_judges().items()
        return tuple(judge for judge, spec in known if spec.quick and spec.everywhere)
    if name == "HARVEST_JUDGES":
        return tuple(judge for judge, spec in platform_judges().items() if spec.gated)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def judges(root: str | None = None) -> dict[str, JudgeSpec]:
    """Return every judge: those of the platform, then those of the data root's judges.yaml."""
    return platform_judges() | dict(read_judges_document(root).configured.judges)


def judge_problems(root: str | None = None) -> tuple[str, ...]:
    """Return a sentence on each judge of the user's document that cannot be used."""
    return read_judges_document(root).configured.problems


def judge_spec(name: str, root: str | None = None) -> JudgeSpec:
    """Return a judge's specification; refuse a name that no judge has."""
    # without the user's document, where it is not needed
    if name in platform_judges():
        return platform_judges()[name]
    known = judges(root)
    if name not in known:
        configured = read_judges_document(root).configured
        raise unknown_judge(name, f"there is no judge {name!r}; name one of", known, configured)
    return known[name]


def unknown_judge(
    name: str, words: str, known: Iterable[str], configured: ConfiguredJudges
) -> InputError:
    """Return the error of a name that no judge has: what is wrong with its entry, if it has one."""
    if name in configured.refused:
        return InputError(configured.refused[name])
    return InputError(" ".join([f"{words} {', '.join(known)}.", *configured.problems]))


@dataclass(frozen=True)
class ConfiguredJudges:
    """What the user's document holds: usable judges in its order, and a sentence on each other."""

    judges: Mapping[str, JudgeSpec] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    # those of the problems that are of an entry with a name
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgesFile:
    """The user's judges.yaml as it was read: where it is, its text, or why there is none."""

    where: str = ""
    text: str | None = None
    problem: str = ""

    @cached_property
    def configured(self) -> ConfiguredJudges:
        """Its judges; an error in one leaves the others."""
        return _configured(self)


def read_judges_document(root: str | None = None) -> JudgesFile:
    """Read the document of a data root, or that which ``CERTIFY_JUDGES`` names."""
    try:
        where, text = Store(root or default_root()).read_settings(FILE, VARIABLE)
    except CertifyError as error:
        return JudgesFile(problem=str(error))
    return JudgesFile(where, text)


def _configured(document: JudgesFile) -> ConfiguredJudges:
    if document.problem:
        return ConfiguredJudges(problems=(document.problem,))
    where = document.where
    try:
        entries = _entries(where, document.text)
    except CertifyError as error:
        return ConfiguredJudges(problems=(str(error),))
    found: dict[str, JudgeSpec] = {}
    problems, refused = [], {}
    for number, entry in enumerate(entries, 1):
        called, name = f"{where}, judge {number}", ""
        try:
            name = _name(entry, {*platform_judges(), *_TAKEN, *found})
            called = f"{where}, judge {name!r}"
            spec = _family(entry).configure(name, _placed(entry, where))
            found[name] = spec.resolved(platform_judges() | found)
        except InputError as error:
            problems.append(f"{called}: {error}")
            if name:
                refused[name] = problems[-1]
    # a second entry may have the name of one that was refused
    refused = {name: problem for name, problem in refused.items() if name not in found}
    return ConfiguredJudges(found, tuple(problems), refused)


def _entries(where: str, text: str | None) -> list[Any]:
    if text is None:
        return []
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"{where} is not YAML ({error}); correct it.") from None
    if document is None:
        return []
    entries = (
        document.get("judges")
        if isinstance(document, Mapping) and set(document) == {"judges"}
        else None
    )
    if not isinstance(entries, list):
        raise InputError(
            f"{where} is not one key 'judges' with a list of judges; docs/endpoints.md shows one."
        )
    return entries


def _placed(entry: Any, where: str) -> Any:
    """Return an entry with relative folders of models as they are next to the document."""
    # a command may be started anywhere; documents of an object store have no folder next to them
    if not isinstance(entry, Mapping) or "://" in where:
        return entry
    base, found = Path(where).parent, dict(entry)
    # the model of a server has the name that the server gives it
    hosted = (entry.get("family") or "endpoint") == "endpoint"
    for name in ("tokenizer",) if hosted else ("model",):
        if isinstance(entry.get(name), str):
            found[name] = placed(entry[name], base)
    return found


def _family(entry: Mapping[str, Any]) -> Family:
    """Return the family that an entry names; without a name it is a judge behind a server."""
    named = entry.get("family") or "endpoint"
    known = isinstance(named, str) and named in families()
    if not known or not families()[named].configurable:
        order = sorted(families().items(), key=lambda item: item[1].position)
        *others, last = [name for name, family in order if family.configurable]
        said = repr(named[:40]) if isinstance(named, str) else "no word"
        raise InputError(f"its family is {said}; name {', '.join(others)} or {last}.")
    return families()[named]


def _name(entry: Any, taken: set[str]) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "it has no name of small letters, digits and '_', a letter first; give it one."
        )
    if name in taken:
        raise InputError(f"the name {name!r} is taken; choose another.")
    return name
