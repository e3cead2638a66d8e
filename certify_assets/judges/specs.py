"""The catalogue of judges: those declared by families, and those of judges.yaml."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import create_model

from certify_assets.errors import CertifyError, InputError
from certify_assets.files import parse_yaml
from certify_assets.judges.configured import Entry, NamedEntry, validated
from certify_assets.judges.lm.models import placed
from certify_assets.judges.spec import JudgeSpec
from certify_assets.storage.root import Root, default_root

ALPHAS = (0.1, 0.2)
DELTA = 0.05
SIDES = ("reject", "release")
# the first one decides; the others are stored next to it, for comparison
PROCEDURES = ("pseudo_task", "guarded_taskboot", "taskboot", "naive")

FILE = "judges.yaml"
VARIABLE = "CERTIFY_JUDGES"

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


class Catalogued:
    """The catalogue's view of a family; `JudgeFamily` adds how its judges are made."""

    #: place of its judges in lists; the shipped families come first
    position: ClassVar[int] = 90
    #: judges that the platform ships
    judges: ClassVar[Sequence[JudgeSpec]] = ()
    #: settings of those that users add by their document; None where they can add none
    entry: ClassVar[type[NamedEntry] | None] = None
    #: what an entry of that class specifies
    spec: ClassVar[type[JudgeSpec]] = JudgeSpec


_Family = TypeVar("_Family", bound=Catalogued)
_FAMILIES: dict[str, Catalogued] = {}
# a sentence on each module that could not be imported, by its name
_BROKEN: dict[str, str] = {}


def judge_family(name: str) -> Callable[[type[_Family]], type[_Family]]:
    """Register a family under the tag of its specifications."""

    def register(family: type[_Family]) -> type[_Family]:
        if name in _FAMILIES:
            raise InputError(f"there is a judge family {name!r} already; choose another name.")
        _FAMILIES[name] = family()
        return family

    return register


@cache
def families() -> Mapping[str, Catalogued]:
    """Return the families by tag, in the order of lists, without those of broken modules."""
    package = importlib.import_module("certify_assets.judges.families")
    for module in pkgutil.iter_modules(package.__path__):
        name = f"{package.__name__}.{module.name}"
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever one module raises, the other families stay
            for tag, family in [*_FAMILIES.items()]:
                if type(family).__module__ == name:
                    del _FAMILIES[tag]
            _BROKEN[module.name] = (
                f"the judge family {module.name} is missing, because its module cannot be imported "
                f"({type(error).__name__}: {error}); correct the module."
            )
    return dict(sorted(_FAMILIES.items(), key=lambda item: item[1].position))


def family_of(tag: str) -> Catalogued:
    """Return the family of a tag; refuse an unknown tag, and one whose module is broken."""
    found = families().get(tag)
    if found is None:
        raise InputError(" ".join([f"there is no judge family {tag!r}.", *_BROKEN.values()]))
    return found


@cache
def platform_judges() -> dict[str, JudgeSpec]:
    """Return the judges of the platform by name, in the order of lists."""
    return {spec.name: spec for family in families().values() for spec in family.judges}


def upstream(spec: JudgeSpec) -> str:
    """Return the judge that one is built on: its start, or the base judge of its model, if any."""
    if spec.start or not spec.uses_language_model or spec.untrained:
        return spec.start
    same = (
        name
        for name, other in platform_judges().items()
        if other.untrained and (other.model, other.revision) == (spec.model, spec.revision)
    )
    return next(same, "")


JUDGES: dict[str, JudgeSpec]
#: judges that need seconds: what every corpus gets
QUICK_JUDGES: tuple[str, ...]
#: rounds of CertHarvest: jobs of their own
HARVEST_JUDGES: tuple[str, ...]


def __getattr__(name: str) -> Any:
    # families import this module, so their judges are gathered at first use and not on import
    if name not in ("JUDGES", "QUICK_JUDGES", "HARVEST_JUDGES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    known = platform_judges()
    if name == "QUICK_JUDGES":
        return tuple(judge for judge, spec in known.items() if spec.quick and spec.everywhere)
    if name == "HARVEST_JUDGES":
        return tuple(judge for judge, spec in known.items() if spec.gated)
    return known


@dataclass(frozen=True)
class ConfiguredJudges:
    """The user's document: usable judges in its order, and a sentence on each unusable one."""

    judges: Mapping[str, JudgeSpec] = field(default_factory=dict)
    # of entries, and of families that are missing
    problems: Sequence[str] = ()

    def unknown(self, words: str, known: Iterable[str]) -> InputError:
        """Return the error for a name without a judge; the entry of this name may be wrong."""
        return InputError(" ".join([f"{words} {', '.join(known)}.", *self.problems]))


def judges(root: str | None = None) -> dict[str, JudgeSpec]:
    """Return all judges: those of the platform, then those of the data root's judges.yaml."""
    return platform_judges() | dict(configured_judges(root).judges)


def judge_problems(root: str | None = None) -> tuple[str, ...]:
    """Return a sentence on each judge of the user's document, and each family, that is unusable."""
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
    """Read judges.yaml of a data root, or the file of ``CERTIFY_JUDGES``; skip wrong entries."""
    platform = platform_judges()
    problems, found = [*_BROKEN.values()], dict[str, JudgeSpec]()
    try:
        where, text = Root(root or default_root()).read_settings(FILE, VARIABLE)
        entries = _entries(where, text)
    except CertifyError as error:
        return ConfiguredJudges(problems=[*problems, str(error)])
    for number, entry in enumerate(entries, 1):
        called: object = number
        try:
            called = repr(name := _name(entry, {*platform, *_TAKEN, *found}))
            found[name] = _spec(entry, where).resolved(platform | found)
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
    """Return the judge of an entry; without a family, it is behind a server."""
    known = {name: family for name, family in families().items() if family.entry}
    tag = entry.get("family") or "endpoint"
    family = known.get(tag) if isinstance(tag, str) else None
    if family is None or family.entry is None:
        raise InputError(f"it has another family than {', '.join(known)}; name one of these.")
    folder = entry.get(family.entry.folder)
    # a command may be started anywhere; documents of an object store have no folder next to them
    if isinstance(folder, str) and "://" not in where:
        entry = {**entry, family.entry.folder: placed(folder, Path(where).parent)}
    return family.spec(**validated(entry, family.entry).specification())


def judges_schema() -> dict[str, Any]:
    """Return the JSON schema of judges.yaml."""
    entries: Any = reduce(or_, (family.entry for family in families().values() if family.entry))
    document = create_model("JudgesDocument", __base__=Entry, judges=list[entries])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document.model_json_schema(),
    }
