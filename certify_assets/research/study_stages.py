"""The stages of a study: what each makes, from what, and which command runs it alone. The order of the list is the order of the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from certify_assets._version import __version__
from certify_assets.corpora.config import load_config, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.errors import CertifyError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JUDGES, judges
from certify_assets.research.study import ALL, Profile
from certify_assets.storage.progress import ProgressLines, Report, silent
from certify_assets.storage.store import Store

Say = Callable[[str], None]


@dataclass(frozen=True)
class Work:
    """What a stage works on.

    Parameters
    ----------
    store : Store
    corpus : str
        `ALL` for a stage over all corpora.
    profile : Profile
    language : tuple of str
        Corpora on which language models are trained where the profile has them.
    workers : int
        Processes that a stage over all corpora may use.
    say : callable
    """

    store: Store
    corpus: str
    profile: Profile
    language: tuple[str, ...] = EMBEDDED
    workers: int = 1
    say: Say = field(default=lambda _: None)


@dataclass(frozen=True)
class Stage:
    """One stage.

    Parameters
    ----------
    name : str
    phase : int
        0 needs nothing of other corpora, 1 needs their splits, 2 is over all corpora.
    run : callable
        Does it; returns why there was nothing to do, or "".
    documents : callable
        Keys of what it leaves.
    inputs : callable
        What its documents depend on, as JSON values; their hash is the stage's key.
    command : str
        Runs it alone.
    needs : tuple of str
        Stages of the same corpus without which it cannot be.
    language : bool
        Whether a language model is trained or read.
    """

    name: str
    phase: int
    run: Callable[[Work], str]
    documents: Callable[[Work], Sequence[str]]
    inputs: Callable[[Work], Mapping[str, Any]]
    command: str
    needs: tuple[str, ...] = ()
    language: bool = False

    def left_out(self, work: Work) -> str:
        """Say why a profile leaves this stage out; "" where it does not."""
        if self.language and not work.profile.language:
            return "a language model takes minutes to hours; --profile full runs it."
        if self.language and work.corpus not in (ALL, *work.language):
            return "language models run on the embedded corpora; name this corpus on the command line to run them here."
        return ""


def _hashes(work: Work, *keys: str) -> dict[str, str | None]:
    return {key: work.store.sha256(key) if work.store.exists(key) else None for key in keys}


def _ground(work: Work) -> dict[str, Any]:
    """What every stage of a corpus stands on."""
    folder = f"corpora/{work.corpus}"
    return {
        "version": __version__,
        "config": load_config(work.store, work.corpus).to_dict(),
        **_hashes(work, f"{folder}/trajectories.parquet", f"{folder}/splits/manifest.json"),
    }


def _config(work: Work) -> dict[str, Any]:
    return {"version": __version__, "config": load_config(work.store, work.corpus).to_dict()}


def _prepare(work: Work) -> str:
    store, corpus = work.store, Corpus(work.store, work.corpus)
    if not all(store.exists(corpus.key(n)) for n in ("import.json", "trajectories.parquet")):
        corpus.import_trajectories()
    if corpus.import_summary.label_facts.get("labels_only"):
        return "it holds labels without runs, of which nothing can be judged."
    corpus.make_splits()
    corpus.write_splits()
    corpus.measure_profile()
    corpus.measure_leaks()
    corpus.require_leak_checks()
    return ""


def _prepared(work: Work) -> list[str]:
    folder = f"corpora/{work.corpus}"
    tables = [f"{folder}/splits/{split}.parquet" for split in ("sft", "rl", "cal", "test")]
    return [
        f"{folder}/trajectories.parquet",
        f"{folder}/splits/manifest.json",
        f"{folder}/profile.json",
        f"{folder}/controls.json",
        *tables,
    ]


def _chain(judge: str) -> Callable[[Work], str]:
    """Return what brings a judge to its audit; one that stands is left as it is."""

    def run(work: Work) -> str:
        from certify_assets.evaluation import certification
        from certify_assets.evaluation.audit import audit_judge
        from certify_assets.judges.families.transfer import pool_of

        store, corpus, spec = work.store, work.corpus, JUDGES[judge]
        if spec.needs_other_corpora:
            try:
                if reason := pool_of(JudgedCorpus.of(Corpus(store, corpus), spec)).missing:
                    return reason
            except CertifyError as error:
                return str(error)
        if not _stands(JudgedCorpus(Corpus(store, corpus), judge)):
            JudgedCorpus(Corpus(store, corpus), judge).train(report=_report(work, spec.model))
            JudgedCorpus(Corpus(store, corpus), judge).score(report=_report(work, spec.model))
            certification.certify_judge(JudgedCorpus(Corpus(store, corpus), judge))
            audit_judge(JudgedCorpus(Corpus(store, corpus), judge))
        return ""

    return run


def _report(work: Work, model: str) -> Report:
    """Return what is told how far a language model has come; the other judges are done in seconds."""
    return ProgressLines(lambda text: work.say(f"{work.corpus}: {text}")) if model else silent


def _stands(judge: JudgedCorpus) -> bool:
    from certify_assets.evaluation import certification
    from certify_assets.evaluation.audit import load_audits

    if not judge.store.exists(judge.key("audits.json")):
        return False
    try:
        judge.require_scores()
        audited = {audit.certificate_sha256 for audit in load_audits(judge)[0]}
        deciding = {
            item.sha256
            for item in certification.load_certificates(judge)
            if item.procedure == "guarded_taskboot"
        }
    except CertifyError:
        return False
    return audited == deciding


def _judge_stage(judge: str) -> Stage:
    spec = JUDGES[judge]
    names = ("adapter.json", "scores.json", "certificates.json", "audits.json")

    def inputs(work: Work) -> Mapping[str, Any]:
        others = registered_corpora(work.store) if spec.needs_other_corpora else []
        start = [f"judges/{spec.start}/{work.corpus}/adapter.json"] if spec.start else []
        splits = [f"corpora/{name}/splits/manifest.json" for name in others]
        return {
            **_ground(work),
            "judge": spec.registration(),
            "seed": spec.seed,
            **_hashes(work, *start, *splits),
        }

    return Stage(
        judge,
        1 if spec.needs_other_corpora else 0,
        _chain(judge),
        lambda work: [f"judges/{judge}/{work.corpus}/{name}" for name in names],
        inputs,
        "certify research study CORPUS" + (" --profile full" if spec.model else ""),
        ("splits", *([spec.start] if spec.start else [])),
        language=spec.uses_language_model,
    )


def _seeds(work: Work) -> str:
    from certify_assets.research.seed_study import SeedPlan, run_seeds

    run_seeds(
        Corpus(work.store, work.corpus),
        SeedPlan(seeds=tuple(range(42, 42 + work.profile.seeds))),
        say=work.say,
    )
    return ""


def _harvests(learner: str) -> Callable[[Work], str]:
    def run(work: Work) -> str:
        from certify_assets.research.harvest_study import HarvestPlan, learner_maker, run_harvests

        plan = HarvestPlan()
        if learner == "sft":
            # a training is minutes: one loop, at the budget that halves of CAL can certify
            plan = HarvestPlan(
                learner="sft",
                alphas=(0.2,),
                gates=("guarded_taskboot",),
                sides=("reject",),
                profiles=("certify",),
                rounds=1,
            )
        with learner_maker(
            Corpus(work.store, work.corpus),
            learner,
            report=_report(work, learner if learner == "sft" else ""),
        ) as make:
            run_harvests(
                Corpus(work.store, work.corpus),
                plan,
                learner=make,
                say=lambda text: work.say(f"{work.corpus}: {text}"),
            )
        return ""

    return run


def _harvests_transfer(work: Work) -> str:
    """Harvest from a judge that saw no row of the corpus, as the paper's Web-A and Web-M rows do."""
    from certify_assets.judges.harvest.loop import lexical_learner
    from certify_assets.judges.transfer import gather_pool
    from certify_assets.research.harvest_study import HarvestPlan, run_harvests

    store, corpus = work.store, work.corpus
    if not load_config(store, corpus).rl:
        return "the corpus was split without an RL split, so the pool's tasks are not those that the sources were kept apart from."
    pool = gather_pool(Corpus(store, corpus))
    if pool.missing:
        return pool.missing
    plan = HarvestPlan(learner="lexical_transfer", profiles=("",))
    run_harvests(
        Corpus(store, corpus),
        plan,
        learner=lambda splits: lexical_learner(pool.frame, splits.manifest, transfer=True),
    )
    return ""


def _agents(work: Work) -> str:
    from certify_assets.evaluation.agent_folds import evaluate_scored

    _, left_out = evaluate_scored(Corpus(work.store, work.corpus), ["lexical"])
    return " ".join(item["reason"] for item in left_out)


def _arms(work: Work) -> str:
    from certify_assets.evaluation.arms_audit import audit_arms

    audit_arms(
        JudgedCorpus.of(Corpus(work.store, work.corpus), JUDGES["grpo"]),
        report=_report(work, "compact"),
    )
    return ""


def _real_scores(work: Work) -> str:
    from certify_assets.research.real_scores import write_real_scores

    write_real_scores(Corpus(work.store, work.corpus))
    return ""


def _comparison(work: Work) -> str:
    from certify_assets.evaluation.comparison import write_comparison

    write_comparison(Corpus(work.store, work.corpus))
    return ""


def _judged(work: Work) -> Mapping[str, Any]:
    """What stands on every judge: the hashes of what each scored, certified and audited; the audits' own hashes hold the time of a ledger line."""
    files = [
        f"judges/{name}/{work.corpus}/{part}.json"
        for name in judges(work.store.root)
        for part in ("adapter", "scores", "certificates")
    ]
    agents = f"comparison/{work.corpus}/agent_disjoint_lexical.json"
    return {
        **_ground(work),
        **{key: value for key, value in _hashes(work, *files, agents).items() if value},
    }


def _main_table(work: Work) -> str:
    from certify_assets.evaluation.comparison import write_main_table

    write_main_table(work.store)
    return ""


def _law(work: Work) -> str:
    from certify_assets.research.certifiability import write_certifiability

    write_certifiability(work.store)
    return ""


def _simulation(work: Work) -> str:
    from certify_assets.research.simulation_study import Question, run_study

    question = Question(trials=work.profile.trials, workers=work.workers)
    run_study(
        work.store,
        question,
        lambda cell, done, total: work.say(f"simulation: {done} of {total}, {cell.title}"),
    )
    return ""


def _everywhere(work: Work) -> Mapping[str, Any]:
    corpora = registered_corpora(work.store)
    files = [
        f"judges/{judge}/{corpus}/{part}.json"
        for judge in JUDGES
        for corpus in corpora
        for part in ("adapter", "scores", "certificates")
    ]
    splits = [f"corpora/{corpus}/splits/manifest.json" for corpus in corpora]
    return {
        "version": __version__,
        **{key: value for key, value in _hashes(work, *files, *splits).items() if value},
    }


def _seed_inputs(work: Work) -> Mapping[str, Any]:
    return {**_ground(work), "seeds": work.profile.seeds}


def _arm_inputs(work: Work) -> Mapping[str, Any]:
    return {**_ground(work), **_hashes(work, f"judges/grpo/{work.corpus}/adapter.json")}


def _only(pattern: str) -> Callable[[Work], list[str]]:
    return lambda work: [pattern.format(corpus=work.corpus)]


def _with_sources(work: Work) -> Mapping[str, Any]:
    return {
        **_ground(work),
        **_hashes(
            work,
            *[f"corpora/{name}/splits/manifest.json" for name in registered_corpora(work.store)],
        ),
    }


_HARVESTS = "harvests/{{corpus}}/{}.json"
STAGES: tuple[Stage, ...] = (
    Stage("splits", 0, _prepare, _prepared, _config, "certify research study CORPUS"),
    _judge_stage("lexical"),
    _judge_stage("lexical_weighted"),
    Stage("seeds", 0, _seeds, _only("seeds/{corpus}.json"), _seed_inputs, "certify research study CORPUS", ("splits",)),
    Stage("harvests", 0, _harvests("lexical"), _only(_HARVESTS.format("lexical")), _ground, "certify research harvest CORPUS", ("splits",)),
    Stage(
        "agents", 0, _agents, _only("comparison/{corpus}/agent_disjoint_lexical.json"), _ground, "certify judge compare CORPUS --agent-disjoint",
        ("lexical",),
    ),
    *(_judge_stage(name) for name in ("base", "sft", "grpo")),
    Stage(
        "arms", 0, _arms, _only("judges/grpo/{corpus}/arms_audit.json"), _arm_inputs,
        "certify research study CORPUS --profile full", ("grpo",), language=True,
    ),
    Stage(
        "harvests_sft", 0, _harvests("sft"), _only(_HARVESTS.format("sft")), _ground, "certify research harvest CORPUS --learner sft", ("splits",),
        language=True,
    ),
    *(_judge_stage(name) for name in ("lexical_transfer", "lexical_transfer_strict", "transfer", "transfer_strict")),
    Stage(
        "harvests_transfer", 1, _harvests_transfer, _only(_HARVESTS.format("lexical_transfer")), _with_sources, "certify research study CORPUS",
        ("splits",),
    ),
    Stage("real_scores", 1, _real_scores, _only("real_scores/{corpus}.json"), _judged, "certify research study CORPUS", ("lexical",)),
    Stage("comparison", 1, _comparison, _only("comparison/{corpus}/comparison.json"), _judged, "certify judge compare CORPUS", ("lexical",)),
    Stage("main_table", 2, _main_table, lambda _: ["study/main_table.json"], _everywhere, "certify research study"),
    Stage("law", 2, _law, lambda _: ["study/certifiability.json"], _everywhere, "certify research law --root DIR"),
    Stage(
        "simulation", 2, _simulation, lambda _: ["study/simulation.json"], lambda work: {"version": __version__, "trials": work.profile.trials},
        "certify research study",
    ),
)  # fmt: skip
