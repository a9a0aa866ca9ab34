"""Runs in each state, made as they come to be: by the lifecycle itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Archive
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest, life_of
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.notes import MadeOutput, Notes
from leasehold.domain.status import BlockCode
from tests.worlds.builders import new_run

#: Where the runs keep their artifacts.
FOLDER = f"runs/r-1/{life_of('nonce-1')}"
#: What a run owes that ended.
ARCHIVE = Archive("r-1", life_of("nonce-1"))

#: The time so many seconds after the start.
At = Callable[[float], datetime]
#: A transition that has most of its facts.
Bound = Callable[..., Change]


@dataclass(frozen=True)
class Runs:
    """A run of the steps draft and send, started at second 0; its leases are called lease-N."""

    rules: Rules
    at: At

    def pending(self) -> Manifest:
        """A run that waits for a worker since second 0."""
        return lifecycle.start(None, self.at(0), rules=self.rules, new=self.new()).manifest

    def new(self, run_id: str = "r-1", **update: object) -> NewRun:
        return new_run(run_id, **update)

    def leased(
        self, run: Manifest | None = None, *, at: float = 0, lease_id: str = "lease-1"
    ) -> Manifest:
        """The run with a lease, by default from second 0 to second 30."""
        run = run or self.pending()
        if run.position.dispatch.remote:
            return self.claimed(run, at=at, lease_id=lease_id)
        return lifecycle.arrive(
            run,
            self.at(at),
            rules=self.rules,
            generation=run.position.dispatch.generation,
            lease_id=lease_id,
            holder="host-a",
        ).manifest

    def elsewhere(self) -> Runs:
        """The same runs where workers elsewhere claim the step draft."""
        send = self.rules.known_settings("send")
        draft = replace(self.rules.known_settings("draft"), remote=True)
        settings_for = {"draft": draft, "send": send}.get
        return replace(self, rules=replace(self.rules, settings_for=settings_for))

    def claimed(
        self, run: Manifest | None = None, *, at: float = 0, lease_id: str = "lease-1"
    ) -> Manifest:
        """The run with a lease of a worker elsewhere, by default from second 0 to second 30."""
        return lifecycle.claim(
            run or self.pending(),
            self.at(at),
            rules=self.rules,
            lease_id=lease_id,
            holder="laptop",
        ).manifest

    def checkpointed(
        self, run: Manifest, *, at: float, iterations: int = 3, phase: str = "read"
    ) -> Manifest:
        """The run with what its attempt has after so many iterations."""
        return lifecycle.checkpoint(
            run,
            self.at(at),
            rules=self.rules,
            fence=self.fence(run),
            iteration_count=iterations,
            phase=phase,
            partial_results=KeptValue(text='["Dear"]'),
        ).manifest

    def handed_off(self) -> Manifest:
        """A run that waits at its second step since second 5."""
        return self.with_output(self.leased(), at=5)

    def with_output(self, run: Manifest, *, at: float, stores_files: bool = True) -> Manifest:
        return lifecycle.complete(
            run,
            self.at(at),
            rules=self.rules,
            fence=self.fence(run),
            output=KeptValue(text='"Dear Ada"'),
            notes=Notes(stores_files=stores_files),
        ).manifest

    def completed(self) -> Manifest:
        """A run whose last output was recorded at second 9, and whose handlers stored files."""
        return self.with_output(self.leased(self.handed_off(), at=6, lease_id="lease-2"), at=9)

    def failed(self, run: Manifest | None = None, *, at: float = 5) -> Manifest:
        """A run whose first attempt failed at second 5."""
        run = run or self.leased()
        return lifecycle.fail(
            run, self.at(at), rules=self.rules, fence=self.fence(run), error=self.error()
        ).manifest

    def error(self) -> ErrorRecord:
        return ErrorRecord(type="AgentClientError", code="overloaded", message="Try later.")

    def blocked(self, run: Manifest | None = None) -> Manifest:
        """A run whose first output a gate refused at second 5."""
        run = run or self.leased()
        return lifecycle.block(
            run,
            self.at(5),
            rules=self.rules,
            fence=self.fence(run),
            output=KeptValue(text='"Hi"'),
            output_status="PARTIAL",
            found=self.found(),
        ).manifest

    def found(self) -> Block:
        return Block(code="TOO_SHORT", finding="2 letters", remediation="Approve or retry.")

    def unknown(self) -> Manifest:
        """A run with an unknown step, blocked at second 60: it is looked at at second 70."""
        return self.swept_unknown(self.pending()).manifest

    def swept_unknown(self, run: Manifest) -> Change:
        """The run after its alarm, with an unknown step."""
        return lifecycle.on_alarm(
            run,
            run.alarm_at or self.at(60),
            rules=self.knowing_nothing(),
            generation=run.position.dispatch.generation,
            in_queue=None,
        )

    def unable(
        self,
        run: Manifest | None = None,
        *,
        at: float = 5,
        output: KeptValue | None = None,
        **facts: object,
    ) -> Change:
        """A run whose handler cannot be imported, or a gate of its output, blocked at second 5."""
        run = run or self.leased()
        if output is not None:
            facts["notes"] = Notes(output=MadeOutput(output))
        return lifecycle.block_attempt(
            run,
            self.at(at),
            rules=self.rules,
            fence=self.fence(run),
            **{"code": BlockCode.HANDLER_UNAVAILABLE, "error": self.import_error(), **facts},
        )

    def looked_at(self, run: Manifest, *, at: float, lease_id: str) -> Manifest:
        """The run with a lease, once it is looked at again."""
        look = lifecycle.look_again(run, self.at(at), rules=self.rules).manifest
        return self.leased(look, at=at, lease_id=lease_id)

    def import_error(self) -> ErrorRecord:
        problem = "Handler steps:draft: importing 'steps' raised ModuleNotFoundError: No module"
        return ErrorRecord(type="HandlerNotFoundError", code="handler_not_found", message=problem)

    def knowing_nothing(self) -> Rules:
        return replace(self.rules, settings_for=lambda _: None)

    def paused(self, run: Manifest) -> Manifest:
        return lifecycle.pause(
            run, self.at(6), rules=self.rules, actor="ada", reason="wait"
        ).manifest

    def cancelled(self, run: Manifest) -> Manifest:
        return lifecycle.cancel(
            run, self.at(7), rules=self.rules, actor="ada", reason="wrong"
        ).manifest

    def dead_lettered(self) -> Manifest:
        """A run that failed for good at second 5."""
        run = self.leased()
        return lifecycle.fail(
            run,
            self.at(5),
            rules=self.rules,
            fence=self.fence(run),
            error=self.error(),
            permanent=True,
        ).manifest

    def archived(self, run: Manifest, *, at: float = 10) -> Manifest:
        """The run, all of whose archive was done then."""
        return self.archive_noted(run, at=at).manifest

    def archive_noted(
        self, run: Manifest, *, at: float, is_over: bool = True, **failed: str
    ) -> Change:
        """What came of a try to archive the run: the steps that failed, and why."""
        return lifecycle.note_archive(
            run, self.at(at), rules=self.rules, life=run.life, failed=failed, is_over=is_over
        )

    def fence(self, run: Manifest) -> Fence:
        assert run.position.lease is not None
        return Fence(run.position.lease.lease_id, run.fencing_token)
