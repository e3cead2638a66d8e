"""``certify ops``: deployments, history and lineage."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from certify_assets.cli.ingest import export, ingest, outcomes
from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    SHARE,
    corpus_option,
    open_corpus,
    store_option,
)
from certify_assets.cli.output import NOTHING, TextTable, answer, answers, figures, say, table
from certify_assets.cli.recertify import accept_relabelled_option, recertify
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import SIDES
from certify_assets.words import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from certify_assets.operations.batch_audit import BatchAudit
    from certify_assets.operations.deployment import DeploymentRecord
    from certify_assets.operations.lineage import Link
    from certify_assets.storage.store import Store

_SHOWN_SOURCES = _SHOWN_DEPLOYMENTS = 5
_LISTED = {"number", "time", "judge", "alpha", "certificates"}
_DEPLOYED = ("judge", "number", "time", "budgets", "certificates", "sampling", "mlflow")


@click.group()
def ops() -> None:
    """Deploy judges, ingest batches, recertify, and follow decisions to their sources."""


for _command in (export, ingest, outcomes, recertify):
    ops.add_command(_command)


@ops.command()
@corpus_option
@click.argument("judge")
@click.option(
    "--alpha", "alphas", multiple=True, metavar="[SIDE=]A",
    help=(
        "Budget, of both sides or of one (reject=.1); repeat for the other. [default: the "
        "strictest that certifies]"
    ),
)  # fmt: skip
@click.option(
    "--accept-resplit",
    is_flag=True,
    help="Deploy although these runs were first certified under another split, seed or name.",
)
@click.option(
    "--accept-choice",
    is_flag=True,
    help="Deploy although certificates chose the judge without a smaller δ for the choice.",
)
@accept_relabelled_option
@click.option(
    "--audit-rate",
    type=SHARE,
    help="Share of tasks in the audit sample. [default: as before, at first .05]",
)
@click.option(
    "--draw-seed",
    "seed",
    type=NATURAL,
    help=(
        "Seed of the draw; keep it secret from those who write the agents. [default: as before, "
        "at first a random one]"
    ),
)
@answers
def deploy(
    corpus: Corpus,
    judge: str,
    alphas: tuple[str, ...],
    accept_resplit: bool,
    accept_choice: bool,
    accept_relabelled: bool,
    **plan: Any,
) -> None:
    """Let a certified judge decide the new runs of a corpus.

    The deployment is refused (exit code 3) if certificates do not recompute or are stale. It is
    also refused if nothing is certified, if the audit on TEST failed, or after an alarm. MLflow
    gets a version of the model certify-CORPUS, with the alias deployed and the certificates. If
    MLflow does not answer, the judge is deployed all the same, with a warning.
    """
    from certify_assets.operations.deploying import CHOSEN, RELABELLING_ACCEPTED, RESPLIT_ACCEPTED
    from certify_assets.operations.deploying import deploy as deploy_judge
    from certify_assets.operations.deployment import plan_before

    accepts = {
        RESPLIT_ACCEPTED: accept_resplit,
        CHOSEN: accept_choice,
        RELABELLING_ACCEPTED: accept_relabelled,
    }
    given = {name: value for name, value in plan.items() if value is not None}
    made = deploy_judge(
        JudgedCorpus(corpus, judge),
        alpha=_budgets(alphas),
        sampling=replace(plan_before(corpus), **given),
        accepted=[code for code, given in accepts.items() if given],
    )
    _answer_deployed(corpus, "ops deploy", made)


@ops.command()
@corpus_option
@click.argument("number", type=COUNT, required=False)
@answers
def rollback(corpus: Corpus, number: int | None) -> None:
    """Return to deployment NUMBER. [default: the one before the current]

    Judge, budgets, rates and seed of the draw are those of that deployment. The checks are those of
    `certify ops deploy`. Without NUMBER, a second call changes nothing.
    """
    from certify_assets.operations.deploying import redeploy
    from certify_assets.operations.deployment import read_deployments

    if number is None:
        deployments = read_deployments(corpus)
        if len(deployments) < 2:
            raise InputError(
                f"{corpus} has no deployment before the current one. `certify ops status {corpus}` "
                "shows its deployments."
            )
        *earlier, now = deployments
        again = [item.number for item in earlier if item.is_again(now)]
        number = again[0] if again else earlier[-1].number
    _answer_deployed(corpus, "ops rollback", redeploy(corpus, number))


def _answer_deployed(corpus: Corpus, command: str, made: DeploymentRecord) -> NoReturn:
    from certify_assets.certificates import Sides
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.deployment import kept_certificates

    report_stored(corpus, command, "operations/deployment")
    if made.mlflow is not None and "error" in made.mlflow:
        say(f"warning: deployed, but MLflow has no record of it: {made.mlflow['error']}.")
    said = [Sides(kept_certificates(corpus, made)).sentence]
    said += [f"{finding['code']}: {finding['message']}" for finding in made.findings]
    answer({**made.to_dict(), "decides": True}, *_deployed(made), *said)


def _deployed(made: DeploymentRecord) -> list[Any]:
    document = {**made.to_dict(), "budgets": made.budgets}
    told = made.mlflow or {}
    if "version" in told:
        # without a server of its own, the link leads nowhere before `certify ui`
        served = os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http")
        where = f": {told['run']}" if served else "; `certify ui` shows it"
        document["mlflow"] = f"version {told['version']} of {told['model']}{where}"
    return figures(f"Deployed on {made.corpus}", document, most=_DEPLOYED)


@ops.command()
@corpus_option
@answers
def status(corpus: Corpus) -> None:
    """Show which judge is deployed, and whether it still decides (exit 3 where it does not).

    Also lists the batches with runs that the corpus certificate does not cover. Such a batch is
    provisional until the labels of its draw suffice, then certified or to_reviewers. Batches whose
    labels suffice are closed by this command. Exit 3 also where the stored draw of a batch was
    edited.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.batch_audit import audits_version
    from certify_assets.operations.batch_drawing import close_batches, waiting_runs
    from certify_assets.operations.deployment import (
        behind,
        deployed_spending,
        load_deployment,
        open_deployment,
        read_deployments,
    )
    from certify_assets.operations.outcomes import outcome_counts

    before = audits_version(corpus)
    known = outcome_counts(corpus)
    audits, faults = close_batches(corpus)
    if audits_version(corpus) != before:
        report_stored(corpus, "ops status", "operations/batch_certificates")
    waiting = [
        {"batches": item.batches, "runs": item.runs, "sentence": item.outlook()}
        for item in waiting_runs(corpus)
    ]
    try:
        spent: object = deployed_spending(corpus).total()
    except CertifyError as error:
        spent = str(error)
    earlier = read_deployments(corpus)
    found, refusal = load_deployment(corpus), open_deployment(corpus).refusal
    document = {
        "corpus": corpus.name,
        "deployment": None if found is None else found.to_dict(),
        "decides": refusal is None,
        "refusal": None if refusal is None else asdict(refusal),
        "deployments": [item.model_dump(mode="json", include=_LISTED) for item in earlier],
        "batches": [item.to_dict() for item in audits],
        "waiting": waiting,
        "faults": [*faults.values()],
        "outcomes": known,
        "delta_spent": spent,
    }
    blocks = [] if found is None else _deployed(found)
    if len(earlier) > 1:
        last = ", ".join(f"{item.number} ({item.judge})" for item in earlier[-_SHOWN_DEPLOYMENTS:])
        blocks.append(f"Deployments, the last ones: {last}.")
    blocks.append(f"δ spent: {spent}.")
    if refusal is not None:
        blocks.append(str(refusal))
    elif found is not None:
        blocks += ["It decides new runs.", behind(corpus, found) or None]
    blocks += [*_batches(audits), *faults.values(), *(item["sentence"] for item in waiting)]
    if known["runs"]:
        wrong = f"{known['wrong']:,} decided wrongly"
        runs = number_of(known["runs"], "run")
        blocks.append(f"Outcomes known afterwards: {runs}, {wrong}.")
    answer(document, *blocks, code=0 if refusal is None and not faults else NOTHING)


def _batches(audits: Sequence[BatchAudit]) -> list[Any]:
    """Return the batches with runs that the corpus certificate does not cover."""
    if not audits:
        return []
    rows = [{**item.to_dict(), "labels_wanted": len(item.wanted)} for item in audits]
    names = ("batches", "state", "runs", "decided", "labels", "labels_wanted")
    blocks: list[Any] = [table("Batches that the corpus certificate does not cover", rows, names)]
    for item in audits:
        if item.state == "provisional" or item.overruled:
            blocks.append(item.sentence)
        if item.state == "provisional":
            blocks.append(f"  {item.promise}")
    return blocks


@ops.command()
@corpus_option
@answers
def history(corpus: Corpus) -> None:
    """Show every set of certificates: coverage, realised error, alarms and δ spent."""
    from certify_assets.operations.history import operation_history
    from certify_assets.reports.history_page import history_table

    found = operation_history(corpus)
    if not found.steps:
        answer(found.to_dict(), f"Nothing is deployed on {corpus}.")
    answer(found.to_dict(), TextTable(*history_table(found)[:3]), found.joint)


@ops.command()
@click.argument("name", metavar="ID")
@click.option("--corpus", help="Corpus to search, if several have the ID. [default: all]")
@store_option
@answers
def lineage(name: str, corpus: str | None, store: Store) -> None:
    """Trace a decision, a certificate or a batch back to its source files.

    ID is the trajectory_id of a decided run, the beginning of a certificate's SHA-256 (8 digits or
    more), or a batch. The hash of each link is compared with what is stored now: it holds, differs
    or is missing. Exit 3 where a link does not hold. A missing source file is only reported.
    """
    from certify_assets.operations.lineage import follow

    if corpus is not None:
        open_corpus(store, corpus)
    whose, trees = follow(store, name, corpus)
    links = {(link.kind, link.name): link for tree in trees for link in tree.walk()}
    broken = [link for tree in trees for link in tree.walk() if link.broken]
    count = Counter(link.status for link in links.values())
    said = "Every link holds."
    if broken:
        said = f"Links that do not hold: {len(broken):,}."
    elif moved := count["missing"]:
        said = f"{count['holds']:,} links hold. Source files that were moved: {moved:,}."
    document = {
        "id": name,
        "corpus": whose,
        "kind": trees[0].kind,
        "holds": not broken,
        "broken": [f"{link.kind} {link.name}: {link.status}" for link in broken],
        "lineage": [asdict(tree) for tree in trees],
    }
    lines = (line for tree in trees for line in _lines(tree))
    answer(document, *lines, said, code=NOTHING if broken else 0)


def _lines(link: Link, depth: int = 0) -> Iterator[str]:
    """Return a link and those below it, each a line that is indented by its depth."""
    status = "" if link.status == "told" else f"{link.status} {link.sha256[:12]}"
    parts = (f"{link.kind} {link.name}", status, link.detail)
    yield "  " * depth + "  ".join(part.strip() for part in parts if part)
    hidden = 0
    for number, child in enumerate(link.links):
        # a corpus may have thousands of source files; those that do not hold are all shown
        if number < _SHOWN_SOURCES or child.kind != "source" or child.broken:
            yield from _lines(child, depth + 1)
        else:
            hidden += 1
    if hidden:
        yield "  " * (depth + 1) + f"and {hidden:,} more source files that hold or were moved"


def _budgets(alphas: tuple[str, ...]) -> dict[str, float] | float | None:
    """Return the budget of each side that is named, or the one of both."""
    named: dict[str, float] = {}
    for text in alphas:
        side, found, number = text.rpartition("=")
        sides = SIDES if found else [""] * (len(alphas) == 1)
        try:
            budget = float(number)
        except ValueError:
            budget = 0.0
        if not 0 < budget < 1 or side not in sides or side in named:
            raise click.UsageError(
                f"--alpha {text!r} is not a budget. Give one for both sides (.1), or one for a "
                "side (reject=.1)."
            )
        if not found:
            return budget
        named[side] = budget
    return named or None
