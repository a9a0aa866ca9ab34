"""The gate registry: checks that an output must pass before it is handed off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leasehold.errors import InvalidEntryError
from leasehold.frozen import dataclass
from leasehold.registry.registry import FUNCTION_WORDS, Registry, UserFunction, path_of

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")
_CHECK: Final = re.compile(r"[\w.]+:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEntry:
    """A gate: a check that a step's output must pass.

    Args:
        name: what step entries name it by.
        check: the function, or its path `module:function`, which is resolved when an output is
            judged. The function takes `(ctx: GateContext, output: Model)` and raises
            GatePolicyFailure where it refuses. An entry keeps the path.

    Raises:
        InvalidEntryError: a field has a value that cannot be used.
    """

    name: str
    check: str

    if TYPE_CHECKING:

        def __init__(self, *, name: str, check: str | UserFunction) -> None: ...

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "check", path_of(self.check))
        except ValueError as error:
            self._refuse("check", str(error), f"{FUNCTION_WORDS}, or 'module:function'")
        for field, value, pattern, allowed in (
            ("name", self.name, _NAME, "a letter, then up to 62 of a-z A-Z 0-9 _ -"),
            ("check", self.check, _CHECK, "'module:function'"),
        ):
            if not isinstance(value, str) or pattern.fullmatch(value) is None:
                self._refuse(field, value, allowed)

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    def _refuse(self, field: str, value: object, allowed: str) -> None:
        raise InvalidEntryError(
            registry="gates", key=str(self.name), field=field, value=value, allowed=allowed
        )

    @property
    def step_type(self) -> str:
        """The name, as a runner reads it."""
        return f"gate {self.name}"

    @property
    def handler(self) -> str:
        """The path of the check, as a runner reads it."""
        return self.check


NO_GATES: Final[Registry[GateEntry]] = Registry("gates", [])
