"""The sentences of a proposal: what changed and why, for people."""

from __future__ import annotations

from typing import Final

from leasehold.budgets.phases import ALL, Phase
from leasehold.budgets.proposal import BudgetSettings, Limit, PhaseEstimate, Strategy

TOO_FEW: Final = "The limit stays: there are too few complete durations to estimate from."
DRIFTED: Final = (
    "Durations changed: those of the short window differ from those before it by more than chance, "
    "so the short window alone counts."
)
REFUTED: Final = "The declared limit no longer counts: it would clip too many attempts."
SMALL: Final = "The window is small, so the limit stays above its longest success."
APPLIED_ELSEWHERE: Final = (
    "Another deploy derived this step with the strategy phase_decoupled in the last two hours: its "
    "budget stays, and what this one proposes is not stored. Unless the strategy was just changed, "
    "give both the same."
)
CLIPS: Final = (
    "The limit in force clipped each of the last three attempts. Where they hang, no limit helps "
    "them."
)


def not_applied(strategy: Strategy) -> str:
    """Return why a proposed limit is not in force."""
    return f"The declared limit stays in force, as the strategy is {strategy}."


def stays(limit: Limit) -> str:
    """Return that nothing changed."""
    return f"The limit stays at {_words(limit)}: the samples ask for no other."


def raised(before: Limit, after: Limit) -> str:
    """Return that the limit goes up to where the samples ask for it."""
    return f"The limit rises at once from {_words(before)} to {_words(after)}, as the samples ask."


def lowered(before: Limit, after: Limit, target: Limit) -> str:
    """Return how far the limit goes down."""
    return (
        f"The limit goes down from {_words(before)} to {_words(after)}, "
        f"by at most 20 % a day; the samples ask for {_words(target)}."
    )


def on_its_way(limit: Limit, target: Limit) -> str:
    """Return that the limit will be lower, and is not yet."""
    return (
        f"The limit stays at {_words(limit)} for now: it goes down by at most 20 % a day; "
        f"the samples ask for {_words(target)}."
    )


def disputed(limit: Limit, proposed: Limit) -> str:
    """Return that the estimates differ too much for the limit to be applied."""
    return (
        f"{_words(proposed)} is only proposed, and the limit is {_words(limit)}: "
        "one estimate asks for more than 1.5 times the other."
    )


def doubled(before: Limit, after: Limit) -> str:
    """Return that the limit clipped attempts in a row."""
    return (
        f"The limit doubles from {_words(before)} to {_words(after)}: it clipped the last three "
        "attempts."
    )


def is_longest(limit: Limit) -> str:
    """Return that the limit does not double any more."""
    return f"The limit stays at {_words(limit)}, the longest that is derived."


def estimated(phase: Phase, found: PhaseEstimate, settings: BudgetSettings) -> str:
    """Return how long a phase takes at the percentile, and from how many attempts that is known."""
    group = "" if found.group == ALL else f"{found.group} "
    return (
        f"Of {found.observations} {group}attempts, {found.censored} of them cut off, "
        f"{_percent(settings.percentile)} end their {phase} within {_seconds(found.bound)}, "
        f"with {_percent(settings.confidence)} confidence."
    )


def hanging(probes: int) -> str:
    """Return that attempts did not end under the longest limit either."""
    return (
        f"Tail probes that did not end under the longest limit either: {probes}. Such attempts "
        "hang, and no limit helps them."
    )


def prior(declared: Limit, samples: int) -> str:
    """Return how much the declared limit counts."""
    return f"The declared limit, {_words(declared)}, counts as 20 samples beside {samples}."


def dropped(how_many: int) -> str:
    """Return how many samples cannot be true."""
    return f"Samples dropped because they cannot be true: {how_many}."


def _words(limit: Limit) -> str:
    return f"{_seconds(limit.total_seconds)} ({_seconds(limit.execution_seconds)} for execution)"


def _seconds(seconds: float) -> str:
    return f"{round(seconds, 1):g} s"


def _percent(share: float) -> str:
    return f"{round(100 * share, 3):g} %"
