"""What each field of the HTTP API means, for its docs: a name means the same in every shape.

A shape where it means something else has its own row, `Shape.field`. The manifest is not
here: docs/manifest.md describes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any, Final

from pydantic import BaseModel, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from leasehold.api.call_row import ACTOR_HEADER, AnyRow, PlainText
from leasehold.api.errors import ErrorResponse, status_of
from leasehold.api.request_model import fields_of
from leasehold.errors import InvalidRequestError, LeaseholdError, StoreUnavailableError

_FIELDS: Final[Mapping[str, str]] = {
    # runs
    "runId": "the run",
    "pipeline": "the name of its pipeline",
    "input": "what the first step is given",
    "idempotencyKey": "the same key and input mean the same run, however often it is sent",
    "labels": "`key:value` texts to find the run by",
    "label": "runs with this label, `key:value`; of several, with each",
    "status": "where the run stands",
    "paused": "nothing more is dispatched until a person resumes it",
    "cancelled": "a person ended it for good",
    "deadLettered": "the engine gave it up",
    "deadLetteredAt": "when it was given up",
    "deadLetterReason": "why it was given up",
    "currentStep": "the step where it stands",
    "createdAt": "when it was started",
    "updatedAt": "when it last changed",
    "completedAt": "when its last step was done",
    "generation": "the dispatch that you looked at; if the run has another one: 409",
    "attempts": "attempts of the current step without an output, by how they ended",
    "progress": "how far it is",
    "errorCode": "what failed last",
    "blockCode": "why it is `BLOCKED`",
    "spend": "what all its steps have spent; null: nothing",
    "usd": "in US dollars",
    "tokens": "in tokens",
    "heartbeatAt": "when the worker of the attempt that runs was last heard of; null: none runs",
    "failed": "its handler failed: uses up a retry",
    "interrupted": "its worker was shut down",
    "expired": "its worker went silent",
    "continued": "the next attempt goes on where it ended",
    "repeated": "its output was refused, and a person had the step run again",
    "deferred": "it met an outage",
    "stepsDone": "steps that are completed",
    "steps": "all its steps",
    "fraction": "a share of 1",
    "message": "a word on it, for people",
    # operations
    "reason": "why, for the trace",
    "step": "only while the run is at this step; at another one it is a 409",
    "fromStep": "where the new run begins; left out: where the old one stopped",
    "failedItems": "begin where a list was worked on, and do those items alone that failed there",
    "keepPartial": "keep outputs of status PARTIAL, too; else only those of SUCCESS",
    "anew": "drop what the step itself has kept: checkpoint, results of calls, trials",
    "note": "a person's words for the handler, until the step is handed off",
    "kept": "what the attempts to come find of the work that was done",
    "action": "what is done to each run",
    "filter": "which runs",
    "dryRun": "only count what would be done",
    "matched": "runs that fit the filter, up to `limit`",
    "changed": "runs that were changed",
    "refused": "runs that do not allow it",
    "code": "what is wrong, for programs",
    # who works
    "workers": "those that were seen within three minutes, the latest first",
    "process": "as leases name their holder",
    "kind": "what it is",
    "startedAt": "when it began",
    "seenAt": "when it was last known to live",
    "codeHash": "the same where the same code was loaded; empty: not known",
    # lists
    "runs": "the runs of this page",
    "events": "what happened, oldest first",
    "files": "the files of this page; of a start, what the run has as files from its beginning",
    "limit": "how many at most",
    "pageToken": "`nextPageToken` of an earlier answer, to go on behind it",
    "nextPageToken": "for `pageToken`; null: there are no more",
    "name": "the name of the file, with `/` between folders",
    "size": "how many bytes it has",
    "since": "runs that began then or later: a time, or a date",
    "until": "runs that began before then: a time, or a date",
    "idPrefix": "runs whose id begins so, in the order of their ids",
    "trouble": "runs that say they run, but do not move as they should",
    "calls": "the results, in the order in which the calls were made",
    "key": "the name of the call within its step and trial",
    "keep": "whether it outlasts its step",
    "result": "what the call returned: any JSON value; null where it is large, too",
    "isLarge": "it lies among the artifacts",
    "isOpen": "it was begun, and has no result so far; only of a call with `on_unknown`",
    # events
    "type": "what happened",
    "at": "when",
    "trial": "the number of the trial, from 1; always 1 where the pipeline has no trials",
    "trials": "which steps run in trials",
    "author": "the step that each trial begins with",
    "reviewer": "the step that each trial ends with",
    "maxTrials": "how many trials there are at most, the first included",
    "findings": "what the reviewer of the trial before found; empty in the first",
    "traceparent": "the span of the attempt, for spans of the worker's own (W3C); null: none",
    "attempt": "the attempt, from 1",
    "detail": "more, for people",
    # what people on call ask
    "waitsFor": "what it waits for; null: nothing any more",
    "then": "what becomes of it at that time",
    "states": "runs by their state",
    "most": "what is counted up to",
    "pending": "to be begun",
    "inProgress": "an attempt runs",
    "retrying": "the last attempt failed, and the next one is to come",
    "troubles": "the troubles that the run itself tells; `announcement` where it was asked for",
    "attemptsByCause": "how its attempts ended that left no output that counts, of all steps",
    "deadLetterDetail": "why it was given up, for people",
    "blockFinding": "what it is blocked by, for people; or null",
    "blockRemedy": "what a person can do about that; or null",
    "words": "all of it as a sentence",
    "operations": "what a person can do now",
    "found": "the runs that are not in order",
    "left": "how many of them are not repaired",
    "waitingForCode": "how many runs are blocked until the code is put right",
    "artifactsProblem": "why no file can be read or stored now; or null",
    "breaches": "what is wrong with it",
    "finding": "what was found",
    "repair": "what its repair is",
    "byReason": "those that were given up, by the reason",
    "recovered": "runs whose lease had run out: the step is dispatched again",
    "redispatched": "runs whose task was lost: the step has a new one",
    "stillQueued": "runs that wait for a worker: their task is in its queue, or may be",
    "unattended": "runs that could not be attended, and are left to the next sweep",
    "reannounced": "announcements that were due, and whose message was published again",
    "archived": "ended runs whose [archive](lifecycle.md#archive) it finished",
    "purged": "ended runs that were deleted, because LEASEHOLD_RETENTION_DAYS are over",
    "scheduled": "runs that [schedules](patterns/schedule.md) started",
    "documentsRead": "how many documents the store gave",
    "more": "whether further runs may be due: the time of the sweep was over",
    # the registry
    "pipelines": "what can be started",
    "value": "the value in force",
    "source": "the entry, a threshold, `override`, or a variable by its name",
    "stepType": "the kind of step",
    "handler": "the function that does it, or `remote`",
    "isolation": "where it runs: `process`, or `inline`",
    "isolationSource": "the entry, or LEASEHOLD_ISOLATION",
    "reuse": "how many of its attempts one process may serve; 1: each has a fresh one",
    "queue": "the queue of its tasks",
    "agentTimeoutMs": "how long its handler may run",
    "dispatchDeadlineS": "how long the queue waits for an attempt",
    "options": "the other options of its entry that are not left at their defaults, by their names",
    "cleanupMs": "how long before its end its handler is asked to finish; at most half of its time",
    "memoryLimitBytes": "how many bytes its handler may use; null: as many as there are",
    "maxRetries": "how often a failed attempt is repeated",
    "heartbeatS": "renew the lease at least this often; null: never, it lasts to its cap",
    # overrides
    "overrides": "the overrides, by their steps",
    "override": "what a person set for it, also once that is over; null: nothing",
    "loweredLimits": "the keys whose [limit](patterns/limit.md) is lowered now",
    "LoweredLimitReport.key": "of the limit, as the runs have it",
    "share": "which part of its numbers holds now",
    "loweredAt": "when it was halved the last time",
    "growsFrom": "when it begins to grow by an eighth a minute",
    "overridesProblem": "why overrides could not be read now: those read before are shown; or null",
    "state": "`in_force`, `over` or `refused`",
    "timeoutS": "seconds that its handler may run; without: as if there were no override",
    "deadlineS": "seconds that its queue waits for an attempt; without: as above",
    "why": "the reason, for all who read it",
    "setBy": "who set it; empty: a document that was edited by hand does not say",
    "setAt": "when; null: as above",
    "problem": "why it, or a part of it, does not hold; null: it does",
    "replaced": "what was set for the step before; null: nothing",
    # budgets, as docs/timeouts.md explains them
    "budgets": "the budgets, by their steps",
    "budget": "the budget as it would be derived now",
    "samples": "its attempts of the window, the oldest first",
    "samplesFrom": "where they come from: `ledger`, or `prometheus`",
    "settings": "how it is derived",
    "percentile": "the share of attempts that should end within the limit",
    "confidence": "how sure it should be that so many do",
    "safetyBufferS": "what is added to the percentiles, in seconds",
    "roundingGranularityS": "the total is rounded up to a multiple of it, in seconds",
    "windowS": "how far back attempts are read, in seconds",
    "shortestS": "the shortest total, in seconds",
    "longestS": "the longest total, in seconds",
    "strategy": "`fixed`, `propose` or `phase_decoupled`",
    "derivedAt": "when it was derived",
    "changedAt": "when `applied` changed last; null: never",
    "declared": "the limit of its entry",
    "proposed": "the limit that its attempts ask for",
    "applied": "the limit of its next dispatch, as far as nothing goes over it",
    "onlyProposed": "whether the estimates differ too much for it to be applied",
    "windowDays": "how far back attempts counted, in days",
    "hasDrifted": "whether the last day differs from the days before it",
    "clipsInARow": "whether the limit in force clipped each of the last three attempts",
    "counts": "how many attempts there were of each kind",
    "bootstrap": "the estimates of its bootstrap; null: too few attempts",
    "execution": "the estimates of its execution; null: too few attempts",
    "reasons": "what changed and why, a sentence each",
    "totalS": "the dispatch deadline, in seconds",
    "executionS": "the execution, in seconds",
    "BudgetLimit.timeoutS": "the agent timeout, in seconds",
    "agentTimeoutS": "how long its handler may run, in seconds",
    "LimitReport.dispatchDeadlineS": "how long the queue waits for an attempt, in seconds",
    "endedAt": "when it ended",
    "bootstrapSeconds": "from the lease to the first tool call",
    "executionSeconds": "from there to its end; null: it never came so far",
    "cold": "whether it was the first attempt of its process",
    "retried": "whether an earlier attempt of the step and run went before it",
    "tailProbe": "whether it had the longest limit",
    # deliveries
    "channel": "whom it tells, as the catalog names it",
    "event": "the event: `run_completed`, `run_blocked`, `run_dead_lettered`, `run_cancelled`",
    "occurrence": "which announcement of the run it is: a run that blocks twice is announced twice",
    "priority": "`high`: a person has to do something; of a run, its class in the lines of limits",
    "summary": "what happened, in one line",
    "nextTryAt": "not sent before; null: as soon as its message comes, or nothing is due",
    "giveUpAt": "given up then, unless it is announced before, or was not tried once",
    "claimedUntil": "until when its holder alone sends it; null: it is not being sent",
    "round": "more than 1: a person asked for it again",
    "tries": "how often it was sent, or was to be, in this round",
    "unknown": "how many sends have an unknown result: they may have got through",
    "lastError": "why the last try failed",
    "announcedAt": "when the provider took it",
    "messageId": "what the provider named it; null: it names none",
    "givenUpAt": "when it was given up",
    "givenUpWhy": "why it was given up",
    "deliveries": "the deliveries, newest first",
    "owed": "its announcements that are due or were given up: a sentence for each channel",
    # leases
    "holder": "who works on it, for people",
    "leaseId": "the lease, as the claim gave it: a secret",
    "fencingToken": "the token of the lease, as the claim gave it",
    "spent": "what the attempt has spent so far: all of it, so that a repeat does no harm",
    "overBudget": (
        "which budget is used up, in a sentence: begin no further paid call, and release the step "
        "as `continued`; null: none is"
    ),
    "expiresAt": "when the lease ends unless it is renewed",
    "maxExpiresAt": "when it ends at the latest",
    "timeoutMs": "how long the step may take; the worker has to keep to it",
    "given": "the output of the step before, or the input of the run: any JSON value",
    "resume": "the last checkpoint, to go on from; null: begin at the beginning",
    "phase": "the part of the work",
    "iterationCount": "how many iterations are done",
    "partialResults": "what there is so far: any JSON value",
    "output": "what the step gives: any JSON value",
    "outcome": "what became of the attempt",
    "error": "why it failed",
    "permanent": "no retry can repair it",
    "retryAfterS": "not again before so many seconds have passed",
    "stacks": "what an attempt did when it was ended at a limit or asked, frame by frame",
    "traceback": "the traceback of the error, as text without secrets",
    "details": "whatever helps to find the cause",
    "content": "its bytes, in base64",
}

_OF_SHAPES: Final[Mapping[str, str]] = {
    "RunsQuery.status": "runs in this status",
    "RunsQuery.paused": "runs that are paused, or those that are not",
    "RunsQuery.cancelled": "runs that were cancelled, or those that were not",
    "RunsQuery.step": "runs that are at this step, or ended there",
    "RunsQuery.reason": "runs that were given up for this reason",
    "FilterPart.reason": "runs that were given up for this reason",
    "FilterPart.paused": "runs that are paused, or those that are not",
    "FilterPart.cancelled": "runs that were cancelled, or those that were not",
    "FilterPart.step": "runs that are at this step, or ended there",
    "CountsResponse.reasons": "runs that were given up, by the reason",
    "StateCounts.blocked": "until a person decides, or the code is put right",
    "StateCounts.completed": "done",
    "StateCounts.deadLettered": "given up",
    "RunOverview.recreatedAs": "the runs in which it went on",
    "RunOverview.waitsFor": "what it waits for, as the sentence of `why`; null: nothing any more",
    "RunOverview.until": "until when; null: no time moves it",
    "WhyResponse.until": "until when; null: no time moves it",
    "WhyResponse.generation": "what a decision about it, as it is here, is bound to",
    "BreachReport.code": "what is wrong, for programs",
    "ReleaseBody.continued": (
        "true: it is to be continued from its checkpoint, as more than one attempt can do"
    ),
    "WorkerReport.steps": "the step types that its catalog has, or the one that is asked for",
    "WorkerReport.startedAt": "when it began to work, or to ask",
    "AuditedRun.outcome": "what its repair came to; null without one",
    "SweepResponse.deadLettered": "runs that were given up",
    "RunsQuery.pipeline": "runs of this pipeline",
    "RunsQuery.deadLettered": "runs that were given up, or those that were not",
    "FilterPart.status": "runs in this status",
    "FilterPart.pipeline": "runs of this pipeline",
    "FilterPart.deadLettered": "runs that were given up, or those that were not",
    "Summary.generation": "the number of its dispatch: what a decision about it is bound to",
    "StartBody.budget": "how much it may spend before it blocks; left out: as its pipeline says",
    "ResumeBody.budget": "how much it may spend from its beginning on; left out: as before",
    "PipelineReport.budget": "how much a run may spend before it blocks; null: any amount",
    "ApproveBody.output": "in place of the output that was kept; it must fit the step's model",
    "BatchResponse.kept": "the same of all runs together; only of retry and recreate",
    "CallReport.type": "the type of the result, as the handler's language names it; may be empty",
    "RecordCallBody.request": "what the result depends on; another one makes it another call",
    "RecordCallBody.tookS": "how many seconds the call took; left out: not known",
    "RecordCallBody.spent": "what the call has spent",
    "CallsBody.request": "only those for this request",
    "CallReport.spend": "what the call has spent; null: nothing that is known",
    "CallReport.step": "the step whose handler had it made",
    "CallReport.trial": "the trial in which it was made, from 1",
    "CallReport.at": "when it was recorded",
    "CallReport.attempt": "the attempt that made the call, from 1",
    "CallReport.tookS": "seconds that the call took",
    "CallReport.bytes": "the size of the result as JSON text",
    "KeptCounts.steps": "steps before it whose outputs are kept",
    "KeptCounts.checkpoint": "iterations of its checkpoint",
    "KeptCounts.calls": "recorded results",
    "KeptCounts.trials": "trials that are over",
    "KeptCounts.unjudged": "outputs of the step itself that wait to be judged by its gates",
    "RecreateBody.input": "in place of the old input",
    "RecreateBody.labels": "in place of the old labels",
    "BatchBody.limit": "how many runs are changed at most",
    "RefusedRun.code": "why it does not allow it",
    "DeliveryReport.step": "the step where the run stood",
    "DeliveryReport.reason": "why it was given up or is blocked, as a code",
    "DeliveryReport.detail": "the same, for people",
    "DeliveryReport.state": "where it stands",
    "DeliveryReport.createdAt": "when the run came to it",
    "DeliveryReport.holder": "who sends it now; null: it is not being sent",
    "DeliveriesQuery.channel": "deliveries to this channel",
    "DeliveriesQuery.state": "deliveries in this state",
    "DeliverBody.channel": "the channel, as the catalog names it",
    "WhyResponse.deliveries": "the deliveries that `owed` tells of",
    "HealthResponse.status": "the function runs",
    "CompleteBody.status": "how good the output is; one of `ERROR` fails the attempt",
    "RenewBody.progress": "how far the worker is",
    "RegistryResponse.steps": "the step types",
    "StepReport.retry": "how long a failed attempt waits for the next one",
    "RetryInForce.firstS": "the wait after the first failure, in seconds",
    "RetryInForce.factor": "each further wait is so many times the one before",
    "RetryInForce.maxS": "no wait is longer, in seconds",
    "RetryInForce.nonRetryable": "the errors that are not retried, by code or class",
    "RegistryResponse.channels": "where announcements go",
    "ChannelReport.name": "the name of the channel",
    "ChannelReport.kind": "what sends to it, as slack, email or custom",
    "ChannelReport.events": "the events that it gets; empty: of all",
    "ChannelReport.pipelines": "of which pipelines; empty: of all",
    "ChannelReport.variables": "the variables that it needs",
    "VariableReport.name": "the name of the variable",
    "VariableReport.isSet": "whether it is set, or the file that holds its value is named",
    "PipelineReport.name": "the name of the pipeline",
    "PipelineReport.steps": "its steps, in their order",
    "ChildReport.done": "how many items it has done",
    "ChildReport.item": "the number of the item at hand; null: it has none",
    "ChildrenResponse.children": "the small runs",
    "ChildrenResponse.done": "how many items are done",
    "ChildrenResponse.items": "how many items there are in all; 0: the children have none",
    "PipelineReport.places": "more on those that are not plain steps, by their names",
    "Place.wait": "it waits for the signal of its name",
    "Place.each": "its step runs once for each item of a list",
    "Place.parallel": "the steps that run at once",
    "Place.child": "the pipeline of which a run is waited for",
    "WaitRule.otherwise": "what comes after the timeout: block, continue or fail",
    "WaitRule.model": "the path of the model that a signal has to fit; null: any value",
    "EachRule.atOnce": "how many items are worked on at once",
    "EachRule.tolerate": "which share of the items may fail",
    "EachRule.batch": "how many items one attempt is given",
    "CompleteBody.skipTo": "the later step that comes next; null: the next one",
    "StepReport.refused": "a sentence for each variable and override that cannot be used",
    "OverrideBody.until": "when it ends by itself: a time to come, or a date",
    "OverrideChange.override": "what is set for the step now; null: nothing",
    "PauseScheduleBody.why": "the reason, for all who look",
    "TriggerBody.id": "the same id is one run, however often it is sent; null: a new one",
    "BackfillBody.first": "from when on: a time, or a date",
    "BackfillBody.last": "until when: a time of the past, or a date",
    "ScheduleResponse.name": "its name",
    "ScheduleResponse.state": "`active`, `paused`, or `removed` from the catalog",
    "ScheduleResponse.pipeline": "what it starts; null: the catalog has it no more",
    "ScheduleResponse.cron": "its times; null: as above",
    "ScheduleResponse.tz": "whose local time that is; null: as above",
    "ScheduleResponse.overlap": "what becomes of a time while a run is not over; null: as above",
    "ScheduleResponse.catchUpS": "for how many seconds a time is made up for; null: as above",
    "ScheduleResponse.nextAt": "its next time; null: there is none",
    "ScheduleResponse.lastRunId": "the run that it started last; null: none",
    "ScheduleResponse.pausedBy": "who paused it; empty: it is not paused",
    "ScheduleResponse.pausedAt": "when; null: it is not paused",
    "ScheduleResponse.why": "why it is paused",
    "ScheduleResponse.problem": "why the run of a time cannot be started; empty: nothing is owed",
    "ScheduleResponse.lines": "what became of its last times, newest first",
    "ScheduleLine.time": "the time, or the first of several",
    "ScheduleLine.fate": "`starting`, `started`, `skipped`, `missed` or `buffered`",
    "ScheduleLine.at": "when that was recorded",
    "ScheduleLine.reason": "why, for people",
    "ScheduleLine.runId": "the run; null: none was started",
    "ScheduleLine.count": "how many times in a row it stands for",
    "ScheduleLine.id": "of the order of a person; null: it has none",
    "SchedulesResponse.schedules": "the schedules, by their names",
    "ScheduledRuns.runIds": "the runs, by their times",
    "PauseBody.step": "the step type; without it, `all` is true",
    "PauseBody.all": "pause every step",
    "ResumePauseBody.step": "the step type; without it, `all` is true",
    "ResumePauseBody.all": "end the pause of all; a step that was paused by itself stays so",
    "PauseReport.step": "the step type; null: all of them",
    "PauseChange.pause": "what is paused now",
    "PauseChange.replaced": "the pause that was in its place; null: there was none",
    "PausesResponse.pauses": "the pauses, by their steps",
    "ResumedPause.pause": "the pause that was ended; null: nothing was paused",
    "ResumedPause.released": "how many runs it held that go on now",
    "ResumedPause.more": "whether further runs may be held: the sweep releases them",
    "Hold.pause": "the id of the pause in `overrides`: `pause:STEP`, or `pause:*` for all steps",
    "Hold.since": "since when the run is held",
    "RunOverview.held": "who paused its step, since when and why; null: no pause holds it",
    "RunOverview.waitsIn": "the line of the limit that it waits for; null: it waits for none",
    "Summary.held": "who paused its step, since when and why; null: no pause holds it",
    "Summary.waitsIn": "the line of the limit that it waits for; null: it waits for none",
    "ContinuedRun.held": "who paused its step, since when and why; null: no pause holds it",
    "ContinuedRun.waitsIn": "the line of the limit that it waits for; null: it waits for none",
    "OverrideReport.until": "when it ends by itself; null: the document does not say so",
    "OutcomeResponse.reason": "why, for people; often left out",
    "TraceEvent.step": "the step that it happened to",
    "TraceEvent.reason": "why",
    "SignalBody.value": "a JSON value; it has to fit the model of the wait",
    "SignalBody.id": "the same id counts once, however often it is sent; null: a new one",
    "SignalResponse.name": "of the signal",
    "SignalResponse.id": "of the signal",
    "SignalResponse.outcome": "`signalled`: the run goes on with it; `signal_kept`: nothing waits "
    "for it yet; `signal_known`: its id came before",
    "SignalResponse.run": "the run after that",
    "AwaitBody.name": "of the signal",
    "AwaitBody.timeoutS": "for how long to wait, in seconds; null: for any time",
    "AwaitBody.otherwise": "what then: `block`, `continue` or `fail`",
    "AwaitBody.refused": "why the signal that was given before cannot be used; empty: none was",
    "AwaitResponse.outcome": "`found`; `missed`: none came in time; else the attempt is over, and "
    "the step is given to a worker again once the signal is there",
    "AwaitResponse.value": "of the signal",
    "RequestedStack.step": "the step that it is at",
    "RequestedStack.requestedBy": "who asked; the first one, where several did before the answer",
    "RequestedStack.requestedAt": "when; the answer is the event `stack_taken` from then on",
    "RequestedStack.heartbeatS": "by when its worker hears of it, in seconds; at once if it is "
    "the process that was asked",
    "ErrorPart.message": "what failed",
    "ErrorPart.type": "the kind of error, as the language of the worker names it",
    "ErrorInfo.message": "a sentence for people: what was refused, what is allowed, what to do",
    "ErrorInfo.details": "the facts of the sentence, for programs",
    "ErrorResponse.error": "what is wrong",
}


def meaning_of(shape: str, field: str) -> str | None:
    """Return what a field of a shape means; None: it has no description."""
    return _OF_SHAPES.get(f"{shape}.{field}") or _FIELDS.get(field)


# The specification of the calls as OpenAPI 3.1: generated from the tables of calls.


Json = dict[str, Any]

_PLACE: Final = re.compile(r"<(?:path:)?(\w+)>")
_REF: Final = "#/components/schemas/{model}"
_JSON: Final = "application/json"

#: What each part of a path is.
_PLACES: Final[Mapping[str, str]] = {
    "runId": "the id of a run",
    "step": "a step type",
    "name": "the name of a file; it may have `/`, as they are",
}
#: Any call may refuse what it takes, and any store may be away.
_ANY: Final = (InvalidRequestError, StoreUnavailableError)


def path_of(row: AnyRow) -> str:
    """Return the path of a row as people read it: `/runs/{runId}`."""
    return _PLACE.sub(lambda place: f"{{{to_camel(place[1])}}}", row.path)


def specification(rows: Sequence[AnyRow]) -> Json:
    """Return the specification of these calls, as JSON has it."""
    schemas = _Schemas(rows)
    by_path = groupby(sorted(rows, key=path_of), path_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leasehold",
            "version": _version(),
            "description": "Durable multi-step pipelines: runs, what people do to them, and what "
            "they gave. An error is an ErrorResponse; its `code` says which.",
        },
        "paths": {
            path: {row.method.lower(): _operation(row, schemas) for row in found}
            for path, found in by_path
        },
        "components": {
            "schemas": schemas.all,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An ID token of Google's, where functions are deployed; "
                    "`leasehold serve` and `leasehold dev` ask for none.",
                }
            },
        },
        "security": [{}, {"token": []}],
    }


class _Schemas:
    """The schemas of what rows take and give, by their models."""

    def __init__(self, rows: Sequence[AnyRow]) -> None:
        wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
            (ErrorResponse, "serialization"): None
        }
        for row in rows:
            if row.takes is not None:
                wanted[row.takes, "validation"] = None
            if row.gives not in (JsonValue, bytes, PlainText):
                wanted[row.gives, "serialization"] = None
        self._refs, found = models_json_schema(list(wanted), by_alias=True, ref_template=_REF)
        self.all: Json = {
            name: _described(name, schema) for name, schema in sorted(found["$defs"].items())
        }

    def taken(self, model: type[BaseModel]) -> Json:
        """Return the schema of a body."""
        return self._refs[model, "validation"]

    def given(self, model: Any) -> Json:
        """Return the schema of an answer; that of any JSON says nothing."""
        return {} if model is JsonValue else self._refs[model, "serialization"]

    def fields(self, model: type[BaseModel]) -> Json:
        """Return the fields of a query."""
        name = self.taken(model)["$ref"].rpartition("/")[2]
        fields: Json = self.all[name]["properties"]
        return fields


def _described(shape: str, schema: Json) -> Json:
    """Return the schema of a shape with what its fields mean."""
    fields = {
        name: {**field, "description": words}
        if (words := meaning_of(shape, name)) and "$ref" not in field
        else field
        for name, field in schema.get("properties", {}).items()
    }
    return {**schema, "properties": fields} if fields else schema


def _operation(row: AnyRow, schemas: _Schemas) -> Json:
    operation: Json = {
        "operationId": row.name,
        "summary": row.says,
        "x-leasehold-right": row.needs.right.value,
        "responses": _responses(row, schemas),
    }
    if parameters := list(_parameters(row, schemas)):
        operation["parameters"] = parameters
    if row.method == "POST" and row.takes is not None:
        content = {_JSON: {"schema": schemas.taken(row.takes)}}
        operation["requestBody"] = {"content": content, "required": _is_required(row.takes)}
    return operation


def _is_required(model: type[BaseModel]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _parameters(row: AnyRow, schemas: _Schemas) -> Iterator[Json]:
    for place in _PLACE.findall(row.path):
        name = to_camel(place)
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PLACES[name],
            "schema": {"type": "string"},
        }
    if row.method == "GET" and row.takes is not None:
        for name in fields_of(row.takes):
            schema = dict(schemas.fields(row.takes)[name])
            words = schema.pop("description", "")
            yield {"name": name, "in": "query", "description": words, "schema": schema}
    if row.names_actor:
        words = "who asks, for the trace of the run; in UTF-8"
        schema = {"type": "string"}
        yield {"name": ACTOR_HEADER, "in": "header", "description": words, "schema": schema}


def _responses(row: AnyRow, schemas: _Schemas) -> Json:
    others: dict[Any, Json] = {
        bytes: {"application/octet-stream": {}},
        PlainText: {"text/plain": {"schema": {"type": "string"}}},
    }
    content = others.get(row.gives) or {_JSON: {"schema": schemas.given(row.gives)}}
    done: Json = {"description": HTTPStatus.OK.phrase, "content": content}
    found: Json = {"200": done}
    if row.creates:
        found["201"] = {**done, "description": HTTPStatus.CREATED.phrase}
    error = {"content": {_JSON: {"schema": schemas.given(ErrorResponse)}}}
    for status, errors in _by_status({*row.refuses, *_ANY}):
        codes = ", ".join(f"`{each.code}`" for each in errors)
        found[str(status)] = {"description": codes, **error}
    return {**found, "default": {"description": "any other error", **error}}


def _by_status(
    errors: Iterable[type[LeaseholdError]],
) -> Iterator[tuple[int, list[type[LeaseholdError]]]]:
    def status(error: type[LeaseholdError]) -> int:
        return status_of(error.code)

    ordered = sorted(errors, key=lambda error: (status(error), error.code))
    return ((code, list(found)) for code, found in groupby(ordered, status))


def _version() -> str:
    try:
        return version("leasehold")
    except PackageNotFoundError:  # it runs from a folder, as a function does
        return "0"
