from __future__ import annotations

import pytest

from certify_assets.errors import InputError
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets_tests.recertification_builders import draw_tasks


def test_shares_are_drawn_as_declared() -> None:
    tasks = [f"task-{number}" for number in range(20_000)]
    # binomial standard error .0021
    assert abs(draw_tasks(SamplingPlan(0.1, 7), "one", tasks).mean() - 0.1) < 4 * 0.0021


def test_a_task_is_drawn_alike_wherever_it_comes() -> None:
    plan = SamplingPlan(0.3)
    tasks = [f"task-{number % 50}" for number in range(200)]
    drawn = draw_tasks(plan, "one", tasks)
    again = draw_tasks(plan, "one", tasks[::-1])[::-1]
    assert drawn.tolist() == again.tolist() and {True, False} == set(drawn.tolist())
    assert all(
        len({place for task, place in zip(tasks, drawn.tolist(), strict=True) if task == name}) == 1
        for name in tasks
    )
    assert draw_tasks(SamplingPlan(0.3, seed=43), "one", tasks).tolist() != drawn.tolist()
    assert draw_tasks(plan, "two", tasks).tolist() != drawn.tolist()


def test_a_higher_audit_rate_keeps_the_tasks_that_a_lower_one_drew() -> None:
    tasks = [f"task-{number}" for number in range(500)]
    few, many = (draw_tasks(SamplingPlan(rate), "one", tasks) for rate in (0.1, 0.3))
    assert (few & ~many).sum() == 0 and many.sum() > few.sum()


def test_rates_that_are_no_shares_are_refused() -> None:
    with pytest.raises(InputError, match=r"audit_rate is -0\.1"):
        SamplingPlan(-0.1)
