"""The settings of one trial of synthesis, as a file of the run: `task.toml`.

An entry action writes it, and the step reads it. It follows from the run alone, so each attempt of
a trial writes the same text, whatever is there: nothing, half of it, that of an earlier trial, or a
file of another origin. So what is changed in it by hand is gone with the next attempt.
"""

import tomllib
from typing import Any, Final

import tomli_w
from pydantic import Field, ValidationError

from leasehold import StepContext
from leasehold.errors import ArtifactNotFoundError
from pipelines.review.models import Extraction, Finding, Record

FILE: Final = "task.toml"
ADDRESSED: Final = 50  # findings of the trial before; of more, the agent would lose sight

_HEAD: Final = "# Written anew whenever the step synthesis begins.\n"


class Address(Record):
    """A grave finding of the trial before, which the next digest is to address."""

    code: str
    message: str
    point: str = ""


class TaskConfig(Record):
    """What one trial is to do: so many key points of these documents, and what to do better."""

    run: str
    trial: int
    points: int = Field(ge=1)
    documents: tuple[str, ...]
    address: tuple[Address, ...] = ()

    @property
    def avoid(self) -> tuple[str, ...]:
        """The points that are not to be made again."""
        return tuple(each.point for each in self.address if each.point)


def rewrite(ctx: StepContext, given: Extraction) -> None:
    """Write the settings of this trial, whatever is there."""
    text = tomli_w.dumps(config_of(ctx, given).model_dump(mode="json"), multiline_strings=False)
    ctx.artifacts.put(FILE, f"{_HEAD}{_visible(text)}".encode())


def config_of(ctx: StepContext, given: Extraction) -> TaskConfig:
    """Return the settings of this trial."""
    return TaskConfig(
        run=ctx.run_id,
        trial=ctx.trial,
        points=given.points,
        documents=tuple(document.path for document in given.documents if document.claims),
        address=tuple(_address(each) for each in _grave(ctx.findings))[:ADDRESSED],
    )


def read(ctx: StepContext) -> TaskConfig:
    """Return the settings that the entry action wrote.

    Raises:
        ValueError: they are not there, or not those of this trial; another attempt writes them.
    """
    try:
        config = TaskConfig.model_validate(tomllib.loads(ctx.artifacts.get(FILE).decode()))
    except (ArtifactNotFoundError, ValidationError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise ValueError(f"{FILE} cannot be used ({problem}); it is written anew.") from None
    if (config.run, config.trial) != (ctx.run_id, ctx.trial):
        found = f"of trial {config.trial} of run {config.run}"
        raise ValueError(f"{FILE} is {found}; it is written anew.")
    return config


def _grave(findings: list[Any]) -> list[Finding]:
    every = [Finding.model_validate(each) for each in findings]
    return [each for each in every if each.severity == "high"]


def _address(each: Finding) -> Address:
    return Address(code=each.code, message=each.message, point=each.point or "")


def _visible(toml: str) -> str:
    """Return the text with all that is invisible as TOML writes it; it stands in strings alone."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08X}" for c in toml)
