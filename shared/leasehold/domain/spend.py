"""Spend: what the work of a run has cost, and the budgets that it blocks at."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final, NamedTuple

from leasehold.domain.stored import Stored, make
from leasehold.errors import InvalidRequestError
from leasehold.frozen import dataclass

#: Dollars are kept to so many digits: sums of them are exact up to millions.
_DIGITS: Final = 9
#: The most that is taken of each at a time.
MAX_TOKENS: Final = 10**12
MAX_USD: Final = 10**6

_MAX_VALUE_SHOWN_CHARS: Final = 100
_TOKENS: Final = f"a whole number of tokens from 0 to {MAX_TOKENS:,}"
_USD: Final = f"a number of dollars from 0 to {MAX_USD:,}"


class Spend(Stored):
    """An amount that was spent: tokens, and US dollars to nine digits."""

    tokens: int = 0
    usd: float = 0.0

    def plus(self, other: Spend | None) -> Spend:
        """Return the sum of both."""
        if other is None:
            return self
        return spend_of(self.tokens + other.tokens, self.usd + other.usd)

    def beyond(self, counted: Spend | None) -> Spend:
        """Return what of it was not counted before."""
        if counted is None:
            return self
        return spend_of(max(0, self.tokens - counted.tokens), max(0.0, self.usd - counted.usd))

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was spent."""
        return not (self.tokens or self.usd)

    @property
    def words(self) -> str:
        """The amount for people: `1.24 USD, 310k tokens`."""
        parts = [usd_words(self.usd)] if self.usd else []
        parts += [f"{_short(self.tokens)} tokens"] if self.tokens else []
        return ", ".join(parts) or "nothing"


NOTHING: Final = make(Spend)


def spend_of(tokens: int, usd: float) -> Spend:
    """Return an amount, its dollars to the digits that are kept."""
    return make(Spend, tokens=tokens, usd=round(usd, _DIGITS))


def total_of(spends: Iterable[Spend | None]) -> Spend:
    """Return the sum of amounts; None: nothing."""
    total = NOTHING
    for each in spends:
        if each is not None:
            total = total.plus(each)
    return total


def checked_spend(tokens: object, usd: object) -> Spend:
    """Return what a caller says was spent, or raise InvalidRequestError."""
    count, amount = _whole(tokens, MAX_TOKENS), _amount(usd, MAX_USD)
    if count is None:
        raise InvalidRequestError(field="tokens", value=_shown(tokens), allowed=_TOKENS)
    if amount is None:
        raise InvalidRequestError(field="usd", value=_shown(usd), allowed=_USD)
    return spend_of(count, amount)


def usd_words(usd: float) -> str:
    """Return dollars with the digits that say something: 1.24 USD, 0.00035 USD."""
    if usd >= 0.1 or not usd:  # noqa: PLR2004 - cents say enough
        return f"{usd:,.2f} USD"
    text = f"{usd:.2g}" if usd >= 0.0001 else f"{usd:.{_DIGITS}f}".rstrip("0")  # noqa: PLR2004
    return f"{text} USD"


def _short(tokens: int) -> str:
    """Return a number of tokens in at most four digits: 950, 9.5k, 310k, 1.2M."""
    size, unit = next(
        (each for each in ((10**9, "G"), (10**6, "M"), (1000, "k")) if tokens >= each[0]), (1, "")
    )
    if size == 1:
        return str(tokens)
    share = tokens / size
    digits = 1 if share < 10 else 0  # noqa: PLR2004 - 9.5k, but 95k
    return f"{share:.{digits}f}".removesuffix(".0") + unit


def _whole(value: object, most: int) -> int | None:
    """Return a whole number from 0 to the most, of whatever library; None: it is none."""
    try:
        number = operator.index(value)  # type: ignore[arg-type] # it says whether it is one
    except TypeError:
        return None
    return number if type(value) is not bool and 0 <= number <= most else None


def _amount(value: object, most: int) -> float | None:
    """Return a number from 0 to the most; None: it is none."""
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    return amount if 0 <= amount <= most else None


def _shown(value: object) -> object:
    return value if isinstance(value, int | float) else repr(value)[:_MAX_VALUE_SHOWN_CHARS]


# Budgets: how much a run, or a step of it, may spend.


#: A field, its value, and what is allowed in its place.
Problem = tuple[str, object, str]


#: The code of the block of a run whose budget is used up.
BUDGET_EXCEEDED: Final = "budget_exceeded"


class SpendLimit(Stored):
    """A budget as a run keeps it; None: no limit of this kind."""

    tokens: int | None = None
    usd: float | None = None

    def is_used_up_by(self, spend: Spend) -> bool:
        """Return whether so much spend has reached it in tokens or in dollars."""
        return (self.tokens is not None and spend.tokens >= self.tokens) or (
            self.usd is not None and spend.usd >= self.usd
        )

    def with_changes(self, other: SpendLimit | None) -> SpendLimit:
        """Return the limits, those of `other` in place of its own of the same kind."""
        if other is None:
            return self
        return make(
            SpendLimit,
            tokens=self.tokens if other.tokens is None else other.tokens,
            usd=self.usd if other.usd is None else other.usd,
        )

    def shared(self, spend: Spend, parts: int) -> SpendLimit:
        """Return an equal part of what `spend` leaves of it, at least the smallest amount."""
        left = None if self.tokens is None else (self.tokens - spend.tokens) // parts
        usd = None if self.usd is None else round((self.usd - spend.usd) / parts, _DIGITS)
        return make(
            SpendLimit,
            tokens=None if left is None else max(1, left),
            usd=None if usd is None else max(10**-_DIGITS, usd),
        )

    def beyond(self, spend: Spend) -> SpendLimit:
        """Return the limits of one that has spent so much, and may spend these more."""
        return make(
            SpendLimit,
            tokens=None if self.tokens is None else spend.tokens + self.tokens,
            usd=None if self.usd is None else round(spend.usd + self.usd, _DIGITS),
        )

    def reserved(self, spend: Spend) -> Spend:
        """Return what one that may spend so much takes at most, where it has spent that."""
        return spend_of(max(spend.tokens, self.tokens or 0), max(spend.usd, self.usd or 0.0))

    def exceeds(self, other: SpendLimit | None) -> bool:
        """Return whether it gives more of anything than another one."""
        old = other or make(SpendLimit)
        return (self.tokens or 0) > (old.tokens or 0) or (self.usd or 0.0) > (old.usd or 0.0)

    def more_for(self, spend: Spend) -> str:
        """Return a budget that is higher than the spend, as words of a command: `usd=10`."""
        parts = []
        if self.usd is not None and spend.usd >= self.usd:
            parts.append(f"usd={2 * max(spend.usd, self.usd):.2g}")
        if self.tokens is not None and spend.tokens >= self.tokens:
            parts.append(f"tokens={2 * max(spend.tokens, self.tokens)}")
        return " --budget ".join(parts)

    @property
    def words(self) -> str:
        """The limits for people: `5.00 USD, 1M tokens`."""
        parts = [usd_words(self.usd)] if self.usd is not None else []
        parts += [f"{_short(self.tokens)} tokens"] if self.tokens is not None else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a run, or a step of it, may spend before it blocks as `budget_exceeded`.

    Args:
        usd: in US dollars; None: any amount.
        tokens: None: any number.
    """

    usd: float | None = None
    tokens: int | None = None

    def problems(self, field: str = "budget") -> Iterator[Problem]:
        """Yield what keeps it from being a budget."""
        if self.usd is None and self.tokens is None:
            yield field, "nothing", "Budget(usd=…), Budget(tokens=…), or both"
        if self.usd is not None and not round(_amount(self.usd, MAX_USD) or 0.0, _DIGITS):
            allowed = f"a number of dollars above 0, at most {MAX_USD:,}"
            yield f"{field}.usd", _shown(self.usd), allowed
        if self.tokens is not None and not _whole(self.tokens, MAX_TOKENS):
            allowed = f"a whole number of tokens above 0, at most {MAX_TOKENS:,}"
            yield f"{field}.tokens", _shown(self.tokens), allowed

    def as_limit(self) -> SpendLimit:
        """Return it as a run keeps it."""
        usd = None if self.usd is None else round(float(self.usd), _DIGITS)
        tokens = None if self.tokens is None else int(self.tokens)
        return make(SpendLimit, tokens=tokens, usd=usd)


def limit_of(first: SpendLimit | None, *others: SpendLimit | None) -> SpendLimit | None:
    """Return the limits in force, the last word of each kind; None: there are none."""
    for other in others:
        first = other if first is None else first.with_changes(other)
    return first


class UsedUp(NamedTuple):
    """A budget that is used up.

    Args:
        whose: `The run`, or `Step draft`.
        spend: what was spent of it.
        limit: the budget.
    """

    whose: str
    spend: Spend
    limit: SpendLimit

    @property
    def finding(self) -> str:
        """The same in a sentence."""
        return f"{self.whose} has spent {self.spend.words} of its budget of {self.limit.words}."


def checked_budget(usd: object, tokens: object) -> SpendLimit | None:
    """Return a budget that a caller gives, or raise InvalidRequestError; None: none is given."""
    if usd is None and tokens is None:
        return None
    budget = Budget(usd, tokens)  # type: ignore[arg-type] # what it may be is checked here
    for field, value, allowed in budget.problems():
        raise InvalidRequestError(field=field, value=value, allowed=allowed)
    return budget.as_limit()
