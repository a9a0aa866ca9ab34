"""The page of limits has the figures of the code, and says what happens beyond each."""

from __future__ import annotations

import re

import pytest

from docs import limits
from leasehold import errors

ROWS = [limit for story in limits.STORIES.values() for limit in story]


@pytest.mark.parametrize(
    ("story", "what", "figure"),
    [
        ("start", "the input of a run, as JSON", "1 MiB"),
        ("start", "the key of a label, and its value", "64 characters each"),
        ("steps", "`memory_limit`", "64 MiB to 1 TiB"),
        ("steps", "retries without progress in between", "5 by default"),
        ("steps", "silence of a step", "15 minutes by default"),
        ("outputs", "an output, as JSON", "16 MiB"),
        ("checkpoints", "results that a step keeps", "10,000 results"),
        ("progress", "a note for the handler", "4 KiB"),
        ("lists", "items of a list", "100,000 items"),
        ("signals", "`timeout` of a wait", "1 second to 3,660 days"),
        ("http", "the body of `POST /runs`, with files", "22.4 MiB"),
        ("dashboard", "wrong tokens from one address at once", "50 tokens"),
        ("dev", "a task", "1,048,569 bytes"),
    ],
)
def test_a_figure_is_written_as_people_read_it(story: str, what: str, figure: str) -> None:
    """A limit that is changed is changed for callers too: here it is seen."""
    (cells,) = [limit.cells for limit in limits.STORIES[story] if limit.what == what]

    assert cells[1] == figure


def test_a_limit_that_is_a_setting_is_linked_to_the_settings() -> None:
    (cells,) = [limit.cells for limit in ROWS if limit.holder == "PIPELINE_MAX_RETRIES"]

    assert cells[3] == "[`PIPELINE_MAX_RETRIES`](settings.md)"


def test_each_code_of_an_error_on_the_page_is_one() -> None:
    known = {one.code for one in vars(errors).values() if hasattr(one, "code")}
    blocks = {"handler_mistake", "handler_unavailable", "input_mismatch", "limit_unusable"}
    named = {word for limit in ROWS for word in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", limit.beyond)}

    assert named - known - blocks == set()
