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
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, create_model

from certify_assets.corpora import CERTIFYING
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, parse_yaml
from certify_assets.judges.configured import Entry, validated
from certify_assets.judges.lm.models import known_model, placed
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.reading import JudgeInput
from certify_assets.storage.root import Root, default_root

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.family import JudgeFamily

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
    def maker(self) -> str:
        """Family whose judges its training makes."""
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
            if then.get(name) != now.get(name):
                return str(name)
        return ""


class DerivedSpec(JudgeSpec):
    """A judge that is trained by the recipe of another: fine-tuned, or lexical."""

    library = "scikitlearn"

    @property
    def maker(self) -> str:
        """Family of the recipe."""
        return "sft" if self.model else "lexical"


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


_FAMILIES: dict[str, JudgeFamily] = {}


def register_family(name: str, family: JudgeFamily) -> None:
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


def families() -> Mapping[str, JudgeFamily]:
    """Return the families by their tag, in the order of lists."""
    _discover()
    return dict(sorted(_FAMILIES.items(), key=lambda item: item[1].position))


@cache
def platform_judges() -> dict[str, JudgeSpec]:
    """Return the judges of the platform by name, in the order of lists."""
    return {spec.name: spec for family in families().values() for spec in family.judges}


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


@dataclass(frozen=True)
class ConfiguredJudges:
    """What the user's document holds: usable judges in its order, and a sentence on each other."""

    judges: Mapping[str, JudgeSpec] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def unknown(self, words: str, known: Iterable[str]) -> InputError:
        """Return the error of a name that no judge has; its entry may be one that is wrong."""
        return InputError(" ".join([f"{words} {', '.join(known)}.", *self.problems]))


def judges(root: str | None = None) -> dict[str, JudgeSpec]:
    """Return every judge: those of the platform, then those of the data root's judges.yaml."""
    return platform_judges() | dict(configured_judges(root).judges)


def judge_problems(root: str | None = None) -> tuple[str, ...]:
    """Return a sentence on each judge of the user's document that cannot be used."""
    return tuple(configured_judges(root).problems)


def judge_spec(name: str, root: str | None = None) -> JudgeSpec:
    """Return a judge's specification; refuse a name that no judge has."""
    # without the user's document, where it is not needed
    if name in platform_judges():
        return platform_judges()[name]
    configured = configured_judges(root)
    if name not in configured.judges:
        known = [*platform_judges(), *configured.judges]
        raise configured.unknown(f"there is no judge {name!r}; name one of", known)
    return configured.judges[name]


def configured_judges(root: str | None = None) -> ConfiguredJudges:
    """Read judges.yaml of a data root, or what ``CERTIFY_JUDGES`` names; an error leaves others."""
    try:
        where, text = Root(root or default_root()).read_settings(FILE, VARIABLE)
        entries = _entries(where, text)
    except CertifyError as error:
        return ConfiguredJudges(problems=[str(error)])
    found: dict[str, JudgeSpec] = {}
    problems = []
    for number, entry in enumerate(entries, 1):
        called: object = number
        try:
            called = repr(name := _name(entry, {*platform_judges(), *_TAKEN, *found}))
            found[name] = _spec(entry, where).resolved(platform_judges() | found)
        except InputError as error:
            problems.append(f"{where}, judge {called}: {error}")
    return ConfiguredJudges(found, problems)


def _entries(where: str, text: str | None) -> Sequence[Any]:
    try:
        document = parse_yaml(text or "")
    except ValueError as error:
        raise InputError(f"{where} is not YAML ({error}); correct it.") from None
    entries = {"judges": []} if document is None else document
    if isinstance(entries, Mapping) and set(entries) == {"judges"}:
        entries = entries["judges"]
    if not isinstance(entries, list):
        raise InputError(
            f"{where} is not one key 'judges' with a list of judges; docs/endpoints.md shows one."
        )
    return entries


def _name(entry: Any, taken: set[str]) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "it has no name of small letters, digits and '_', a letter first; give it one."
        )
    if name in taken:
        raise InputError(f"the name {name!r} is taken; choose another.")
    return name


def _spec(entry: Mapping[str, Any], where: str) -> JudgeSpec:
    """Return the judge of an entry; without a family it is one behind a server."""
    known = {name: family for name, family in families().items() if family.entry}
    tag = entry.get("family") or "endpoint"
    family = known.get(tag) if isinstance(tag, str) else None
    if family is None or family.entry is None:
        raise InputError(f"it has another family than {', '.join(known)}; name one of these.")
    folder = entry.get(family.entry.folder)
    # a command may be started anywhere; documents of an object store have no folder next to them
    if isinstance(folder, str) and "://" not in where:
        entry = {**entry, family.entry.folder: placed(folder, Path(where).parent)}
    return family.configure(validated(entry, family.entry))


def judges_schema() -> dict[str, Any]:
    """Return the JSON schema of judges.yaml."""
    entries: Any = reduce(or_, (family.entry for family in families().values() if family.entry))
    document = create_model("JudgesDocument", __base__=Entry, judges=list[entries])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document.model_json_schema(),
    }
