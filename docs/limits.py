"""The generated parts of limits.md: the limits that users meet, a table for each story.

A row names the constant, or the setting, that holds its limit, so each figure is that of the code.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from docs.markdown import table
from leasehold.registry.settings import SETTINGS


class Limit(NamedTuple):
    """A row of a table.

    Args:
        what: what is limited.
        holder: `FILE NAME` of the constant that holds the limit, or the name of a setting.
        beyond: what happens beyond it: the code of an error, or what is cut.
        unit: of a number: `bytes`, `s`, or what is counted; of a timedelta it is known.
        least: `FILE NAME` of the constant that holds the lower bound; empty: there is none.
    """

    what: str
    holder: str
    beyond: str
    unit: str = ""
    least: str = ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The row as the page has it."""
        if " " not in self.holder:
            return self.what, _default_of(self.holder), self.beyond, _link_of(self.holder)
        figure = _figure(_constant(self.holder), self.unit)
        if self.least:
            figure = f"{_figure(_constant(self.least), self.unit)} to {figure}"
        file, name = self.holder.split()
        return self.what, figure, self.beyond, f"`{name}` in `{file}`"


def of(story: str) -> str:
    """Return the limits of a story."""
    heads = ["what is limited", "limit", "beyond it", "held by"]
    return table(heads, [limit.cells for limit in STORIES[story]])


def _constant(holder: str) -> Any:
    file, name = holder.split()
    module = importlib.import_module(f"leasehold.{file.removesuffix('.py').replace('/', '.')}")
    return functools.reduce(getattr, name.split("."), module)


def _default_of(setting: str) -> str:
    entry = SETTINGS[setting]
    for end, unit in (("_MS", "ms"), ("_S", "s")):
        if setting.endswith(end) and entry.default:
            return f"{_figure(float(entry.default), unit)} by default"
    return f"{entry.default} by default" if entry.default else "none by default"


def _link_of(setting: str) -> str:
    return f"[`{setting}`](settings.md)"


_SIZES: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SPANS: Final = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def _figure(value: Any, unit: str) -> str:
    if isinstance(value, timedelta):
        return _span(value.total_seconds())
    if unit in ("s", "ms"):
        return _span(value if unit == "s" else value / 1000)
    if unit == "bytes":
        return _size(value)
    return f"{value:,.0f} {unit}".strip()


def _span(seconds: float) -> str:
    for size, name in _SPANS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:,.0f} {name}{'' if seconds == size else 's'}"
    return f"{seconds:g} seconds"


def _size(count: int) -> str:
    for size, name in _SIZES:
        if count >= size and count % size == 0:
            return f"{count // size} {name}"
    return f"{count / 2**20:.1f} MiB" if count > 2**20 else f"{count:,} bytes"


STORIES: Final[Mapping[str, tuple[Limit, ...]]] = {
    "start": (
        Limit(
            "the input of a run, as JSON",
            "domain/json_text.py MAX_INPUT_BYTES",
            "`too_large`",
            "bytes",
        ),
        Limit(
            "how deep an input is nested",
            "domain/json_text.py MAX_JSON_LEVELS",
            "`invalid_input`; `invalid_request` where the body cannot be read either",
            "levels",
        ),
        Limit(
            "files that a run is started with",
            "services/request_bounds.py MAX_INPUT_FILES",
            "`invalid_request`",
            "files",
        ),
        Limit(
            "all of these files together",
            "services/request_bounds.py MAX_FILE_BYTES",
            "`too_large`",
            "bytes",
        ),
        Limit(
            "an idempotency key",
            "services/request_bounds.py MAX_IDEMPOTENCY_KEY_CHARS",
            "`invalid_request`",
            "characters",
        ),
        Limit(
            "labels of a run",
            "services/request_bounds.py MAX_LABELS",
            "`invalid_request`",
            "labels",
        ),
        Limit(
            "the key of a label, and its value",
            "services/request_bounds.py MAX_LABEL_CHARS",
            "`invalid_request`",
            "characters each",
        ),
        Limit(
            "`maxRetries` of a run",
            "services/request_bounds.py MAX_RETRIES",
            "`invalid_request`",
            "retries",
        ),
        Limit(
            "who asks, as `--actor` says",
            "services/request_bounds.py MAX_ACTOR_CHARS",
            "`invalid_request`",
            "characters",
        ),
        Limit(
            "a file that a command reads, as of `--input @FILE`",
            "cli/options.py _MAX_FILE_BYTES",
            "the command reads no further, and ends with exit code 2",
            "bytes",
        ),
    ),
    "steps": (
        Limit(
            "`dispatch_deadline`, where no queue waits for the attempt",
            "domain/deadlines.py MAX_DEADLINE",
            "`invalid_entry`",
            least="domain/deadlines.py MIN_DEADLINE",
        ),
        Limit(
            "`dispatch_deadline`, where Cloud Tasks calls the step",
            "domain/deadlines.py PLATFORM_DEADLINE",
            "`platform_limit`",
            least="domain/deadlines.py MIN_DEADLINE",
        ),
        Limit(
            "`memory_limit`",
            "registry/dispatch.py MAX_MEMORY_LIMIT_BYTES",
            "`invalid_entry`",
            "bytes",
            least="registry/dispatch.py MIN_MEMORY_LIMIT_BYTES",
        ),
        Limit(
            "`first` and `max` of a `RetryPolicy`",
            "registry/dispatch.py _MAX_RETRY_WAIT",
            "`invalid_entry`",
        ),
        Limit(
            "`factor` of a `RetryPolicy`",
            "registry/dispatch.py _MAX_RETRY_FACTOR",
            "`invalid_entry`",
        ),
        Limit(
            "`non_retryable` of a `RetryPolicy`",
            "registry/dispatch.py _MAX_ERROR_NAMES",
            "`invalid_entry`",
            "names",
        ),
        Limit(
            "the wait that an error asks for",
            "domain/retry.py MAX_RETRY_AFTER",
            "the next attempt does not wait longer",
        ),
        Limit(
            "the shortest `silence_limit`",
            "registry/dispatch.py _MIN_SILENCE",
            "`invalid_entry` below it",
        ),
        Limit(
            "retries without progress in between",
            "PIPELINE_MAX_RETRIES",
            "the run is given up as `RETRIES_EXHAUSTED`",
        ),
        Limit(
            "failures of a step in all",
            "PIPELINE_MAX_FAILURES",
            "the run is given up as `RETRIES_EXHAUSTED`",
        ),
        Limit(
            "interruptions without progress in between",
            "PIPELINE_MAX_INTERRUPTIONS",
            "the run is given up as `STUCK_IN_PROGRESS`",
        ),
        Limit(
            "silence of a step",
            "PIPELINE_STUCK_TIMEOUT_MS",
            "the second silence without progress gives the run up as `STUCK_IN_PROGRESS`",
        ),
        Limit(
            "the import of a handler's module",
            "PIPELINE_IMPORT_TIMEOUT_S",
            "the run is blocked as `handler_unavailable`",
        ),
        Limit("a limit by override", "domain/override.py MAX_LIMIT_S", "`invalid_request`", "s"),
        Limit(
            "overrides at once",
            "domain/override.py MAX_OVERRIDES_READ",
            "those with the first ids count",
            "overrides",
        ),
    ),
    "outputs": (
        Limit(
            "an output, as JSON",
            "domain/json_text.py MAX_OUTPUT_BYTES",
            "the run is blocked as `handler_mistake`, with `too_large`",
            "bytes",
        ),
        Limit(
            "how deep an output is nested",
            "domain/json_text.py MAX_JSON_LEVELS",
            "the run is blocked as `handler_mistake`, with `invalid_output`",
            "levels",
        ),
        Limit(
            "a value that stays in the manifest",
            "domain/manifest.py MAX_INLINE_BYTES",
            "it is stored as an artifact",
            "bytes",
        ),
        Limit(
            "all such values of a manifest together",
            "domain/manifest.py MAX_TEXTS_BYTES",
            "the next one is stored as an artifact",
            "bytes",
        ),
        Limit(
            "a file of `ctx.artifacts`, of a handler in its own process",
            "worker/sandbox/wire/messages.py MAX_FILE_BYTES",
            "the run is blocked as `handler_mistake`, with `too_large`",
            "bytes",
        ),
        Limit(
            "a file's name, with the folder of its run",
            "domain/artifact_name.py _MAX_NAME_BYTES",
            "the run is blocked as `handler_mistake`, with `artifact_name`",
            "bytes of UTF-8",
        ),
        Limit(
            "a part of that name between two `/`",
            "domain/artifact_name.py _MAX_PART_BYTES",
            "the run is blocked as `handler_mistake`, with `artifact_name`",
            "bytes of UTF-8",
        ),
        Limit(
            "a file that `leasehold files` shows on a terminal",
            "cli/results.py _MAX_TERMINAL_BYTES",
            "the command says how to write it to a file",
            "bytes",
        ),
    ),
    "checkpoints": (
        Limit(
            "partial results of a checkpoint, as JSON",
            "domain/json_text.py MAX_OUTPUT_BYTES",
            "the run is blocked as `handler_mistake`, with `too_large`",
            "bytes",
        ),
        Limit(
            "how deep they are nested",
            "domain/json_text.py MAX_JSON_LEVELS",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "levels",
        ),
        Limit(
            "the phase of a checkpoint",
            "domain/kept_checkpoint.py MAX_PHASE_CHARS",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "characters",
        ),
        Limit(
            "phases of a step that count as progress",
            "domain/kept_checkpoint.py MAX_PHASES_COUNTED",
            "further ones are kept, and are no progress",
            "phases",
        ),
        Limit(
            "checkpoints of a step that are rejected",
            "domain/kept_checkpoint.py MAX_REJECTED_CHECKPOINTS",
            "those that it keeps then are no progress",
            "checkpoints",
        ),
        Limit(
            "continuations in a row without a new iteration",
            "domain/lifecycle/settle.py MAX_IDLE_CONTINUATIONS",
            "with this one the attempt has failed, as `no_progress`",
        ),
        Limit(
            "the key of a call of `ctx.once`",
            "domain/recorded_calls.py MAX_CALL_KEY_CHARS",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "characters",
        ),
        Limit(
            "the result of such a call, as JSON",
            "domain/json_text.py MAX_OUTPUT_BYTES",
            "the run is blocked as `handler_mistake`, with `too_large`",
            "bytes",
        ),
        Limit(
            "results that a step keeps",
            "domain/recorded_calls.py MAX_RESULTS_PER_STEP",
            "the call is not made: `too_many_calls`, which no attempt repeats",
            "results",
        ),
        Limit(
            "attempts that pay for a call again, as its request varies",
            "domain/recorded_calls.py MAX_PAID_AGAIN",
            "the run is blocked as `handler_mistake`, with `call_varies`",
            "attempts",
        ),
        Limit(
            "the arguments that are kept of an announced call",
            "domain/recorded_calls.py MAX_ARGUMENTS_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "`at_once` of `ctx.map`",
            "worker/context/mapped.py MAX_CALLS_AT_ONCE",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "calls",
        ),
        Limit(
            "`tries` of its `retry`",
            "worker/context/mapped.py MAX_TRIES",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "tries",
        ),
        Limit(
            "tokens that one `ctx.spend` says",
            "domain/spend.py MAX_TOKENS",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "tokens",
        ),
        Limit(
            "dollars that one `ctx.spend` says",
            "domain/spend.py MAX_USD",
            "the run is blocked as `handler_mistake`, with `invalid_request`",
            "dollars",
        ),
    ),
    "progress": (
        Limit(
            "the message of `ctx.progress`",
            "domain/notes.py _MAX_PROGRESS_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "how often progress is stored",
            "attempt/attempt.py PROGRESS_EVERY_S",
            "what comes sooner waits for the next write",
            "s",
        ),
        Limit(
            "a note for the handler",
            "services/request_bounds.py MAX_NOTE_BYTES",
            "`invalid_request`",
            "bytes",
        ),
        Limit(
            "the reason for an operation, a pause or an override",
            "services/request_bounds.py MAX_REASON_CHARS",
            "`invalid_request`",
            "characters",
        ),
        Limit(
            "the message of an error",
            "worker/failures/kept_text.py MAX_TEXT_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "its traceback",
            "worker/failures/tracebacks.py MAX_TRACEBACK_BYTES",
            "frames of libraries are left out first",
            "bytes",
        ),
        Limit(
            "its causes and contexts",
            "worker/failures/error_chain.py MAX_CHAIN_ERRORS",
            "further ones are counted",
            "errors",
        ),
        Limit(
            "its members, of an exception group",
            "worker/failures/error_chain.py MAX_GROUP_MEMBERS",
            "further ones are counted",
            "errors",
        ),
        Limit(
            "issues of a value that does not fit its model",
            "worker/failures/failures.py MAX_ISSUES",
            "further ones are counted",
            "issues",
        ),
        Limit(
            "the detail of an event, such as why an attempt ended",
            "domain/trace.py MAX_DETAIL_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "the stacks of an attempt that was ended",
            "domain/lifecycle/termination.py MAX_STACKS_BYTES",
            "the rest is cut",
            "bytes",
        ),
        Limit(
            "the stacks of an attempt that goes on, as `leasehold stack` shows them",
            "worker/sandbox/stacks.py MAX_LIVE_STACKS_BYTES",
            "the rest is cut",
            "bytes",
        ),
        Limit(
            "what a gate finds, and what is to be done",
            "worker/handler/gates.py _MAX_FINDING_CHARS",
            "the rest is cut",
            "characters each",
        ),
        Limit(
            "`check_id` of a gate",
            "worker/handler/gates.py _MAX_CHECK_ID_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "earlier attempts of a step in the manifest",
            "domain/manifest_parts.py MAX_EARLIER_ATTEMPTS",
            "the latest stay; the trace has all",
            "attempts",
        ),
        Limit(
            "operations that a run remembers",
            "domain/lifecycle/request.py MAX_OPERATIONS_KEPT",
            "the latest stay; the trace has all",
            "operations",
        ),
        Limit(
            "the text of a log line of a handler",
            "worker/sandbox/child/handler_process.py _MAX_LOG_LINE_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "a line that a handler prints",
            "worker/sandbox/output_lines.py MAX_LINE_BYTES",
            "the rest is cut",
            "bytes",
        ),
        Limit(
            "lines that an attempt prints",
            "worker/sandbox/output_lines.py MAX_PRINTED_LINES",
            "the rest is dropped, and counted in the log",
            "lines",
        ),
        Limit(
            "all that an attempt prints",
            "worker/sandbox/output_lines.py MAX_PRINTED_BYTES",
            "the rest is dropped, and counted in the log",
            "bytes",
        ),
    ),
    "lists": (
        Limit(
            "items of a list",
            "domain/children.py MAX_ITEMS",
            "the run is blocked as `input_mismatch`",
            "items",
        ),
        Limit(
            "all results of a list, or of a `Parallel`, together",
            "domain/json_text.py MAX_OUTPUT_BYTES",
            "the run is blocked as `input_mismatch`",
            "bytes",
        ),
        Limit("`at_once` of an `Each`", "domain/children.py MAX_LANES", "`invalid_entry`", "items"),
        Limit(
            "`batch` of an `Each`", "registry/plan.py MAX_BATCH_ITEMS", "`invalid_entry`", "items"
        ),
        Limit(
            "step types of a `Parallel`",
            "domain/children.py MAX_LANES",
            "`invalid_entry`",
            "step types",
        ),
    ),
    "signals": (
        Limit(
            "the value of a signal, as JSON",
            "domain/json_text.py MAX_INPUT_BYTES",
            "`too_large`",
            "bytes",
        ),
        Limit(
            "the name of a signal, and its id",
            "domain/signal.py MAX_SIGNAL_NAME_CHARS",
            "`invalid_request`",
            "characters each",
        ),
        Limit(
            "signals that a run keeps and nothing has waited for",
            "domain/signal.py MAX_SIGNALS",
            "`signal_not_awaited`; the one that the run waits for always counts",
            "signals",
        ),
        Limit(
            "`timeout` of a wait",
            "domain/signal.py MAX_SIGNAL_WAIT",
            "`invalid_entry`; of `ctx.wait_for`: the run is blocked as `handler_mistake`",
            least="domain/signal.py MIN_SIGNAL_WAIT",
        ),
        Limit(
            "why a handler does not take the value of a signal",
            "domain/signal.py MAX_REFUSAL_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "the form of a signed link",
            "domain/signal_link.py MAX_LINK_FORM_BYTES",
            "`too_large`",
            "bytes",
        ),
    ),
    "schedules": (
        Limit("`catch_up` of a schedule", "registry/schedules.py _MAX_CATCH_UP", "`invalid_entry`"),
        Limit(
            "runs of one back-fill",
            "services/schedules.py MAX_BACKFILL_RUNS",
            "`invalid_request`",
            "runs",
        ),
        Limit(
            "times of one schedule that a sweep attends to",
            "services/schedules.py _MAX_TIMES_PER_SWEEP",
            "the next sweep goes on",
            "times",
        ),
        Limit(
            "times that a schedule records",
            "domain/schedule.py MAX_TIMES_KEPT",
            "the latest stay",
            "times",
        ),
    ),
    "trials": (
        Limit("`max_trials`", "registry/pipelines.py _MAX_TRIALS", "`invalid_entry`", "trials"),
        Limit(
            "`max_trials`, times the steps that a trial repeats",
            "registry/pipelines.py _MAX_STEPS_OF_TRIALS",
            "`invalid_entry`",
        ),
    ),
    "announcements": (
        Limit(
            "the sentence of a message",
            "domain/delivery.py MAX_SUMMARY_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "your own summary of a result",
            "domain/delivery.py MAX_OUTPUT_SUMMARY_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "the function that makes it",
            "worker/handler/gates.py SUMMARY_TIMEOUT_S",
            "the message goes out without it",
            "s",
        ),
        Limit(
            "the reason of a message",
            "domain/delivery.py MAX_DELIVERY_REASON_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "its detail",
            "domain/delivery.py MAX_DELIVERY_DETAIL_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "recipients of an `EmailChannel`",
            "registry/channels.py _MAX_RECIPIENTS",
            "`invalid_entry`",
            "addresses",
        ),
        Limit(
            "the address of a webhook",
            "adapters/channels/http_post.py _MAX_URL_CHARS",
            "the message is not sent: `channel_refused`",
            "characters",
        ),
        Limit(
            "the key that signs a webhook",
            "adapters/channels/webhook.py _MAX_KEY_BYTES",
            "the message is not sent: `channel_unavailable`",
            "bytes",
            least="adapters/channels/webhook.py _MIN_KEY_BYTES",
        ),
        Limit(
            "a file that has the secret of a channel",
            "adapters/channels/variables.py _MAX_SECRET_BYTES",
            "the message is not sent: `channel_unavailable`",
            "bytes",
        ),
        Limit(
            "the wait that a provider's answer asks for",
            "adapters/channels/http_post.py MAX_RETRY_AFTER_S",
            "the next send does not wait longer",
            "s",
        ),
        Limit(
            "a provider's words in `lastError`",
            "worker/bounded_sends.py MAX_ERROR_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit(
            "what a channel of your own calls a message",
            "domain/delivery.py MAX_MESSAGE_ID_CHARS",
            "the rest is cut",
            "characters",
        ),
        Limit("one send", "PIPELINE_DELIVERY_TIMEOUT_S", "it is tried again"),
        Limit(
            "all tries", "PIPELINE_DELIVERY_GIVE_UP_S", "the message is given up, with the reason"
        ),
        Limit(
            "failed sends in a row",
            "PIPELINE_CHANNEL_FAILURES",
            "nothing is sent to the channel for `PIPELINE_CHANNEL_REST_S`",
        ),
    ),
    "at-once": (
        Limit(
            "`at_once` of a `Limit`",
            "domain/limit.py MAX_ATTEMPTS_AT_ONCE",
            "`invalid_entry`",
            "attempts",
        ),
        Limit(
            "`per_minute` of a `Limit`",
            "domain/limit.py MAX_ATTEMPTS_PER_MINUTE",
            "`invalid_entry`",
            "attempts",
        ),
        Limit(
            "a key, for a run",
            "domain/limit.py _MAX_KEY_CHARS",
            "the run is blocked as `limit_unusable`",
            "characters",
        ),
        Limit(
            "how long a provider may keep a limit low",
            "domain/lowered_limit.py MAX_LOWERED_WINDOW",
            "the limit begins to grow",
        ),
    ),
    "remote": (
        Limit(
            "a file that one call carries",
            "services/request_bounds.py MAX_FILE_BYTES",
            "`file_too_large`",
            "bytes",
        ),
        Limit(
            "an output, or partial results",
            "domain/json_text.py MAX_OUTPUT_BYTES",
            "`too_large`",
            "bytes",
        ),
        Limit(
            "`holder`, and each other name",
            "services/request_bounds.py MAX_NAME_CHARS",
            "`invalid_request`",
            "characters",
        ),
        Limit(
            "a page of recorded calls",
            "remote_workers/manage_lease.py _MAX_PAGE_BYTES",
            "the rest is on the next page; a larger result has a page to itself",
            "bytes",
        ),
        Limit(
            "a lease that is not renewed", "PIPELINE_LEASE_TTL_S", "the lease is over: `lease_lost`"
        ),
    ),
    "http": (
        Limit("the body of a request", "api/call_row.py MAX_BODY_BYTES", "`too_large`", "bytes"),
        Limit(
            "the body of `POST /runs`, with files",
            "api/calls.py MAX_START_BODY_BYTES",
            "`too_large`",
            "bytes",
        ),
        Limit(
            "runs of a page, files or deliveries",
            "services/request_bounds.py MAX_PAGE_ITEMS",
            "`invalid_request`",
            "entries",
        ),
        Limit(
            "a page where `limit` is not given",
            "services/request_bounds.py DEFAULT_PAGE_ITEMS",
            "the rest is on the next page",
            "entries",
        ),
        Limit(
            "runs that one page looks at for what no index finds",
            "services/read_runs.py MAX_RUNS_SEARCHED",
            "the page ends, perhaps empty, and names the next one",
            "runs",
        ),
        Limit(
            "runs that a batch changes",
            "services/request_bounds.py MAX_PAGE_ITEMS",
            "`invalid_request`",
            "runs",
        ),
        Limit(
            "runs that a batch may be refused by",
            "services/batch.py MAX_REFUSED_RUNS",
            "the batch ends",
            "runs",
        ),
        Limit(
            "a count of `GET /counts`",
            "services/count_runs.py MAX_COUNTED",
            "no more are counted; a page shows `1,000+`",
            "runs",
        ),
        Limit(
            "a text that a sentence of an error repeats",
            "web/entry.py _MAX_MESSAGE_CHARS",
            "the rest is cut",
            "characters, with the sentence",
        ),
        Limit(
            "connections of `leasehold serve`",
            "server/http_server.py _MAX_CONNECTIONS",
            "the longest silent one of the caller that has most is closed",
            "connections",
        ),
        Limit(
            "a new connection that sends nothing",
            "server/http_server.py FIRST_BYTE_TIMEOUT_S",
            "it is closed",
            "s",
        ),
        Limit(
            "a request until it is whole",
            "server/http_server.py REQUEST_TIMEOUT_S",
            "it is broken off",
            "s",
        ),
        Limit(
            "silence between two requests",
            "server/http_server.py IDLE_TIMEOUT_S",
            "the connection is closed",
            "s",
        ),
        Limit(
            "an answer that the caller does not read",
            "server/http_server.py ANSWER_TIMEOUT_S",
            "it is broken off",
            "s",
        ),
        Limit(
            "what is taken of an answer within a minute",
            "server/http_server.py MIN_ANSWER_BYTES_PER_MINUTE",
            "it is broken off where less is taken",
            "bytes",
        ),
        Limit(
            "incomplete bodies, and answers that are not taken, all together",
            "server/http_server.py MAX_KEPT_BYTES",
            "connections are closed likewise",
            "bytes",
        ),
        Limit(
            "an answer that `Client` waits for",
            "client/http_calls.py ANSWER_TIMEOUT_S",
            "`server_unreachable`",
            "s",
        ),
        Limit(
            "a JSON answer that `Client` reads",
            "client/http_calls.py _MAX_ANSWER_BYTES",
            "`server_refused`",
            "bytes",
        ),
    ),
    "dashboard": (
        Limit(
            "a session of a browser", "web/sign_in.py _SESSION_S", "the browser signs in again", "s"
        ),
        Limit(
            "wrong tokens from one address at once",
            "web/sign_in.py _Guesses.MAX_GUESSES",
            "`too_many_attempts`, until the address may try again",
            "tokens",
        ),
        Limit(
            "wrong tokens from one address, each second",
            "web/sign_in.py _Guesses.GUESSES_PER_S",
            "`too_many_attempts`, until the address may try again",
            "tokens",
        ),
        Limit("the form that signs in", "web/sign_in.py _MAX_FORM_BYTES", "`too_large`", "bytes"),
        Limit(
            "an ID token", "web/id_tokens.py _MAX_TOKEN_CHARS", "`unauthenticated`", "characters"
        ),
        Limit(
            "a value on a page",
            "dashboard/rendering.py MAX_VALUE_SHOWN_CHARS",
            "the whole is behind a link",
            "characters",
        ),
        Limit(
            "events on the page of a run",
            "dashboard/pages.py _MAX_EVENTS_SHOWN",
            "the latest stay; `leasehold trace` has all",
            "events",
        ),
        Limit(
            "files on the page of a run",
            "dashboard/pages.py _MAX_FILES_SHOWN",
            "the first stay; `leasehold files` has all",
            "files",
        ),
        Limit(
            "hours of an override that a page sets",
            "dashboard/forms.py _MAX_OVERRIDE_HOURS",
            "`invalid_request`",
            "hours",
        ),
    ),
    "dev": (
        Limit(
            "a task",
            "devserver/cloud_tasks/routes.py _MAX_TASK_BYTES",
            "it is refused, as by Cloud Tasks",
            "bytes",
        ),
        Limit(
            "how far ahead a task is scheduled",
            "devserver/cloud_tasks/routes.py _MAX_SCHEDULE_AHEAD",
            "it is refused, as by Cloud Tasks",
        ),
        Limit(
            "the deadline of a task",
            "devserver/cloud_tasks/routes.py _MAX_TASK_DEADLINE",
            "it is refused, as by Cloud Tasks",
            least="devserver/cloud_tasks/routes.py MIN_TASK_DEADLINE",
        ),
        Limit(
            "the start of a function of `leasehold dev`",
            "devserver/function_processes.py START_TIMEOUT_S",
            "`leasehold dev` ends, with `store_unavailable`",
            "s",
        ),
        Limit(
            "how long requests run on once `leasehold dev` is stopped",
            "devserver/server_process.py DRAIN_S",
            "they are ended",
            "s",
        ),
        Limit(
            "`time_left` of a context of `leasehold.testing`",
            "testing/contexts.py _MAX_TIME_LEFT_S",
            "`invalid_request`",
            "s",
        ),
        Limit(
            "time that a fault takes", "testing/faults.py _MAX_FAULT_S", "`invalid_request`", "s"
        ),
        Limit(
            "`within` of a test engine",
            "testing/in_process.py _MAX_WITHIN_S",
            "`invalid_request`",
            "s",
        ),
        Limit(
            "live runs of `leasehold loadtest`",
            "cli/loadtest.py _MAX_LIVE_RUNS",
            "the command ends with exit code 2",
            "runs",
        ),
        Limit(
            "runs that `leasehold loadtest` starts each second",
            "cli/loadtest.py _MAX_RUNS_PER_S",
            "the command ends with exit code 2",
            "runs",
        ),
        Limit(
            "levels of `leasehold loadtest`",
            "cli/loadtest.py _MAX_LEVELS",
            "the command ends with exit code 2",
            "levels",
        ),
        Limit(
            "the time of `leasehold loadtest`",
            "cli/loadtest.py _MAX_DURATION",
            "the command ends with exit code 2",
        ),
    ),
    "deploy": (
        Limit(
            "the bundle",
            "deploy/bundle/contents.py _MAX_BUNDLE_BYTES",
            "`leasehold deploy bundle` names its largest file",
            "bytes",
        ),
        Limit(
            "the import of the catalog, from the bundle",
            "deploy/bundle/import_check.py _MAX_IMPORT_S",
            "`leasehold deploy bundle` says so, and writes nothing",
            "s",
        ),
        Limit(
            "`concurrency` of a function",
            "registry/functions.py _MAX_REQUESTS_AT_ONCE",
            "`invalid_entry`",
            "requests",
        ),
        Limit(
            "tasks of a queue at once",
            "deploy/resources/queue.py MAX_TASKS_AT_ONCE",
            "`bad_setting`",
            "tasks",
        ),
        Limit(
            "days that backups are kept",
            "cli/deploy/options.py _MAX_BACKUP_DAYS",
            "the option is refused",
            "days",
        ),
        Limit(
            "days that the ledger is kept",
            "cli/deploy/options.py _MAX_LEDGER_DAYS",
            "the option is refused",
            "days",
        ),
    ),
}
