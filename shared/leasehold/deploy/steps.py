"""What is done about each resource: it is looked at, and created where it is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from leasehold.bounded_calls import KeptThreads
from leasehold.deploy.resources.resource import (
    BusyError,
    Dependent,
    Look,
    LookedAtAgain,
    NotYetError,
    Resource,
    State,
    Updatable,
)
from leasehold.domain.retry import doubling
from leasehold.frozen import dataclass
from leasehold.google_clients.call_errors import exists_already, explain, may_pass

_T = TypeVar("_T")
_MAX_TRIES: Final = 5
#: No call takes longer, whatever trickles in; what is made by an operation has 180 s.
_MAX_CALL_S: Final = 240.0
#: A service that is silent for this time would delay each further call as well.
_MAX_SILENCE_S: Final = 10.0
#: Firestore builds an index in some minutes, and refuses others meanwhile. Who waits so long and
#: nothing gets through waits for something else.
_MAX_BUSY_S: Final = 900.0
_BUSY_PAUSES: Final = doubling(timedelta(seconds=2), timedelta(seconds=30))
_CALLS: Final = KeptThreads("call")


class Action(StrEnum):
    """The action on a resource."""

    NONE = "none"
    CREATED = "created"
    UPDATED = "updated"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Step:
    """One resource, and what became of it.

    Args:
        resource: which one.
        look: what was found; after a create, what is there then.
        action: what was done.
        problem: what went wrong, for `Action.FAILED`, in one line without a full stop.
        repair: a command to type about it, or about what was found; empty: there is none.
    """

    resource: Resource
    look: Look
    action: Action = Action.NONE
    problem: str = ""
    repair: str = ""

    @property
    def is_there(self) -> bool:
        """Whether what needs the resource may rely on it."""
        done = self.action in {Action.CREATED, Action.UPDATED}
        return done or self.look.state in {State.PRESENT, State.DIFFERENT}


class Patience:
    """Repeats calls for what may pass; what it has waited in vain, it does not wait again.

    Args:
        tries: of one call.
        first: seconds before the second try; each further wait is twice as long.
        total: seconds that are waited in vain in all, for answers and between tries; after that
            each call is tried once, and kinds of resources that say nothing are not asked again.
        sleep: waits so many seconds.
        now: seconds of a clock that never goes back.
        tell: called once with a line that names a busy service that is waited for.
    """

    def __init__(
        self,
        tries: int = _MAX_TRIES,
        first: float = 0.5,
        total: float = 60.0,
        sleep: Callable[[float], object] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        *,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._tries = tries
        self._first = first
        self._left = total
        self._sleep = sleep
        self._now = now
        self._tell = tell
        self._is_told = False
        self._busy = 0.0
        self._silent: set[str] = set()

    def until_free(self, what: Callable[[], _T], kind: str = "") -> _T:
        """Return what it returns; where it is busy, wait for as long as something gets through.

        Args:
            what: is called; it goes on where an earlier call was refused.
            kind: of the resource that it is about.

        Raises:
            NotYetError: no call got through for 15 minutes, of this step and of those before it.
        """
        pauses_s = _BUSY_PAUSES.waits_s()
        while True:
            try:
                done = self.call(what, kind)
            except BusyError as busy:
                if busy.progressed:
                    self._busy, pauses_s = 0.0, _BUSY_PAUSES.waits_s()
                if self._busy >= _MAX_BUSY_S:
                    raise NotYetError(f"{busy}: apply again in some minutes") from busy
                if not self._is_told:
                    self._tell(f"waiting for {busy}; what is refused meanwhile is tried again.")
                    self._is_told = True
                self._sleep(pause := next(pauses_s))
                self._busy += pause
            else:
                if self._busy < _MAX_BUSY_S:
                    self._busy = 0.0
                return done

    def call(self, what: Callable[[], _T], kind: str = "") -> _T:
        """Return what it returns; what the last try raises is passed on.

        Args:
            what: is called.
            kind: of the resource that it is about.

        Raises:
            TimeoutError: it was not called, as none of its kind had answered.
        """
        if kind in self._silent and self._left <= 0:
            raise TimeoutError("nor did the one before it of its kind, so it was not asked")
        lost = 0.0

        def once() -> _T:
            nonlocal lost
            began = self._now()
            try:
                return _bounded(what)
            finally:
                lost += self._now() - began

        def is_worth_it(error: BaseException) -> bool:
            return may_pass(error) and lost < self._left

        retrying = Retrying(
            stop=stop_after_attempt(self._tries),
            wait=wait_exponential(self._first, max=8.0) + wait_random(0, self._first),
            retry=retry_if_exception(is_worth_it),
            sleep=self._wait,
            reraise=True,
        )
        try:
            return retrying(once)
        except Exception as error:
            if may_pass(error):
                self._left -= lost
                if lost >= _MAX_SILENCE_S:
                    self._silent.add(kind)
            raise

    def _wait(self, seconds: float) -> None:
        self._left -= seconds
        self._sleep(seconds)


def _bounded(what: Callable[[], _T]) -> _T:
    """Return what it returns; a call that goes on forever is left behind."""
    call = _CALLS.start_call(what)
    return what() if call is None else call.result(_MAX_CALL_S)


def survey(
    resources: Iterable[Resource], project: str, patience: Patience | None = None
) -> Iterator[Step]:
    """Yield what is found of each resource; nothing is changed."""
    patience = patience or Patience()
    for resource in resources:
        yield _looked_at(resource, project, patience)


def apply(
    resources: Iterable[Resource],
    project: str,
    *,
    update: bool = False,
    patience: Patience | None = None,
) -> Iterator[Step]:
    """Create what is missing, in order, and yield what became of each resource.

    After a failure it goes on with what does not need what failed.

    Args:
        resources: what an installation has; what another one needs stands before it.
        project: where, for what errors say.
        update: change what differs, where that can be done.
        patience: repeats what may pass.
    """
    patience = patience or Patience()
    gone: dict[tuple[str, str], Step] = {}
    for resource in resources:
        step = _without_need(resource, gone) or _looked_at(resource, project, patience)
        if step.look.state is State.MISSING and step.action is Action.NONE:
            step = _created(step, project, patience)
        elif update and _differs(step.look) and isinstance(resource, Updatable):
            step = _updated(step, resource, project, patience)
        if not step.is_there:
            gone[resource.kind, resource.name] = step
        yield step


def _differs(look: Look) -> bool:
    return look.state is State.DIFFERENT and not look.by_hand


def _without_need(resource: Resource, gone: dict[tuple[str, str], Step]) -> Step | None:
    """Return the step of a resource that another one would have to be there for, or None."""
    if not gone or not isinstance(resource, Dependent):
        return None
    for need in resource.needs:
        if found := gone.get((need.kind, need.name)):
            is_known = found.look.state is not State.UNKNOWN
            why = "which is not there" if is_known else "which is not in order"
            why = f"{need.kind} {need.name}, {why}"
            return Step(resource, Look(State.WAITING, why=why))
    return None


def _looked_at(
    resource: Resource, project: str, patience: Patience, *, is_said_to_exist: bool = False
) -> Step:
    look_at = partial(_look_at_existing, resource) if is_said_to_exist else resource.look
    try:
        look = patience.call(look_at, resource.kind)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others are looked at
        told = explain(error, project)
        look = Look(State.UNKNOWN, why=told.problem, repair=told.repair)
    return Step(resource, look, repair=look.repair)


def _look_at_existing(resource: Resource) -> Look:
    """Return what is found; what was just created is not known everywhere at once.

    Raises:
        TimeoutError: it is not there yet.
    """
    look = resource.look()
    if look.state is State.MISSING:
        raise TimeoutError("it is said to exist, and is not there yet; apply again in a minute")
    return look


def _created(step: Step, project: str, patience: Patience) -> Step:
    tries = 0

    def create() -> None:
        nonlocal tries
        tries += 1
        step.resource.create()

    try:
        patience.until_free(create, step.resource.kind)
    except NotYetError as error:
        return replace(step, look=Look(State.WAITING, why=str(error)))
    except Exception as error:  # noqa: BLE001 - as above
        if exists_already(error):  # it is ours, if the answer to an earlier try was lost
            again = _looked_at(step.resource, project, patience, is_said_to_exist=True)
            if again.look.state is State.UNKNOWN:
                return replace(again, action=Action.FAILED, problem=again.look.why)
            is_ours = tries > 1 and again.is_there
            return replace(again, action=Action.CREATED) if is_ours else again
        return _failed(step, error, project)
    return _with_look(replace(step, action=Action.CREATED))


def _with_look(step: Step) -> Step:
    """Return what was created, with what there is to say of it now."""
    if not isinstance(step.resource, LookedAtAgain):
        return step
    try:
        look = step.resource.look_again()
    except Exception:  # noqa: BLE001 - it is created, and the next look at it says the same
        return step
    is_to_say = look.state in {State.DIFFERENT, State.WAITING}
    return replace(step, look=look, repair=look.repair) if is_to_say else step


def _updated(step: Step, resource: Updatable, project: str, patience: Patience) -> Step:
    try:
        patience.call(resource.update, resource.kind)
    except Exception as error:  # noqa: BLE001 - as above
        return _failed(step, error, project)
    return replace(step, action=Action.UPDATED)


def _failed(step: Step, error: BaseException, project: str) -> Step:
    told = explain(error, project)
    return replace(step, action=Action.FAILED, problem=told.problem, repair=told.repair)
