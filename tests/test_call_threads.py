from threading import Event, current_thread, main_thread

import pytest

from cranny.call_threads import CallThreads, NotNeededError
from cranny.process_pool import run_calls


def test_calls_run_at_the_same_time_and_results_keep_their_order() -> None:
    both = [Event(), Event()]

    def work(number: int) -> int:
        both[number].set()
        assert both[1 - number].wait(60)  # the other one is under way
        return number

    with CallThreads(2) as threads:
        assert run_calls(threads, work, [(0,), (1,)]) == [0, 1]


def test_one_thread_is_that_of_the_caller() -> None:
    with CallThreads(1) as threads:
        assert run_calls(threads, current_thread, [(), ()]) == [main_thread()] * 2


def test_an_error_is_raised_and_other_calls_stop() -> None:
    stopped = Event()

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("no")
        try:
            while True:
                threads.proceed()
        except NotNeededError:
            stopped.set()
            raise

    threads = CallThreads(2)
    with pytest.raises(ValueError, match="no"), threads:
        run_calls(threads, work, [(0,), (1,)])
    assert stopped.wait(60)
