"""A flag: what threads wait with is made once one waits."""

import threading

from leasehold.worker.flag import Flag


def test_it_is_set_once_and_for_all() -> None:
    flag = Flag()
    assert not flag.is_set()
    assert not flag.wait(0)

    flag.set()

    assert flag.is_set()
    assert flag.wait()


def test_all_that_wait_are_woken() -> None:
    flag, woken = Flag(), threading.Semaphore(0)

    def wait() -> None:
        assert flag.wait()
        woken.release()

    waiting = [threading.Thread(target=wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    assert not flag.wait(0.01)

    flag.set()

    for thread in waiting:
        assert woken.acquire(timeout=60)
        thread.join()
