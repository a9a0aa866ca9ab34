"""Step publish of `make demo CHAOS=1`: in its first attempt it never ends, and ignores its stop."""

import contextlib
import time
from datetime import timedelta
from typing import Final

from leasehold import StepContext
from pipelines.review import publish as published
from pipelines.review.models import Publication, Review

LIMIT: Final = timedelta(seconds=5)


def publish(ctx: StepContext, given: Review) -> Publication:
    """Hang in the first attempt, whatever interrupts it; then publish."""
    while ctx.attempt == 1:
        with contextlib.suppress(BaseException):  # its soft limit is an exception, too
            wait_for_what_never_comes()
    return published.publish(ctx, given)


def wait_for_what_never_comes() -> None:
    """Loop forever; it sleeps, as a loop that never rests would slow down all that it is beside."""
    while True:
        time.sleep(0.01)
