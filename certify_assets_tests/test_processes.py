"""Work in processes: every question is answered once, and no process outlives its parent."""

import sys
import threading
from collections.abc import Sequence

import pytest

from certify_assets.errors import CertifyError, InputError
from certify_assets.processes import in_processes
from certify_assets_tests.killing import left_by_a_kill


def square(number: int) -> int:
    if number < 0:
        raise InputError(f"{number} is below 0.")
    return number * number


def end_at_once(number: int) -> int:
    import os

    os._exit(number)


@pytest.mark.slow
def test_every_question_is_answered_once_and_an_error_is_the_functions_own() -> None:
    assert list(in_processes(square, range(11), workers=2)) == [place**2 for place in range(11)]
    assert list(in_processes(square, [], workers=2)) == []
    with pytest.raises(InputError, match=r"-3 is below 0\."):
        list(in_processes(square, [1, -3, 2], workers=2))
    with pytest.raises(CertifyError, match="ended before it answered"):
        list(in_processes(end_at_once, [1, 2], workers=2))


SLEEPERS = """
import time
from certify_assets.processes import in_processes
if __name__ == "__main__":
    list(in_processes(time.sleep, [600, 600, 600], workers=2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked for in /proc")
def test_no_worker_outlives_a_parent_that_was_killed() -> None:
    def at_work(children: Sequence[str]) -> bool:
        return sum("spawn_main" in words for words in children) == 2

    # killed while the workers begin, and while they work
    for settle in (0, 4):
        command = [sys.executable, "-c", SLEEPERS]
        assert left_by_a_kill(command, at_work, settle=settle) == []


def test_workers_outlive_the_thread_that_asked_first() -> None:
    answers = in_processes(abs, range(7), workers=2)
    first: list[int] = []
    asking = threading.Thread(target=lambda: first.append(next(answers)))
    asking.start()
    asking.join()
    assert [*first, *answers] == list(range(7))
