"""What the paper prints of its synthetic study."""

from __future__ import annotations

__all__ = ["PAPER", "PAPER_PROCEDURES"]

PAPER_PROCEDURES = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")

_TABLE = {
    (20, 0.1): ((0.00, 0.65), (0.00, 0.16), (0.00, 0.00), (0.00, 0.00), (0.00, 0.68)),
    (20, 0.5): ((0.00, 0.53), (0.00, 0.00), (0.00, 0.00), (0.00, 0.00), (0.01, 0.61)),
    (20, 0.8): ((0.00, 0.47), (0.00, 0.00), (0.00, 0.00), (0.00, 0.00), (0.01, 0.56)),
    (50, 0.1): ((0.00, 0.69), (0.00, 0.67), (0.00, 0.00), (0.00, 0.00), (0.00, 0.69)),
    (50, 0.5): ((0.00, 0.61), (0.00, 0.03), (0.00, 0.00), (0.00, 0.00), (0.00, 0.62)),
    (50, 0.8): ((0.00, 0.57), (0.00, 0.00), (0.00, 0.00), (0.00, 0.00), (0.00, 0.57)),
    (100, 0.1): ((0.00, 0.70), (0.00, 0.69), (0.00, 0.29), (0.00, 0.00), (0.00, 0.70)),
    (100, 0.5): ((0.00, 0.62), (0.00, 0.58), (0.03, 0.06), (0.00, 0.00), (0.00, 0.63)),
    (100, 0.8): ((0.00, 0.58), (0.00, 0.23), (0.00, 0.00), (0.00, 0.00), (0.00, 0.58)),
    (500, 0.1): ((0.00, 0.71), (0.00, 0.71), (0.00, 0.69), (0.00, 0.66), (0.00, 0.71)),
    (500, 0.5): ((0.00, 0.64), (0.00, 0.63), (0.00, 0.62), (0.00, 0.56), (0.00, 0.64)),
    (500, 0.8): ((0.00, 0.60), (0.00, 0.58), (0.00, 0.58), (0.00, 0.00), (0.00, 0.59)),
}
#: (design, tasks, ρ, procedure) → violation among certifying trials and mean coverage that the paper prints (α = .1, δ = .05, 300 trials);
#: of its adversarial designs it prints violations only, and neither tasks nor ρ of (ii) and (iii)
PAPER: dict[tuple[str, int, float, str], tuple[float, float | None]] = {
    **{
        ("paper", *place, procedure): pair
        for place, pairs in _TABLE.items()
        for procedure, pair in zip(PAPER_PROCEDURES, pairs, strict=True)
    },
    ("low_base_rate", 32, 0.8, "naive"): (0.003, None),
    ("low_base_rate", 32, 0.8, "taskboot"): (0.0, None),
    ("size_outcome", 50, 0.5, "naive"): (0.0, None),
    ("size_outcome", 50, 0.5, "taskboot"): (0.0, None),
    ("heavy_tails", 50, 0.5, "naive"): (0.0, None),
    ("heavy_tails", 50, 0.5, "taskboot"): (0.0, None),
}
