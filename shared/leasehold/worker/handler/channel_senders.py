"""Functions of users that send announcements: how one is found, and what its errors come to."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from leasehold.errors import (
    AgentClientError,
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    PermanentError,
    SenderNotFoundError,
)
from leasehold.frozen import dataclass
from leasehold.registry.channels import ChannelEntry
from leasehold.worker.context.typed_json import code_of
from leasehold.worker.failures.failures import safe_text
from leasehold.worker.failures.kept_text import try_text
from leasehold.worker.failures.retry_hints import retry_after_of
from leasehold.worker.handler.handlers import UnresolvedError, sender_at

_MAX_WORDS_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class SenderFunction:
    """A function `(message, timeout)` of a user, sync or async."""

    channel: str
    function: Callable[[Mapping[str, Any], float], object]

    def __call__(self, message: Mapping[str, Any], timeout: float) -> object:
        """Call the function; a coroutine is run to its end.

        Raises:
            ChannelRefusedError: it raised PermanentError.
            ChannelUnavailableError: it raised AgentClientError: the provider did not take it.
            ChannelUnansweredError: it raised anything else.
        """
        try:
            given = self.function(message, timeout)
            is_async = inspect.iscoroutinefunction(code_of(self.function))
            return asyncio.run(given) if is_async else given  # type: ignore[arg-type] # checked
        except PermanentError as error:
            raise self._error(ChannelRefusedError, error) from None
        except AgentClientError as error:
            wait = retry_after_of(error)
            raise self._error(ChannelUnavailableError, error, retry_after_s=wait) from None
        except BaseException as error:  # noqa: BLE001 - it is unknown what it did before
            raise self._error(ChannelUnansweredError, error) from None

    def _error(
        self,
        kind: type[ChannelRefusedError | ChannelUnavailableError],
        error: BaseException,
        **further: Any,
    ) -> ChannelRefusedError | ChannelUnavailableError:
        words = safe_text(try_text(lambda: str(error)), _MAX_WORDS_CHARS)
        problem = f"{type(error).__name__}: {words}".rstrip(" :.")
        return kind(channel=self.channel, problem=problem, **further)


def sender_of(entry: ChannelEntry) -> SenderFunction:
    """Import the function of a channel.

    Raises:
        SenderNotFoundError: the path does not lead to a function that takes (message, timeout).
    """
    try:
        return SenderFunction(entry.name, sender_at(entry.function))
    except UnresolvedError as error:
        raise SenderNotFoundError(
            sender=entry.function, channel=entry.name, problem=str(error)
        ) from error.__cause__
