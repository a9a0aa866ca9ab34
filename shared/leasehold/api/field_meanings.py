"""What each field of the HTTP API means, for its docs: a name means the same in every shape.

A shape where it means something else has a row of its own, `Shape.field`. The manifest is not
here: docs/manifest.md describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FIELDS: Final[Mapping[str, str]] = {
    # runs
    "runId": "the run",
    "pipeline": "the name of its pipeline",
    "input": "what the first step is given",
    "idempotencyKey": "the same key and input mean the same run, however often it is sent",
    "labels": "`key:value` texts to find the run by",
    "label": "runs with this label, `key:value`",
    "status": "where the run stands",
    "paused": "nothing more is dispatched until somebody resumes it",
    "cancelled": "somebody ended it for good",
    "deadLettered": "the engine gave it up",
    "deadLetteredAt": "when it was given up",
    "deadLetterReason": "why it was given up",
    "currentStep": "the step where it stands",
    "createdAt": "when it was started",
    "updatedAt": "when it last changed",
    "completedAt": "when its last step was done",
    "generation": "the dispatch that was looked at; a run that is at another one by now is a 409",
    "attempts": "attempts of the current step without an output, by how they ended",
    "progress": "how far it is",
    "errorCode": "what failed last",
    "blockCode": "why it is `BLOCKED`",
    "failed": "its handler failed: uses up a retry",
    "interrupted": "its worker was shut down",
    "expired": "its worker went silent",
    "continued": "it asked for another attempt itself",
    "repeated": "its output was refused, and somebody had the step run again",
    "deferred": "it met an outage",
    "stepsDone": "steps that are completed",
    "steps": "all its steps",
    "fraction": "a share of 1",
    "message": "a word on it, for people",
    # operations
    "reason": "why, for the trace",
    "step": "only while the run is at this step; at another one it is a 409",
    "fromStep": "where the new run begins; the outputs before it are kept",
    "action": "what is done to each run",
    "filter": "which runs",
    "dryRun": "only count what would be done",
    "matched": "runs that fit the filter, up to `limit`",
    "changed": "runs that were changed",
    "refused": "runs that do not allow it",
    "code": "what is wrong, for programs",
    # lists
    "runs": "the runs of this page",
    "events": "what happened, oldest first",
    "files": "the files of this page",
    "limit": "how many at most",
    "pageToken": "`nextPageToken` of an earlier answer, to go on behind it",
    "nextPageToken": "for `pageToken`; null: there are no more",
    "name": "the name of the file, with `/` between folders",
    "size": "how many bytes it has",
    # events
    "type": "what happened",
    "at": "when",
    "trial": "always 1 in this version",
    "attempt": "the attempt, from 1",
    "detail": "more, for people",
    # the registry
    "pipelines": "what can be started",
    "value": "the value in force",
    "source": "the entry, a threshold, or a variable by its name",
    "stepType": "the kind of step",
    "handler": "the function that does it, or `remote`",
    "isolation": "where it runs",
    "queue": "the queue of its tasks",
    "agentTimeoutMs": "how long its handler may run",
    "dispatchDeadlineS": "how long the queue listens to an attempt",
    "maxRetries": "how often a failed attempt is repeated",
    "heartbeatS": "renew the lease at least this often; null: never, it lasts to its cap",
    # leases
    "holder": "who works on it, for people",
    "leaseId": "the lease, as the claim gave it: a secret",
    "fencingToken": "the token of the lease, as the claim gave it",
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
    "details": "whatever helps to find the cause",
    "content": "its bytes, in base64",
}

_OF_SHAPES: Final[Mapping[str, str]] = {
    "RunsQuery.status": "runs in this status",
    "RunsQuery.pipeline": "runs of this pipeline",
    "RunsQuery.deadLettered": "runs that were given up, or those that were not",
    "FilterPart.status": "runs in this status",
    "FilterPart.pipeline": "runs of this pipeline",
    "FilterPart.deadLettered": "runs that were given up, or those that were not",
    "Summary.generation": "the number of its dispatch: what a decision about it is bound to",
    "RecreateBody.input": "in place of the old input",
    "RecreateBody.labels": "in place of the old labels",
    "BatchBody.limit": "how many runs are changed at most",
    "RefusedRun.code": "why it does not allow it",
    "HealthResponse.status": "the function runs",
    "CompleteBody.status": "how good the output is; one of `ERROR` fails the attempt",
    "RenewBody.progress": "how far the worker is",
    "RegistryResponse.steps": "the step types",
    "PipelineReport.name": "the name of the pipeline",
    "PipelineReport.steps": "its steps, in their order",
    "StepReport.refused": "a sentence for each override that cannot be used",
    "OutcomeResponse.reason": "why, for people; often left out",
    "TraceEvent.step": "the step that it happened to",
    "TraceEvent.reason": "why",
    "ErrorPart.message": "what failed",
    "ErrorPart.type": "the kind of error, as the language of the worker names it",
    "ErrorInfo.message": "a sentence for people: what was refused, what is allowed, what to do",
    "ErrorInfo.details": "the facts of the sentence, for programs",
    "ErrorResponse.error": "what is wrong",
}


def meaning_of(shape: str, field: str) -> str | None:
    """Return what a field of a shape means; None: nobody has written it down."""
    return _OF_SHAPES.get(f"{shape}.{field}") or _FIELDS.get(field)
