from certify_assets.work import Advance, ProgressLines, reported


def test_a_stage_has_few_lines_far_apart_and_says_what_is_left() -> None:
    now, lines = [0.0], list[str]()
    show = ProgressLines(lines.append, lambda: now[0])
    for step in range(1, 1001):
        now[0] += 1.0
        show(Advance("sft", step, 1000, loss=1 / step))
    assert lines[0] == "sft: 1 of 1,000, loss 1.0000"
    assert lines[-1] == "sft: 1,000 of 1,000, loss 0.0010"
    assert len(lines) <= 27 and "sft: 520 of 1,000, loss 0.0019, 8 min left" in lines


def test_a_fast_stage_has_two_lines_and_each_stage_its_own() -> None:
    lines = list[str]()
    show = ProgressLines(lines.append, lambda: 0.0)
    for stage in ("scoring cal", "scoring test"):
        report = reported(show, stage)
        for done in range(1, 31):
            report(done, 30)
    assert lines == [
        "scoring cal: 1 of 30",
        "scoring cal: 30 of 30",
        "scoring test: 1 of 30",
        "scoring test: 30 of 30",
    ]


def test_what_an_earlier_run_did_takes_none_of_the_time_that_is_left() -> None:
    now, lines = [0.0], list[str]()
    show = ProgressLines(lines.append, lambda: now[0])
    for step in range(901, 951):
        show(Advance("grpo reject", step, 1000))
        now[0] += 2.0
    assert lines[1] == "grpo reject: 920 of 1,000, 3 min left"
