"""The specification of judges; a family adds its own fields and methods."""

# The specification class of a family derives from `JudgeSpec` with a literal ``family``, so the
# specifications form a union tagged by that field.

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from certify_assets.corpora import CERTIFYING
from certify_assets.documents import JsonObject
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.reading import JudgeInput
from certify_assets.judges.record import JudgeRecord

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.corpus import Corpus


class JudgeSpec(BaseModel):
    """A judge, with the fields that all families share."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    # tag of the union; a literal in every subclass
    family: str
    # key prefix and group of its assets
    name: str
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
    #: whether it is trained again without some tasks, by features that its family knows
    retrainable: ClassVar[bool] = False

    @property
    def summary(self) -> str:
        """One sentence for lists and asset pages, from the class's docstring."""
        return " ".join((inspect.getdoc(type(self)) or "").split())

    @property
    def kind(self) -> str:
        """Family as documents and tags name it: that of the recipe."""
        return self.family

    @property
    def maker(self) -> str:
        """Family of the trained judge."""
        return self.family

    @property
    def group(self) -> str:
        """Group of its assets, by which jobs select them."""
        return self.family if self.everywhere else "baseline"

    @property
    def everywhere(self) -> bool:
        """Whether every corpus gets it if it is quick."""
        return True

    @property
    def prompts(self) -> Mapping[str, Any]:
        """Templates of what a server is asked, by name."""
        return {}

    @property
    def uses_language_model(self) -> bool:
        """Whether it trains or runs a language model on this machine, which takes minutes."""
        return bool(self.model) and not self.hosted

    @property
    def reads_compact(self) -> bool:
        """Whether its language model is the one that the package ships."""
        return known_model(self.model).shipped

    @property
    def quick(self) -> bool:
        """Whether it needs only seconds and its corpus."""
        return not (
            self.uses_language_model or self.needs_other_corpora or self.gated or self.hosted
        )

    @property
    def libraries(self) -> frozenset[str]:
        """Libraries that its assets show as kinds."""
        return frozenset({"pytorch" if self.uses_language_model else self.library})

    @property
    def cost(self) -> str:
        """The cost of a corpus: money for a server, or minutes or seconds of this machine."""
        return "money" if self.hosted else "minutes" if self.uses_language_model else "seconds"

    @property
    def training(self) -> Recipe:
        """How a language model is trained."""
        return self.recipe or known_model(self.model).recipe

    @property
    def candidates(self) -> int:
        """Number of candidates to choose from on CAL; its level is divided by this number."""
        return 1

    @property
    def chooses(self) -> bool:
        """Whether it is chosen from candidates on CAL."""
        return self.candidates > 1

    @property
    def calibration_splits(self) -> tuple[str, ...]:
        """Splits whose labels may certify it: RL and CAL, unless it learned from them."""
        # what chose features, weights, steps or pseudo-labels was learned from as well. A choice
        # among `candidates` on CAL is paid for in the level, so it takes no split away.
        return tuple(split for split in CERTIFYING if split not in self.training_splits)

    def calibration_name(self, splits: Sequence[str]) -> str:
        """Return the name that certificates give to its certifying rows of some splits."""
        return " and ".join(splits)

    def calibration_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the labelled rows of its calibration splits that certify it."""
        return rows

    def resolved(self, known: Mapping[str, JudgeSpec]) -> JudgeSpec:
        """Return it with the settings inherited from the judge that it starts from."""
        return self

    def registration(self) -> JsonObject:
        """Return the facts to register before TEST is read; by default all that defines it."""
        # what it reads is the record's: see `StoredJudge.registration`
        unsaid = {"name", "seed", "reading", *({} if self.recipe else {"recipe"})}
        return self.model_dump(mode="json", exclude=unsaid)

    def changed_since(self, then: Mapping[str, object]) -> str:
        """Name the first setting that differs from an earlier registration; empty if none does."""
        now = self.registration()
        return next((name for name in {**then, **now} if then.get(name) != now.get(name)), "")

    def require_current(self, corpus: Corpus, record: JudgeRecord) -> None:
        """Refuse a record whose other sources have changed; splits, renderer and start are checked
        elsewhere.
        """

    def require_present(self, corpus: Corpus) -> None:
        """Refuse a missing record with the family's reason, if it has one."""


class DerivedSpec(JudgeSpec):
    """A judge that is trained by another's recipe: fine-tuned, or lexical."""

    library = "scikitlearn"

    @property
    def maker(self) -> str:
        """Family of the recipe."""
        return "sft" if self.model else "lexical"


class CausalSpec(JudgeSpec):
    """A language model on this machine, read at the position of the verdict."""

    @property
    def group(self) -> str:
        """Jobs of the language models."""
        return "lm"
