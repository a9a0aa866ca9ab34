"""The prices of models, where a library does not say what a response has cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Used(NamedTuple):
    """The tokens of a response of a model.

    Args:
        model: its name, as the agent has it.
        input_tokens: of the request, those from a cache and those put into one included.
        output_tokens: of the response, thoughts included.
        cache_read_tokens: of the request, those that a cache of the provider had.
        cache_write_tokens: of the request, those that it has now.
    """

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


#: Returns the US dollars of a response; None: it is not known.
Price = Callable[[Used], float | None]


def listed_price(used: Used) -> float | None:
    """Return the price of a response by the list of `genai-prices`; None: it has no such model."""
    from genai_prices import Usage, calc_price  # noqa: PLC0415 - it takes a quarter of a second

    tokens = {name: value for name, value in used._asdict().items() if name != "model" and value}
    for name in dict.fromkeys([used.model, used.model.rpartition("/")[2]]):
        try:
            return float(calc_price(Usage(**tokens), name).total_price)
        except LookupError:
            continue
    return None
