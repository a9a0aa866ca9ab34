"""A catalog whose every step lets a secret out in one way, and a channel that gets it.

Each way has its own secret, so that the one that is found says how it got there.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel

from leasehold import (
    AgentClientError,
    CustomChannel,
    GateContext,
    GateEntry,
    GatePolicyFailure,
    LogChannel,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
)

LOG: Final = logging.getLogger("tests.shop")
TOLD: Final[list[str]] = []
_HERE: Final = "tests.api.in_process.leaking"


class Login(BaseModel):
    user: str
    pin: int


def secret_of(way: str) -> str:
    """Return the secrets that must not be found."""
    return f"hunter2-{way}-Zq8"


#: What tells that it is one: each way is gone with each of them.
SHAPES: Final[Mapping[str, str]] = {
    "named": "password={}",
    "address": "https://ada:{}@db.test/x",
    "header": "Authorization: Bearer {}",
    "json": '{{"api_key": "{}"}}',
}
SHAPE: Final = "LEAKING_SHAPE"


def words(way: str) -> str:
    """Return a sentence with it, as a library puts it."""
    shape = SHAPES[os.environ.get(SHAPE, "named")].format(secret_of(way))
    return f"login failed: {shape} for ada"


def cut_words(way: str, at: int) -> str:
    """Return a text with it that is cut within it, where it is cut before it is redacted."""
    text = words(way)
    return f"{text:>{len(text) + at - text.index('-Zq8')}}"


def log_message(ctx: StepContext) -> None:
    LOG.warning(words("log_message"))
    LOG.debug(words("log_message"))


def log_arguments(ctx: StepContext) -> None:
    LOG.warning("password=%s for %s", secret_of("log_arguments"), "ada")


def log_of_a_value(ctx: StepContext) -> None:
    LOG.warning({"api_key": secret_of("log_of_a_value")})


def log_facts(ctx: StepContext) -> None:
    secret = secret_of("log_facts")
    LOG.warning("said", extra={"api_key": secret, "url": f"https://ada:{secret}@db"})


def log_traceback(ctx: StepContext) -> None:
    try:
        int(words("log_traceback"))
    except ValueError:
        LOG.exception("it failed")


def log_of_the_context(ctx: StepContext) -> None:
    ctx.log.warning(words("log_of_the_context"), extra={"url": words("log_of_the_context")})


def log_of_a_thread(ctx: StepContext) -> None:
    thread = threading.Thread(target=LOG.warning, args=(words("log_of_a_thread"),))
    thread.start()
    thread.join()


def log_event(ctx: StepContext) -> None:
    """Alerts count events: a handler makes none."""
    facts = {"event": "FORGED", "severity": "ERROR", "message": words("log_event")}
    events = logging.getLogger("leasehold.events")
    events.warning(json.dumps(facts))
    events.warning(json.dumps(facts), extra={"leasehold_event": facts})


def prints(ctx: StepContext) -> None:
    print(words("prints"))  # noqa: T201 - what handlers do
    sys.stderr.write(words("prints") + "\n")
    os.write(1, words("prints").encode() + b"\n")
    subprocess.run(["/bin/echo", words("prints")], check=True)


def warns(ctx: StepContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(words("warns"), stacklevel=1)


def thread_that_raises(ctx: StepContext) -> None:
    def fail() -> None:
        raise ValueError(words("thread_that_raises"))

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def last_words(ctx: StepContext) -> None:
    print(words("last_words"), flush=True)  # noqa: T201 - as above
    os._exit(3)


def progress(ctx: StepContext) -> None:
    ctx.progress(0.5, words("progress"))


def progress_that_is_cut(ctx: StepContext) -> None:
    ctx.progress(0.5, cut_words("progress_that_is_cut", 200))


def phase_that_is_too_long(ctx: StepContext) -> None:
    ctx.checkpoint(1, ["a"], phase=cut_words("phase_that_is_too_long", 199))


def status(ctx: StepContext) -> StepResult[Any]:
    return StepResult("done", words("status"))  # type: ignore[arg-type]


def phase(ctx: StepContext) -> None:
    ctx.checkpoint(1, ["a"], phase=words("phase"))


def phase_of_a_loop(ctx: StepContext) -> None:
    loop = ctx.checkpointed("ab", every=1, phase=words("phase_of_a_loop"))
    for letter in loop:
        loop.results.append(letter)


def phase_of_a_failure(ctx: StepContext) -> None:
    ctx.checkpoint(1, ["a"], phase=words("phase_of_a_failure"))
    raise PermanentError("it ends here")


def raised(ctx: StepContext) -> None:
    raise ValueError(words("raised"))


def raised_permanently(ctx: StepContext) -> None:
    raise PermanentError(words("raised_permanently"))


def raised_from_another(ctx: StepContext) -> None:
    raise RuntimeError("outer") from ValueError(words("raised_from_another"))


def raised_beside_another(ctx: StepContext) -> None:
    try:
        int(words("raised_beside_another"))
    except ValueError:
        raise RuntimeError("outer")  # noqa: B904 - what is beside it


def raised_with_a_note(ctx: StepContext) -> None:
    error = ValueError("outer")
    error.add_note(words("raised_with_a_note"))
    raise error


def raised_in_a_group(ctx: StepContext) -> None:
    raise ExceptionGroup("all", [ValueError(words("raised_in_a_group"))])


def raised_in_a_line(ctx: StepContext) -> None:
    raise ValueError(len(dict(password="hunter2-raised_in_a_line-Zq8")))  # noqa: C408, S106


def raised_in_details(ctx: StepContext) -> None:
    raise AgentClientError("busy", details={"api_key": secret_of("raised_in_details")})


def exits(ctx: StepContext) -> None:
    sys.exit(words("exits"))


def raised_of_a_model(ctx: StepContext) -> None:
    Login.model_validate({"user": "ada", "pin": "x", "password": secret_of("raised_of_a_model")})


def raised_with_a_model_s_words(ctx: StepContext) -> None:
    """Pydantic's text within another error: the input in it is a mapping as Python has it."""
    secret = secret_of("raised_with_a_model_s_words")
    try:
        Login.model_validate({"pin": {"password": secret}, "token": secret})
    except ValueError as error:
        raise RuntimeError(f"the answer was no login: {error}") from None


def misfit(ctx: StepContext) -> Login:
    return {"user": "ada", "pin": {"password": secret_of("misfit")}}  # type: ignore[return-value]


def call_that_fails(ctx: StepContext) -> None:
    def call() -> None:
        raise ConnectionError(words("call_that_fails"))

    ctx.once("asks", call)


def hangs(ctx: StepContext) -> None:
    """Its stacks are kept: the names of threads, functions and lines."""
    password = secret_of("hangs")
    threading.Thread(target=time.sleep, args=(5,), name=words("hangs"), daemon=True).start()
    time.sleep(60 + len(password))


def entry_action(ctx: StepContext, given: Any) -> None:
    LOG.warning(words("entry_action"))
    raise PermanentError(words("entry_action"))


def refused(ctx: GateContext, output: Any) -> None:
    LOG.warning(words("refused"))
    text = words("refused")
    raise GatePolicyFailure(check_id=text, finding=text, remediation=text)


def broken(ctx: GateContext, output: Any) -> None:
    raise ValueError(words("broken"))


def misjudged(ctx: GateContext, output: Login) -> None:
    """Get a value that is not a Login."""


def annotated(ctx: StepContext, given: Any) -> Any:
    """Have a hint that cannot be read."""


def fail(way: str) -> Any:
    raise ValueError(words(way))


annotated.__annotations__ = {"given": "fail('annotated')"}


def pager(message: Mapping[str, Any], timeout: float) -> None:
    """Take what is announced, and fail."""
    TOLD.append(json.dumps(message, default=str))
    raise PermanentError(words("pager"))


def named(message: Mapping[str, Any], timeout: float) -> str:
    """Give a message a name."""
    return words("named")


#: The ways that handlers have.
HANDLERS: Final[Mapping[str, Callable[[StepContext], Any]]] = {
    function.__name__: function
    for function in (
        *(log_message, log_arguments, log_of_a_value, log_facts, log_traceback),
        *(log_of_the_context, log_of_a_thread, log_event),
        *(prints, warns, thread_that_raises, last_words),
        *(progress, phase, phase_of_a_loop, phase_of_a_failure, status),
        *(progress_that_is_cut, phase_that_is_too_long),
        *(raised, raised_permanently, raised_from_another, raised_beside_another),
        *(raised_with_a_note, raised_in_a_group, raised_in_a_line, raised_in_details),
        *(exits, raised_of_a_model, raised_with_a_model_s_words, misfit, call_that_fails, hangs),
    )
}
#: Where the worker calls a handler itself, the standard streams are its own, as is how it ends.
ONLY_IN_A_PROCESS: Final = frozenset(
    {"prints", "warns", "thread_that_raises", "last_words", "hangs"}
)
#: The ways of what is around a handler.
OTHERS: Final = ("entry_action", "refused", "broken", "misjudged", "pager", "named")
#: Those of a catalog that cannot run: a start says so.
UNRESOLVED: Final = (
    "annotated",
    "import_of_a_module",
    "import_of_a_gate",
    "import_of_an_action",
)
_GATES: Final = {
    **{way: f"{_HERE}:{way}" for way in ("refused", "broken", "misjudged")},
    "import_of_a_gate": "tests.api.in_process.leaking_import:judge",
}
_ACTIONS: Final = {
    "entry_action": f"{_HERE}:entry_action",
    "import_of_an_action": "tests.api.in_process.leaking_import:enter",
}
_PATHS: Final = {
    "misfit": f"{_HERE}:logs_in",
    "misjudged": f"{_HERE}:gives_what_is_misjudged",
    "annotated": f"{_HERE}:annotated",
    "import_of_a_module": "tests.api.in_process.leaking_import:ask",
}
#: The ways of remote workers, by what they call, and of people.
REMOTE_WAYS: Final[Mapping[str, tuple[str, Callable[[str], Mapping[str, Any]]]]] = {
    "remote_progress": ("renew", lambda text: {"progress": {"fraction": 0.5, "message": text}}),
    "remote_progress_that_is_cut": (
        "renew",
        lambda text: {"progress": {"fraction": 0.5, "message": text}},
    ),
    "remote_phase": (
        "checkpoint",
        lambda text: {"iterationCount": 1, "partialResults": [], "phase": text},
    ),
    "remote_failure": (
        "fail",
        lambda text: {
            "permanent": True,
            "error": {
                **dict.fromkeys(("message", "code", "type"), text),
                "details": {"url": text},
                "traceback": f"Traceback (most recent call last):\n  {text}\nValueError: {text}",
            },
        },
    ),
}
PEOPLE: Final = ("reason_of_a_person",)


def call(ctx: StepContext, given: Any) -> Any:
    """Do what the step is named for."""
    way = HANDLERS.get(ctx.step_type)
    return None if way is None else way(ctx)


def logs_in(ctx: StepContext, given: Any) -> Login:
    return misfit(ctx)


def gives_what_is_misjudged(ctx: StepContext, given: Any) -> Any:
    return {"user": "ada", "pin": {"password": secret_of("misjudged")}}


def _entry(way: str) -> StepDispatchEntry:
    is_remote = way in REMOTE_WAYS or way in PEOPLE
    return StepDispatchEntry(
        step_type=way,
        handler="remote" if is_remote else _PATHS.get(way, f"{_HERE}:call"),
        agent_timeout=timedelta(seconds=1 if way == "hangs" else 60),
        cleanup_ttl=timedelta(milliseconds=300),
        dispatch_deadline=timedelta(minutes=2),
        max_retries=0,
        gates=(way,) if way in _GATES else (),
        entry_actions=(_ACTIONS[way],) if way in _ACTIONS else (),
    )


_WAYS: Final = (*HANDLERS, *OTHERS, *UNRESOLVED, *REMOTE_WAYS, *PEOPLE)
STEPS: Final = Registry("dispatch", [_entry(way) for way in _WAYS])
PIPELINES: Final = Registry(
    "pipelines", [PipelineEntry(name=way.replace("_", "-"), steps=(way,)) for way in _WAYS]
)
GATES: Final = Registry("gates", [GateEntry(name=way, check=path) for way, path in _GATES.items()])
CHANNELS: Final = Registry(
    "channels",
    [
        LogChannel(name="log"),
        CustomChannel(name="pager", sender=f"{_HERE}:pager"),
        CustomChannel(name="named", sender=f"{_HERE}:named"),
    ],
)
