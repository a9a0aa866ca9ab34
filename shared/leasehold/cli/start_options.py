"""What `leasehold start` was asked for, and the command that would ask for it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from leasehold.cli.invocation import shown
from leasehold.services.start_run import StartRequest

_MAX_WORDS: Final = 2000


@dataclass(frozen=True, slots=True)
class Start:
    """A start as the command line asks for it.

    Args:
        request: the run.
        input_words: the words that gave its input.
        wait: wait until the run rests.
        in_process: run it in this process, and wait.
        as_json: answer with JSON, and show nothing on the way.
        url: a server that starts and runs it, in place of the store of the environment.
    """

    request: StartRequest
    input_words: str
    wait: bool = False
    in_process: bool = False
    as_json: bool = False
    url: str | None = None

    @property
    def command(self) -> str:
        """The command that runs this run in its own process, or continues it."""
        words = ["start", self.request.pipeline]
        if self.request.input != {}:
            words += ["--input", self._input_again]
        if self.request.idempotency_key is not None:
            words += ["--idempotency-key", self.request.idempotency_key]
        return shown(*words, "--in-process")

    @property
    def _input_again(self) -> str:
        """The input in words that mean the same next time; stdin is empty then."""
        text = json.dumps(self.request.input)
        is_file = self.input_words.startswith("@") and self.input_words != "@-"
        return self.input_words if is_file or len(text) > _MAX_WORDS else text
