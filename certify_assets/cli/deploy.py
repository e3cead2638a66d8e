"""``certify deploy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import Finite, root_option
from certify_assets.cli.output import (
    NOTHING,
    console,
    emit_json,
    json_option,
    percent,
    say,
    show_table,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import SIDES

if TYPE_CHECKING:
    from certify_assets.operations.deployment import Deployment
    from certify_assets.operations.sampling import SamplingPlan
    from certify_assets.storage.store import Store

__all__ = ["deploy"]

_SHARE = Finite(0, 1)


@click.command()
@click.argument("corpus")
@click.argument("judge", required=False)
@click.option(
    "--alpha", "alphas", multiple=True, metavar="[SIDE=]A",
    help="Budget, of both sides or of one (reject=.1); repeat for the other. [default: the strictest that certifies]",
)  # fmt: skip
@click.option(
    "--audit-rate",
    type=_SHARE,
    default=None,
    help="Share of tasks whose every run people read. [default: as before, at first .05]",
)
@click.option(
    "--spot-rate",
    type=_SHARE,
    default=None,
    help="Share of tasks whose auto-decided runs people read. [default: as before, at first .05]",
)
@click.option(
    "--draw-seed",
    type=click.IntRange(min=0),
    default=None,
    help="Seed of the draw of tasks; keep it from those who write the agents. [default: as before, at first drawn now]",
)
@click.option(
    "--again",
    type=click.IntRange(min=1),
    default=None,
    metavar="NUMBER",
    help="Deploy again what this deployment was: a way back.",
)
@click.option(
    "--certificates-key",
    default=None,
    hidden=True,
    help="Certificates of a recertification, by their key in the data root.",
)
@root_option
@json_option
@click.pass_context
def deploy(
    ctx: click.Context,
    /,
    corpus: str,
    judge: str | None,
    alphas: tuple[str, ...],
    audit_rate: float | None,
    spot_rate: float | None,
    draw_seed: int | None,
    again: int | None,
    certificates_key: str | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Let a certified judge decide a corpus's new runs, or show which does.

    With JUDGE the judge is deployed, where its certificates recompute and stand on what is stored now, something is certified, the audit on TEST did not
    fail, an endpoint's scores passed the parity test, and no alarm was raised (exit 3 with the reason where not). MLflow gets a version of the
    model certify-CORPUS with the alias deployed and the certificates attached; where it does not answer, the deployment holds and says so. Without
    JUDGE the deployment is shown, and whether it still decides (exit 3 where not).
    """
    from certify_assets.cli.launching import open_corpus_store
    from certify_assets.operations.deployment import deploy as deploy_judge
    from certify_assets.operations.deployment import redeploy

    store = open_corpus_store(root, corpus)
    changes = {"audit_rate": audit_rate, "spot_rate": spot_rate, "seed": draw_seed}
    given = [*alphas, certificates_key, *changes.values()]
    if again is not None:
        if judge is not None or any(value is not None for value in given):
            raise click.UsageError(
                "--again takes the judge, budgets and rates of that deployment; give it alone."
            )
        _show(store, redeploy(Corpus(store, corpus), again), as_json=as_json)
    elif judge is not None:
        plan = _plan(Corpus(store, corpus), changes)
        _show(
            store,
            deploy_judge(
                JudgedCorpus(Corpus(store, corpus), judge),
                alpha=_budgets(alphas),
                sampling=plan,
                certificates_key=certificates_key,
            ),
            as_json=as_json,
        )
    elif any(value is not None for value in given):
        raise click.UsageError(
            "there is no judge to deploy with these options; name one after the corpus."
        )
    else:
        ctx.exit(_status(Corpus(store, corpus), as_json=as_json))


def _plan(corpus: Corpus, changes: dict[str, Any]) -> SamplingPlan:
    from dataclasses import replace

    from certify_assets.operations.deployment import plan_before

    return replace(
        plan_before(corpus), **{name: value for name, value in changes.items() if value is not None}
    )


def _budgets(alphas: tuple[str, ...]) -> dict[str, float] | float | None:
    """Return the budget of each side that is named, or the one of both."""
    named: dict[str, float] = {}
    for text in alphas:
        side, found, number = text.rpartition("=")
        try:
            budget = float(number)
        except ValueError:
            budget = 0.0
        if (
            not 0 < budget < 1
            or (found and side not in SIDES)
            or side in named
            or (not found and len(alphas) > 1)
        ):
            raise click.UsageError(
                f"--alpha {text!r} is no budget; give one such as .1, or one a side such as reject=.1 and release=.2."
            )
        if not found:
            return budget
        named[side] = budget
    return named or None


def _status(corpus: Corpus, *, as_json: bool) -> int:
    from certify_assets.operations.deployment import load_deployment, read_deployments, why_refused

    refusal = why_refused(corpus)
    found = load_deployment(corpus)
    earlier = read_deployments(corpus)
    past = [
        {
            "number": item.number,
            "time": item.time,
            "judge": item.judge,
            "alpha": dict(item.alpha),
            "certificates": list(item.certificates),
        }
        for item in earlier
    ]
    state = {"decides": refusal is None, "refusal": None if refusal is None else refusal.to_dict()}
    if as_json:
        emit_json(
            {
                "corpus": corpus.name,
                "deployment": None if found is None else found.to_dict(),
                **state,
                "deployments": past,
            }
        )
    else:
        if found is not None:
            _table(found)
        if earlier:
            rows = [
                [str(item.number), item.time[:16], item.judge, _words(item)] for item in earlier
            ]
            show_table(
                f"Deployments, for `certify deploy {corpus} --again NUMBER`",
                ["number", "time", "judge", "certificates"],
                rows,
            )
        console().print(
            "It decides new runs." if refusal is None else f"{refusal.code}: {refusal.sentence}",
            markup=False,
        )
    return 0 if refusal is None else NOTHING


def _words(earlier: Deployment) -> str:
    pairs = zip(earlier.alpha.items(), earlier.certificates, strict=True)
    return ", ".join(f"{side} at {alpha:g} {sha256[:12]}" for (side, alpha), sha256 in pairs)


def _show(store: Store, made: Deployment, *, as_json: bool) -> None:
    if as_json:
        emit_json({**made.to_dict(), "decides": True})
        return
    _table(made)
    for finding in made.findings:
        console().print(f"  {finding['code']}: {finding['message']}", markup=False)
    if made.mlflow is not None and "error" in made.mlflow:
        say(f"MLflow: {made.mlflow['error']}; the deployment holds without the record.")


def _table(made: Deployment) -> None:
    mlflow = made.mlflow or {}
    rows = [
        ["judge", made.judge],
        ["number", f"{made.number} of {made.time}"],
        *[
            [f"{side} at {alpha:g}", sha256]
            for (side, alpha), sha256 in zip(made.alpha.items(), made.certificates, strict=True)
        ],
        ["tasks read whole", percent(made.sampling.audit_rate)],
        ["tasks spot-checked", percent(made.sampling.spot_rate)],
        [
            "MLflow",
            f"{mlflow['model']} version {mlflow['version']}, {mlflow['alias']}"
            if "version" in mlflow
            else mlflow.get("error", "–"),
        ],
    ]
    show_table(f"Deployed on {made.corpus}", ["figure", "value"], rows)
