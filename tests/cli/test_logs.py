"""The log of a process of Leasehold, whatever a handler's module sets up."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.worlds.shell import LEASEHOLD, Shell

CATALOG = """
import logging, logging.config, sys
from datetime import timedelta
from pathlib import Path
from leasehold import PipelineEntry, Registry, StepDispatchEntry
SET_UP
LOG = logging.getLogger("loud.agent")

def say(ctx, given):
    IN_HANDLER
    LOG.debug("in detail")
    LOG.warning("asked %s", "the model")
    logging.getLogger("chatty.http").info("GET /")
    ctx.log.info("by the context")
    return given

STEPS = Registry("dispatch", [StepDispatchEntry(
    step_type="say", handler="loud:say", agent_timeout=timedelta(seconds=30),
    dispatch_deadline=timedelta(seconds=60))])
PIPELINES = Registry("pipelines", [PipelineEntry(name="loud", steps=("say",))])
"""
STDERR = "logging.basicConfig(force=True, level=logging.INFO, format='%(message)s')"
AS_DICT = """logging.config.dictConfig({"version": 1, "disable_existing_loggers": False,
    "handlers": {"h": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["h"], "level": "INFO"}})"""
TWO = "logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))"
LINE = re.compile(
    r"^\S+Z WARNING run=r-\w+ step=say attempt=1 loud\.agent: asked the model$", re.MULTILINE
)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, {"LEASEHOLD_CATALOG": "loud"})


def said(shell: Shell, *, set_up: str = "", in_handler: str = "", **settings: str) -> str:
    """Return what a run says on stderr."""
    source = CATALOG.replace("SET_UP", set_up).replace("IN_HANDLER", in_handler)
    (shell.folder / "loud.py").write_text(source)
    words = ("start", "loud", "--input", '"x"', "--in-process", "--json")
    return shell.process(*LEASEHOLD, *words, **settings).stderr


@pytest.mark.parametrize("isolation", ["inline", ""])
@pytest.mark.parametrize("set_up", [STDERR, AS_DICT, TWO])
def test_run_and_step_stay_when_a_module_sets_up_a_log_for_stderr(
    shell: Shell, isolation: str, set_up: str
) -> None:
    stderr = said(shell, set_up=set_up, LEASEHOLD_ISOLATION=isolation)

    assert len(LINE.findall(stderr)) == 1, stderr
    assert stderr.count("asked the model") == stderr.count("by the context") == 1


@pytest.mark.parametrize("isolation", ["inline", ""])
def test_run_and_step_stay_when_a_handler_sets_up_a_log_for_stderr(
    shell: Shell, isolation: str
) -> None:
    stderr = said(shell, in_handler=STDERR, LEASEHOLD_ISOLATION=isolation)

    assert len(LINE.findall(stderr)) == stderr.count("asked the model") == 1, stderr


@pytest.mark.parametrize("isolation", ["inline", ""])
def test_a_log_of_the_user_that_goes_elsewhere_stays_and_has_run_and_step(
    shell: Shell, isolation: str
) -> None:
    to_a_file = "logging.basicConfig(force=True, filename='own.log', level=logging.INFO, format="
    said(
        shell,
        set_up=f"{to_a_file}'%(run_id)s %(step)s %(attempt)s %(message)s')",
        LEASEHOLD_ISOLATION=isolation,
    )

    lines = (shell.folder / "own.log").read_text()
    assert re.search(r"^r-\w+ say 1 asked the model$", lines, re.MULTILINE)


def test_each_logger_may_have_its_own_level(shell: Shell) -> None:
    levels = "warning, loud=DEBUG,chatty=error"

    for isolation in ("inline", ""):
        stderr = said(shell, LEASEHOLD_LOG_LEVEL=levels, LEASEHOLD_ISOLATION=isolation)

        assert " DEBUG run=" in stderr
        assert "loud.agent: in detail" in stderr
        assert "GET /" not in stderr
        assert "by the context" not in stderr


@pytest.mark.parametrize("levels", ["loud", "loud=", "=INFO", "INFO,", "a b=INFO", "a=b=INFO"])
def test_levels_that_cannot_be_read_are_refused(shell: Shell, levels: str) -> None:
    stderr = said(shell, LEASEHOLD_LOG_LEVEL=levels)

    (line,) = stderr.splitlines()
    assert line.startswith(f"error: LEASEHOLD_LOG_LEVEL is {levels!r}; allowed: DEBUG, INFO, ")


@pytest.mark.parametrize("isolation", ["inline", ""])
def test_all_lines_are_json_where_that_is_the_form(shell: Shell, isolation: str) -> None:
    form = {"LEASEHOLD_LOG_FORMAT": "json", "LEASEHOLD_ISOLATION": isolation}
    stderr = said(shell, set_up=STDERR, **form)

    entries = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    (asked,) = [each for each in entries if each["message"] == "asked the model"]
    assert (asked["severity"], asked["logger"]) == ("WARNING", "loud.agent")
    assert (asked["step"], asked["attempt"]) == ("say", 1)


def test_all_lines_are_text_where_that_is_the_form(shell: Shell) -> None:
    stderr = said(shell, LEASEHOLD_LOG_FORMAT="text")

    assert LINE.search(stderr)


def test_a_form_that_there_is_none_of_is_refused(shell: Shell) -> None:
    stderr = said(shell, LEASEHOLD_LOG_FORMAT="xml")

    assert stderr == "error: LEASEHOLD_LOG_FORMAT is 'xml'; allowed: text, json, or nothing.\n"
