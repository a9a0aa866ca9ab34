"""What the local agent objects to, by the words of a point and of what it quotes."""

from __future__ import annotations

import pytest

from pipelines.review.local_agent import LocalAgent
from pipelines.review.questions import Aspect, Inspection, QuotedPoint
from pipelines.review.supervision import ASPECTS

RENEW = "A worker should renew its lease every 10 seconds."


def objected(aspect: Aspect, *points: tuple[str, str]) -> list[int]:
    """Return the numbers of the points that are objected to; each with what it quotes."""
    quoted = tuple(
        QuotedPoint(number=number, text=text, quotes=(quote,))
        for number, (text, quote) in enumerate(points, start=1)
    )
    agent = LocalAgent()
    return [each.point for each in agent.objections(Inspection(aspect=aspect, points=quoted))]


@pytest.mark.parametrize("aspect", ASPECTS)
def test_what_is_said_word_for_word_is_never_objected_to(aspect: Aspect) -> None:
    points = (RENEW, "No file is ever deleted by the sweep.", "It must be so.", "", "5")

    assert objected(aspect, *((text, text) for text in points)) == []


@pytest.mark.parametrize(
    ("aspect", "text"),
    [
        ("support", "Retries cost money."),
        ("strength", "A worker must renew its lease every 10 seconds."),
        ("sense", "A worker should not renew its lease every 10 seconds."),
    ],
)
def test_a_point_that_does_not_say_what_it_quotes_is_objected_to(aspect: Aspect, text: str) -> None:
    assert objected(aspect, (RENEW, RENEW), (text, RENEW)) == [2]


@pytest.mark.parametrize(
    ("aspect", "text"),
    [
        ("repetition", "The worker should renew the lease every 10 seconds."),
        ("contradiction", "The worker should renew the lease every 20 seconds."),
    ],
)
def test_a_point_that_repeats_or_contradicts_an_earlier_one_is_objected_to(
    aspect: Aspect, text: str
) -> None:
    assert objected(aspect, (RENEW, RENEW), (text, text)) == [2]
