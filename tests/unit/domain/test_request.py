"""An operation is bound to what was looked at; a repeat gets the first answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle import BoundOperation, Operation
from leasehold.domain.manifest import Manifest, manifest_of, to_document
from leasehold.domain.status import Outcome, RunStatus
from leasehold.errors import NotAllowedError, StateChangedError
from tests.unit.domain.runs import At, Runs

#: Do an operation as ada asks for it, because, unless said otherwise.
Ask = Callable[..., Change]


@pytest.fixture
def ask(runs: Runs, rules: Rules, at: At) -> Ask:
    calls = (f"call-{number}" for number in itertools.count(1))

    def do(run: Manifest, operation: str, *, rules: Rules = rules, **fields: Any) -> Change:
        words = {"actor": "ada", "reason": "because"}
        facts: dict[str, Any] = {}
        if operation == "recreate":
            facts = {"from_step": "draft", "new": runs.new(fields.pop("run_id", "r-2"))}
        request = BoundOperation(
            **({"id": next(calls), "operation": Operation(operation)} | words | fields)
        )
        transition = getattr(lifecycle, operation)
        bound = partial(
            transition, rules=rules, actor=request.actor, reason=request.reason, **facts
        )
        return lifecycle.on_request(request, bound)(run, at(5))

    return do


@pytest.fixture
def at_gate_2(runs: Runs, ask: Ask) -> Manifest:
    """A run that ada approved at draft, generation 2, and that is blocked at send since."""
    return blocked_again(runs, ask(runs.blocked(), "approve").manifest)


def blocked_again(runs: Runs, run: Manifest) -> Manifest:
    return runs.blocked(
        runs.leased(run, at=5, lease_id=f"lease-{run.position.dispatch.generation}")
    )


# -- what a generation names -------------------------------------------------------------------


def test_each_block_has_its_own_generation(
    runs: Runs, rules: Rules, ask: Ask, at_gate_2: Manifest
) -> None:
    """A decision that names a generation would hit the wrong block else."""
    nothing = runs.knowing_nothing()
    first = runs.blocked()
    unknown = runs.swept_unknown(ask(first, "approve", rules=nothing).manifest).manifest
    still_unknown = runs.swept_unknown(ask(unknown, "retry", rules=nothing).manifest).manifest
    paused = runs.paused(first)
    resumed = ask(ask(paused, "approve").manifest, "resume", rules=nothing).manifest
    resumed = runs.swept_unknown(resumed).manifest
    retried = ask(ask(paused, "retry").manifest, "resume", rules=nothing).manifest
    retried = runs.swept_unknown(retried).manifest

    assert {run.status for run in (unknown, still_unknown, resumed, retried)} == {"BLOCKED"}
    assert first.position.dispatch.generation == paused.position.dispatch.generation == 2
    for block in (unknown, still_unknown, resumed, retried, at_gate_2):
        assert block.position.dispatch.generation > 2
    assert still_unknown.position.dispatch.generation > unknown.position.dispatch.generation


def test_a_block_has_another_generation_than_the_error_before_it(runs: Runs, ask: Ask) -> None:
    """A retry that was meant for the error would drop an output that was not seen."""
    failed = runs.failed()
    blocked = runs.leased(failed, at=15, lease_id="lease-2")
    blocked = lifecycle.block(
        blocked,
        blocked.updated_at,
        rules=runs.rules,
        fence=runs.fence(blocked),
        output=runs.blocked().steps["draft"].kept_output,
        output_status="SUCCESS",
        found=runs.found(),
    ).manifest

    with pytest.raises(StateChangedError):
        ask(blocked, "retry", generation=failed.position.dispatch.generation)


def test_a_paused_run_that_leaves_its_block_leaves_its_generation(runs: Runs, ask: Ask) -> None:
    paused = runs.paused(runs.blocked())

    approved = ask(paused, "approve", generation=2).manifest

    assert (approved.status, approved.paused) == ("PENDING", True)
    with pytest.raises(StateChangedError):
        ask(approved, "cancel", generation=2)


# -- what a request is bound to ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "operation"),
    [
        ("pending", "pause"),
        ("paused", "resume"),
        ("leased", "cancel"),
        ("failed", "retry"),
        ("blocked", "retry"),
        ("blocked", "approve"),
        ("completed", "recreate"),
    ],
)
def test_what_is_bound_to_where_the_run_is_is_done_and_to_anything_else_refused(
    runs: Runs, ask: Ask, state: str, operation: str
) -> None:
    run = runs.paused(runs.pending()) if state == "paused" else getattr(runs, state)()
    step, generation = run.current_step, run.position.dispatch.generation

    done = ask(run, operation, generation=generation, step=step)

    assert done.changed
    for other in ({"generation": generation + 1}, {"step": "print"}, {"read": generation + 1}):
        with pytest.raises(StateChangedError):
            ask(run, operation, **other)


def test_a_refusal_says_what_was_looked_at_and_what_the_run_is_now(
    ask: Ask, at_gate_2: Manifest
) -> None:
    with pytest.raises(StateChangedError) as other:
        ask(at_gate_2, "approve", generation=2, actor="bob")
    with pytest.raises(StateChangedError) as step:
        ask(at_gate_2, "approve", step="draft", actor="bob")
    with pytest.raises(StateChangedError) as moved:
        ask(at_gate_2, "approve", read=2, actor="bob")

    now = "the run is now BLOCKED at step send, generation 4. Look at it, then give generation 4."
    assert [error.value.message for error in (other, step, moved)] == [
        f"Cannot approve run r-1: you named generation 2; {now}",
        f"Cannot approve run r-1: you named step draft; {now}",
        f"Cannot approve run r-1: it moved on from generation 2 meanwhile; {now}",
    ]
    assert not other.value.retryable
    assert other.value.details["generation"] == 4


def test_the_run_remembers_who_did_what_to_which_block(runs: Runs, ask: Ask, at: At) -> None:
    long = "because " * 60

    (record,) = ask(runs.blocked(), "approve", generation=2, reason=long).manifest.operations

    assert to_document(record) == {
        "id": "call-1",
        "digest": record.digest,
        "operation": "approve",
        "actor": "ada",
        "reason": long[:100],
        "generation": 2,
        "step": "draft",
        "outcome": "approved",
        "at": at(5),
    }


def test_the_last_sixteen_operations_are_remembered(runs: Runs, ask: Ask) -> None:
    run = runs.pending()

    for number in range(20):
        operation = "resume" if run.paused else "pause"
        run = ask(run, operation, reason=str(number)).manifest

    assert [record.reason for record in run.operations] == [str(n) for n in range(4, 20)]


def test_a_run_of_an_older_version_remembers_nothing_and_can_be_operated_on(
    runs: Runs, ask: Ask
) -> None:
    document = dict(to_document(runs.blocked()))
    del document["operations"]

    run = manifest_of("r-1", document)

    assert run.operations == ()
    assert ask(run, "approve", generation=2).outcome is Outcome.APPROVED


# -- repeats that are bound --------------------------------------------------------------------


def test_a_repeat_after_a_lost_answer_gets_the_first_answer(runs: Runs, ask: Ask) -> None:
    blocked = runs.blocked()
    for operation in ("approve", "retry", "cancel", "pause"):
        first = ask(blocked, operation, generation=2)

        again = ask(first.manifest, operation, generation=2)

        assert (again.outcome, again.changed) == (first.outcome, False)
        assert again.repeats == first.manifest.operations[-1]
        assert (again.manifest, again.events) == (first.manifest, ())


def test_a_repeated_approval_leaves_the_next_gate_alone(ask: Ask, at_gate_2: Manifest) -> None:
    again = ask(at_gate_2, "approve", generation=2)

    assert (again.outcome, again.changed) == (Outcome.APPROVED, False)
    assert again.manifest == at_gate_2


def test_the_first_answer_is_for_the_same_request_alone(ask: Ask, at_gate_2: Manifest) -> None:
    for other in ({"actor": "bob"}, {"reason": "because "}, {"generation": 1}):
        with pytest.raises(StateChangedError):
            ask(at_gate_2, "approve", **({"generation": 2} | other))


def test_a_repeat_whose_first_time_completed_the_run_gets_that_answer(
    runs: Runs, ask: Ask, at_gate_2: Manifest
) -> None:
    done = ask(at_gate_2, "approve", generation=4, reason="fine")

    again = ask(done.manifest, "approve", generation=4, reason="fine")

    assert (done.outcome, again.outcome, again.changed) == ("completed", "completed", False)


@pytest.mark.parametrize(("do", "undo"), [("pause", "resume"), ("resume", "pause")])
def test_a_repeat_of_an_undone_operation_is_not_guessed_at(
    runs: Runs, ask: Ask, do: str, undo: str
) -> None:
    """Another person undid it: whether that is to be undone, the run cannot know."""
    run = runs.leased() if do == "pause" else runs.paused(runs.leased())
    undone = ask(ask(run, do, generation=1).manifest, undo, actor="bob").manifest

    with pytest.raises(StateChangedError) as refused:
        ask(undone, do, generation=1)

    assert refused.value.message.endswith("Where it is meant once more, give another reason.")
    assert ask(undone, do, generation=1, reason="I mean it").changed
    assert ask(undone, do).changed


@pytest.mark.parametrize(("do", "undo"), [("pause", "resume"), ("resume", "pause")])
def test_who_undid_it_may_do_it_again(runs: Runs, ask: Ask, do: str, undo: str) -> None:
    """A client that always names the generation holds a run as often as it likes."""
    run = runs.leased() if do == "pause" else runs.paused(runs.leased())
    undone = ask(ask(run, do, generation=1).manifest, undo, generation=1).manifest

    assert ask(undone, do, generation=1).changed


def test_a_repeated_recreation_names_the_run_that_was_created(runs: Runs, ask: Ask) -> None:
    first = ask(runs.completed(), "recreate", generation=2)

    again = ask(first.manifest, "recreate", generation=2, run_id="r-3")
    other = ask(first.manifest, "recreate", generation=2, run_id="r-3", options='{"input":1}')

    assert (again.outcome, again.changed, again.created) == ("recreated", False, None)
    assert again.repeats is not None
    assert again.repeats.recreated_as == "r-2"
    assert other.manifest.recreated_as == ("r-2", "r-3")


def test_an_unbound_recreation_makes_one_more_run(runs: Runs, ask: Ask) -> None:
    first = ask(runs.completed(), "recreate").manifest

    assert ask(first, "recreate", run_id="r-3").manifest.recreated_as == ("r-2", "r-3")


# -- repeats that are not bound ----------------------------------------------------------------


def test_an_unbound_repeat_does_not_pass_the_next_gate(ask: Ask, at_gate_2: Manifest) -> None:
    with pytest.raises(StateChangedError) as refused:
        ask(at_gate_2, "approve", read=4)

    assert refused.value.message == (
        "Cannot approve run r-1: ada did that before, with the same reason, at step draft, "
        "generation 2; the run is now BLOCKED at step send, generation 4. "
        "Look at it, then give generation 4."
    )
    assert ask(at_gate_2, "approve", generation=4).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("words", [{"actor": "bob"}, {"reason": "also good"}, {"step": "send"}])
def test_an_approval_that_can_be_told_from_the_last_one_passes(
    ask: Ask, at_gate_2: Manifest, words: dict[str, str]
) -> None:
    assert ask(at_gate_2, "approve", **words).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("bound", [{}, {"step": "draft"}])
def test_a_repeated_retry_does_not_drop_the_next_output(
    runs: Runs, ask: Ask, bound: dict[str, str]
) -> None:
    """The step is the same at the next block: it does not tell one retry from the next."""
    blocked = blocked_again(runs, ask(runs.blocked(), "retry", **bound).manifest)

    with pytest.raises(StateChangedError):
        ask(blocked, "retry", **bound)
    assert ask(blocked, "retry", generation=blocked.position.dispatch.generation, **bound).changed


def test_a_retry_that_was_meant_for_an_error_does_not_drop_an_output(runs: Runs, ask: Ask) -> None:
    blocked = blocked_again(runs, ask(runs.failed(), "retry").manifest)

    with pytest.raises(StateChangedError):
        ask(blocked, "retry")


def test_the_same_words_may_retry_one_error_after_another(runs: Runs, ask: Ask) -> None:
    """It costs no more than a backoff that is cut short."""
    retried = ask(runs.failed(), "retry").manifest
    again = runs.failed(runs.leased(retried, at=5, lease_id="lease-3"))

    assert ask(again, "retry").manifest.status is RunStatus.PENDING


def test_the_same_words_may_retry_an_unknown_step_after_each_deploy(runs: Runs, ask: Ask) -> None:
    """There is no output that was not seen."""
    retried = ask(runs.unknown(), "retry", rules=runs.knowing_nothing()).manifest
    again = runs.swept_unknown(retried).manifest

    assert again.block is not None
    assert ask(again, "retry").manifest.status is RunStatus.PENDING


def test_the_same_words_may_have_the_gates_asked_after_each_deploy(runs: Runs, ask: Ask) -> None:
    """The output stays, so a repeat whose first answer was lost drops nothing; `anew` would."""
    output = KeptValue(text='"Dear Ada"')
    retried = ask(runs.unable(output=output).manifest, "retry").manifest
    again = runs.unable(runs.leased(retried, at=15, lease_id="lease-2"), at=16).manifest

    assert ask(again, "retry").manifest.has_unjudged_output
    with pytest.raises(StateChangedError):
        ask(again, "retry", anew=True)


def test_an_unbound_repeat_that_the_state_forbids_says_so(runs: Runs, ask: Ask) -> None:
    for operation in ("approve", "retry", "cancel", "pause"):
        done = ask(runs.blocked(), operation).manifest

        with pytest.raises(NotAllowedError):
            ask(done, operation)


def test_a_cancellation_that_names_no_generation_means_the_run_wherever_it_is(
    ask: Ask, at_gate_2: Manifest
) -> None:
    with pytest.raises(StateChangedError):
        ask(at_gate_2, "cancel", generation=2)
    assert ask(at_gate_2, "cancel").manifest.cancelled


def test_a_call_that_a_store_repeats_knows_its_own_commit(
    runs: Runs, ask: Ask, at_gate_2: Manifest
) -> None:
    """The answer of the store was lost, and another process wrote before it was asked again."""
    mine = at_gate_2.operations[-1].id
    cancelled = ask(runs.leased(), "cancel", id="mine").manifest

    again = ask(at_gate_2, "approve", id=mine, read=2)

    assert (again.outcome, again.changed) == (Outcome.APPROVED, False)
    assert ask(cancelled, "cancel", id="mine").outcome is Outcome.CANCELLED
