"""Rows of the paper's tables as it prints them, to stand beside ours; numbers that are computed with are in ``paper_numbers``."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "ALPHA_20",
    "ARMS",
    "AUDITS",
    "CLUSTERING",
    "COSTS",
    "FRONTIER",
    "GATES",
    "HARVEST_ROWS",
    "MAIN_ROWS",
    "NAIVE_AUDIT",
    "RANKING",
    "REAL_ROWS",
    "RELEASE",
    "SELF_TRAINING",
    "TRANSFER",
    "MainRow",
]


class MainRow(NamedTuple):
    """AUROC and coverage of base, SFT and GRPO, the gain by RL, and the regime."""

    corpus: str
    aurocs: tuple[float | None, float | None, float | None]
    coverages: tuple[float | None, float | None, float | None]
    gain: str
    regime: str


#: corpus → ρ and n_eff; the rest of the row is in ``paper_numbers.CORPORA``
CLUSTERING = {
    "Tool": (0.25, 257), "Term": (0.43, 30), "Web-A": (0.49, 91), "Web-M": (0.80, 39), "Web-F": (0.81, 38), "Code-O": (0.64, 459),
    "Code-S": (0.00, 21),
}  # fmt: skip

MAIN_ROWS = (
    MainRow("Tool", (0.798, 0.899, 0.903), (0.000, 0.293, 0.297), "+.004", "trainable"),
    MainRow("Web-A", (0.897, 0.925, 0.922), (0.510, 0.560, 0.585), "+.025", "trainable"),
    MainRow("Web-M", (0.983, 0.976, 0.977), (0.832, 0.789, 0.836), "+.047", "saturated"),
    MainRow("Web-F", (0.983, 0.991, 0.994), (0.707, 0.758, 0.758), "±.000", "saturated"),
    MainRow("Code-O", (0.531, 0.645, 0.530), (0.000, 0.000, 0.000), "", "judge-blind"),
    MainRow("Term", (0.864, 0.871, 0.873), (0.290, 0.379, 0.369), "−.010", "13 tasks"),
    MainRow("Code-S", (0.913, 0.800, None), (0.619, 0.619, None), "", "7 tasks"),
)
#: corpus, judge, and what naive, DEFF, one-per-task, task-Hoeffding and TaskBoot certify at α = .1 on TEST's own scores
REAL_ROWS = (
    ("Tool", "base", (0.000, 0.000, 0.000, 0.000, 0.000)),
    ("Tool", "SFT", (0.325, 0.000, 0.000, 0.000, 0.325)),
    ("Tool", "GRPO, μ=3", (0.321, 0.000, 0.000, 0.000, 0.321)),
    ("Term", "base", (0.340, 0.000, 0.000, 0.000, 0.315)),
    ("Term", "SFT", (0.379, 0.000, 0.000, 0.000, 0.379)),
    ("Term", "GRPO, μ=5", (0.369, 0.000, 0.000, 0.000, 0.369)),
    ("Web-A", "base", (0.465, 0.000, 0.000, 0.000, 0.510)),
    ("Web-A", "SFT", (0.465, 0.000, 0.000, 0.000, 0.560)),
    ("Web-A", "GRPO, μ=3", (0.430, 0.000, 0.000, 0.000, 0.585)),
    ("Web-M", "base", (0.857, 0.000, 0.000, 0.000, 0.832)),
    ("Web-M", "SFT", (0.859, 0.000, 0.000, 0.000, 0.789)),
    ("Web-F", "base", (0.707, 0.000, 0.000, 0.000, 0.707)),
    ("Web-F", "SFT", (0.758, 0.000, 0.000, 0.000, 0.758)),
    ("Code-O", "base", (0.000, 0.000, 0.000, 0.000, 0.000)),
    ("Code-S", "base", (0.000, 0.000, 0.000, 0.000, 0.619)),
)
#: corpus, judge, exceedance of the naive certificate under task resampling at α = .1 and .2; the text bounds all other pairs by .032
NAIVE_AUDIT = (
    ("Web-M", "SFT", ".069", ".175"),
    ("Web-M", "base", ".017", ".021"),
    ("Tool", "SFT", ".004", ".032"),
    ("Tool", "GRPO", ".001", ".017"),
    ("Web-A", "all", "≤ .004", "≤ .004"),
    ("Term", "SFT", ".000", ".027"),
    ("Web-F", "all", "≤ .016", "≤ .016"),
)
#: corpus, judge, realised error on TEST at α = .1; at .2 the largest is .116, on Web-A with GRPO μ=3
AUDITS = (
    ("Web-A", "SFT", 0.028), ("Web-A", "GRPO, μ=3", 0.027), ("Web-A", "base", 0.037), ("Tool", "SFT", 0.012), ("Tool", "GRPO, μ=1", 0.012),
    ("Tool", "GRPO, μ=3", 0.011), ("Web-M", "base", 0.008), ("Web-M", "SFT", 0.015), ("Web-M", "GRPO, μ=5", 0.008), ("Web-F", "base", 0.016),
    ("Web-F", "SFT", 0.022), ("Web-F", "GRPO, μ=3", 0.016),
)  # fmt: skip
#: judge, elicitation, AUROC and coverage at α = .1 on Web-A and on Tool
FRONTIER = (
    ("gpt-5.6-sol", "CoT and probability", ".929", ".704", ".794", ".000"),
    ("claude-sonnet-5", "CoT and probability", ".905", ".497", ".847", ".000"),
    ("gemini-2.5-pro", "CoT and probability", ".753", ".000", "–", "–"),
    ("gemini-2.5-pro", "SC-5", ".680", ".000", "–", "–"),
    ("claude-sonnet-5", "SC-10", ".686", ".000", "–", "–"),
    ("gpt-4o", "logprob", ".753", ".000", "–", "–"),
    ("trained 4B", "logprob", ".922", ".585", ".903", ".297"),
)
#: corpus, SFT, accuracy, reject μ=3, reject μ=5, release λ=5 (on CAL in parentheses), arm that CAL picks
ARMS = (
    ("Tool", ".293", ".297 (.150)", ".321 (.149)", ".295 (.145)", ".293", "μ=1"),
    ("Web-A", ".560", ".585 (.514)", ".585 (.537)", ".585 (.514)", ".585", "μ=3"),
)
#: corpus, judge, reject coverage at α = .2
ALPHA_20 = (
    ("Web-A", "base", 0.635), ("Web-A", "SFT", 0.710), ("Web-A", "GRPO, μ=1", 0.735), ("Web-A", "GRPO, μ=3", 0.710), ("Web-A", "GRPO, μ=5", 0.715),
    ("Tool", "SFT", 0.422), ("Tool", "GRPO, μ=1", 0.424), ("Tool", "GRPO, μ=3", 0.391), ("Tool", "base", 0.120), ("Web-M", "base", 0.883),
    ("Web-M", "SFT", 0.859), ("Web-M", "GRPO, μ=5", 0.885), ("Web-F", "base", 0.707), ("Web-F", "SFT", 0.758), ("Web-F", "GRPO, μ=3", 0.758),
    ("Term", "base", 0.442), ("Term", "SFT", 0.469), ("Term", "GRPO, μ=5", 0.423), ("Web-A", "gpt-5.6-sol CoT", 0.784),
    ("Web-A", "sonnet-5 CoT", 0.675), ("Tool", "sonnet-5 CoT", 0.124), ("Tool", "gpt-5.6-sol CoT", 0.0),
)  # fmt: skip
#: corpus, judge, release coverage at α = .1 and .2
RELEASE = (("Tool", "SFT", ".000", ".27"), ("all others", "all", ".000", ".000"))
#: corpus, A₀ clear of .5, SFT not saturated, enough samples, as the text argues
GATES = (
    ("Tool", "yes (.798)", "yes (.899)", "yes (257)"),
    ("Web-A", "yes (.897)", "yes (.925)", "yes (91)"),
    ("Code-O", "no (.531)", "–", "yes (459)"),
    ("Web-M", "yes (.983)", "no (.976)", "yes (39)"),
    ("Web-F", "yes (.983)", "no (.991)", "yes (38)"),
    ("Term", "yes (.864)", "–", "no (30)"),
    ("Code-S", "yes (.913)", "–", "no (21)"),
)
#: target, judge, coverage at α = .1, harvest with contamination, target labels
SELF_TRAINING = (
    ("Web-A", "transfer, round 0", ".575", "–", "0"),
    ("Web-A", "and CertHarvest round 1", ".585", "262/914 (.008)", "0"),
    ("Web-A", "175 CAL labels spent on SFT", ".540", "–", "175"),
    ("Web-A", "in-domain SFT and GRPO", ".585", "–", "914"),
    ("Web-M", "transfer, round 0", ".830", "–", "0"),
    ("Web-M", "and CertHarvest round 1", ".820", "837/1296 (.002)", "0"),
    ("Tool", "in-domain SFT", ".293", "–", "2600"),
    ("Tool", "and CertHarvest round 1", ".343", "296/2200 (.000)", "+0"),
    ("Tool", "and CertHarvest round 2", ".347", "338/2200 (.003)", "+0"),
)
#: target, start and round, harvest, contamination, coverage certified at α = .1
HARVEST_ROWS = (
    ("Web-A", "transfer, round 1, all of CAL", "437/914", ".041", ".585"),
    ("Web-A", "transfer, round 1", "262/914", ".008", ".585"),
    ("Web-A", "transfer, round 2", "336/914", ".024", ".465"),
    ("Tool", "in-domain, round 1", "296/2200", ".000", ".343"),
    ("Tool", "in-domain, round 2", "338/2200", ".003", ".347"),
    ("Web-M", "transfer, round 1", "837/1296", ".002", ".820"),
    ("Tool", "transfer", "gate closed", "–", "–"),
)
#: corpus, coverage of rounds 0, 1 and 2 on CAL, and on TEST
RANKING = ("Web-A", (0.514, 0.389, 0.486), (0.575, 0.585, 0.465))
#: target, what is left out of training, AUROC, coverage at α = .1
TRANSFER = (
    ("Web-A", "Web-A", ".915", ".575"),
    ("Web-A", "all web corpora", ".902", ".560"),
    ("Tool", "Tool", ".794", ".045"),
    ("Web-M", "all web corpora", "–", ".830"),
)
#: corpus, reviewer-hours a thousand runs at six minutes each
COSTS = (("Tool", "29.7"), ("Web-A", "58.5"), ("Web-M", "83.6"), ("Web-F", "75.8"))
