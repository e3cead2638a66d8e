"""Agents of the corpora: scripted ones with planted faults, and a model behind an endpoint."""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from certify_assets.errors import InputError
from certify_assets.judges.endpoint.client import Client
from certify_assets.judges.endpoint.questions import read_text
from certify_assets.judges.endpoint.scoring import complete
from certify_assets.judges.endpoint.settings import Server
from certify_assets.research.miniwob.browser import TaskPage
from certify_assets.research.miniwob.hands import Hands, Stuck, name_of
from certify_assets.research.miniwob.skills import Skill, find_skill

# how much of a task's difficulty is its kind of skill, and how much is the task's own
SKILL_SHARE = 0.5
OWN_NOISE = 0.05
_VERBS = {
    "plain": "done",
    "long": "finished the task",
    "short": "ok, done",
    "proud": "success, task complete",
}


@dataclass(frozen=True, slots=True)
class Agent:
    """A scripted agent: its corpus, the hardest task it can do (0 to 1), and its habits."""

    name: str
    corpus: str
    competence: float
    slip: float
    wording: str
    looks_first: bool = False
    checks_after: bool = False
    always_claims_success: bool = False


AGENTS: tuple[Agent, ...] = (
    Agent("scripted-hasty", "miniwob_weak", 0.36, 0.06, "short"),
    Agent("scripted-literal", "miniwob_weak", 0.37, 0.05, "plain", looks_first=True),
    Agent("scripted-timid", "miniwob_weak", 0.36, 0.05, "long", checks_after=True),
    Agent("scripted-optimist", "miniwob_weak", 0.34, 0.06, "proud", always_claims_success=True),
    Agent("scripted-steady", "miniwob_mixed", 0.55, 0.05, "plain"),
    Agent(
        "scripted-careful", "miniwob_mixed", 0.60, 0.03, "long", looks_first=True, checks_after=True
    ),
    Agent("scripted-novice", "miniwob_mixed", 0.46, 0.06, "short"),
    Agent("scripted-confident", "miniwob_mixed", 0.54, 0.05, "proud", always_claims_success=True),
)


def generator_for(*parts: object) -> random.Random:
    """Return a random generator that depends on the parts alone, on every machine."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode("utf-8")).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def instance_seed(seed: int, task: str, agent: str, attempt: int) -> str:
    """Return the seed of the page's own generator, shared with no other run."""
    return hashlib.sha256(f"{seed}|{task}|{agent}|{attempt}".encode()).hexdigest()[:16]


def draw_fault(agent: Agent, task: str, skill: Skill, *, attempt: int, seed: int) -> str:
    """Return how this agent fails at this task ("" if not): alike at all attempts but for slips."""
    # whether an agent can do a task is drawn once, mostly from how hard the task is for all agents,
    # so that the runs of one task are alike, as they are for real agents
    hard = (
        SKILL_SHARE * skill.level + (1 - SKILL_SHARE) * generator_for(seed, "task", task).random()
    )
    own = generator_for(seed, "agent", agent.name, task)
    capable = hard + own.gauss(0, OWN_NOISE) < agent.competence
    names, weights = zip(*skill.faults, strict=True)
    fault = own.choices(names, weights)[0]
    slipped = generator_for(seed, "slip", agent.name, task, attempt).random() < agent.slip
    return fault if capable == slipped else ""


class ScriptedAgent:
    """One attempt of a scripted agent: reads the page, acts by its skills and faults, claims."""

    def __init__(self, agent: Agent, *, seed: int) -> None:
        self.agent = agent
        self.seed = seed

    @property
    def name(self) -> str:
        """The agent's name in trajectories."""
        return self.agent.name

    def attempt(self, page: TaskPage, task: str, attempt: int) -> list[tuple[str, str]]:
        """Act until done or stuck; return the steps (action, observation), the claim last."""
        skill, found = find_skill(page.instruction)
        fault = draw_fault(self.agent, task, skill, attempt=attempt, seed=self.seed)
        rng = generator_for(self.seed, "hands", self.agent.name, task, attempt)
        hands = Hands(page, fault=fault, rng=rng)
        reason = ""
        try:
            if self.agent.looks_first:
                hands.look_again("read the page")
            if fault in ("blind", "lost"):
                _wander(hands, lost=fault == "lost")
            self._fumble(hands)
            skill.act(hands, found)
            if self.agent.checks_after:
                hands.look_again("check the page")
        except Stuck as stuck:
            reason = str(stuck)
        except (IndexError, ValueError, StopIteration):
            # the page does not read as the skill expects: the agent's failure, not the program's
            reason = "the page does not read as expected"
        hands.steps.append((f'claim("{self._claim(hands, reason)}")', ""))
        return hands.steps

    def _fumble(self, hands: Hands) -> None:
        if hands.rng.random() < 0.2 and hands.view:
            hands.say(
                f'find("{hands.rng.choice(("button", "main field", "task area", "next"))}")',
                "no element matches",
            )
            hands.look_again()

    def _claim(self, hands: Hands, reason: str) -> str:
        # from what the agent believes, never from the page's verdict
        done = _VERBS[self.agent.wording]
        if self.agent.always_claims_success:
            return done
        if reason:
            return f"not done: {reason}"
        return f"{done}, but not sure that it worked" if hands.doubts else done


def _wander(hands: Hands, *, lost: bool) -> None:
    """Search without a plan, then give up: what an agent without the skill does."""
    words = [w for w in hands.instruction.replace('"', "").split() if len(w) > 3] or ["target"]
    for _ in range(hands.rng.randint(1, 2)):
        hands.say(
            f'find("{hands.rng.choice(words)} '
            f'{hands.rng.choice(("button", "box", "item", "field"))}")',
            "no element matches",
        )
    plain = [
        e
        for e in hands.view
        if e.kind in ("text", "shape", "icon", "field") and e.w > 4 and e.h > 4
    ]
    for _ in range(hands.rng.randint(1, 2) if lost else 0):
        if plain:
            target = hands.rng.choice(plain)
            hands.tap(target, f"click({target.kind} at {target.x:.0f},{target.y:.0f})")
    hands.look_again()
    raise Stuck(
        hands.rng.choice(
            (
                "could not find where to act",
                "no way to go on",
                "the page does not show what is asked for",
            )
        )
    )


def _turn(task: str, last: str, elements: Sequence[str]) -> str:
    """Return what a model is asked at a turn."""
    listing = "\n".join(f"{place}. {element}".rstrip() for place, element in enumerate(elements))
    return f"Task: {task}\nLast: {last}\n{listing}"


MODEL_PREFIX = "model:"
_KEY = "CERTIFY_MODEL_KEY"
MAX_TURNS = 12
SYSTEM = """You act on a small web page. \
Each turn you get the task and the numbered elements that are visible. Answer with one line:
click N
type N "text"
choose N "option"
submit
claim "what you did and whether it is done"
Nothing else. Use claim as the last answer."""
# two finished tasks of no page: a small model answers in form where it is shown how, not where it
# is described to it
EXAMPLES = (
    (
        _turn('Click on the "Ok" button.', "", ['text "Choose"', 'button "No"', 'button "Ok"']),
        "click 2",
    ),
    (_turn('Click on the "Ok" button.', "the page ended", []), 'claim "clicked Ok"'),
    (_turn('Enter "Joe" and press Submit.', "", ["field", 'button "Submit"']), 'type 0 "Joe"'),
    (_turn('Enter "Joe" and press Submit.', "value: Joe", ["field", 'button "Submit"']), "click 1"),
)
_REPLY = re.compile(
    r"^\s*(click|type|choose|submit|claim)\b\s*(\d+)?\s*(?:\"(.*)\")?\s*$",
    re.IGNORECASE | re.MULTILINE,
)


def parse_reply(text: str) -> tuple[str, int | None, str]:
    """Return (verb, element number, text) of the first action; no action claims a failure."""
    found = _REPLY.search(text)
    if not found:
        return "claim", None, "not done: no readable action"
    return (
        found.group(1).lower(),
        int(found.group(2)) if found.group(2) else None,
        found.group(3) or "",
    )


@dataclass(frozen=True, slots=True)
class ModelAgent:
    """One attempt of a model, asked for an action a turn until it claims or turns run out."""

    server: Server

    @classmethod
    def from_environment(cls) -> ModelAgent:
        """Return the agent that the environment describes."""
        url, model = (
            os.environ.get("CERTIFY_MODEL_URL", ""),
            os.environ.get("CERTIFY_MODEL_NAME", ""),
        )
        if not url or not model:
            raise InputError(
                "A model agent needs CERTIFY_MODEL_URL (an OpenAI-compatible base URL) and "
                "CERTIFY_MODEL_NAME; set both."
            )
        return cls(Server(url, model, key_variable=_KEY if os.environ.get(_KEY) else None))

    @property
    def name(self) -> str:
        """The agent's name in trajectories."""
        return MODEL_PREFIX + self.server.model

    def ask(self, messages: list[dict[str, str]]) -> str:
        """Return the server's answer to a conversation, at temperature 0."""
        payload = {"model": self.server.model, "messages": messages, "temperature": 0}

        async def answer() -> dict[str, Any]:
            async with Client(self.server) as client:
                return await client.ask(f"{self.server.plain_url}/chat/completions", payload)

        return read_text(complete(answer())).text

    def attempt(self, page: TaskPage, task: str, attempt: int) -> list[tuple[str, str]]:
        """Let the model act; return the steps, the last one its claim."""
        hands = Hands(page, fault="")
        claim = "not done: out of turns"
        messages = [{"role": "system", "content": SYSTEM}]
        for asked, answer in EXAMPLES:
            messages += [
                {"role": "user", "content": asked},
                {"role": "assistant", "content": answer},
            ]
        try:
            for _ in range(MAX_TURNS):
                elements = [f"{name_of(e)} {e.value}" for e in hands.view]
                asked = _turn(hands.instruction, hands.steps[-1][1], elements)
                messages.append({"role": "user", "content": asked})
                reply = self.ask(messages)
                messages.append({"role": "assistant", "content": reply})
                if messages[-2:] == messages[-4:-2] == messages[-6:-4]:
                    raise Stuck("the same action on the same page, three times")
                verb, number, text = parse_reply(reply)
                if verb == "claim":
                    claim = text
                    break
                self._do(hands, verb, number, text)
        except Stuck as stuck:
            claim = f"not done: {stuck}"
        hands.steps.append((f'claim("{claim}")', ""))
        return hands.steps

    def _do(self, hands: Hands, verb: str, number: int | None, text: str) -> None:
        if verb == "submit":
            hands.submit()
        elif number is None or number >= len(hands.view):
            hands.say(f"{verb} {number}", "no element matches")
        elif verb == "click":
            hands.click(hands.view[number])
        elif verb == "type":
            hands.type(hands.view[number], text)
        elif hands.view[number].kind == "list":
            hands.choose(hands.view[number], [text])
        else:
            hands.say(f'choose {number} "{text}"', "the element is not a list")
