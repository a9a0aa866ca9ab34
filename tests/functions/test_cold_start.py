"""What a function imports at its cold start: nothing that only others need."""

from __future__ import annotations

import subprocess
import sys

#: The client of Pub/Sub, what tries an announcement again, and what sends one; what checks the
#: signature of a token, which Cloud Run has done.
COSTLY = (
    *("google.pubsub_v1", "google.cloud.pubsub_v1", "tenacity", "slack_sdk", "smtplib"),
    *("google.auth", "cryptography", "requests", "urllib.request"),
)


def test_functions_that_tell_nobody_do_not_import_what_tells(announcing: dict[str, str]) -> None:
    """Their engines are opened, with a bus of this process, and without one message."""
    program = f"""
import os, sys
os.environ["LEASEHOLD_EVENTS"] = "in-process"
from functions import execute_step, manage_lease, serve_api, sweep_dead_letters
for function in (execute_step, manage_lease, serve_api, sweep_dead_letters):
    function.provider.engine
print([name for name in {COSTLY} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_a_bus_of_pubsub_is_imported_with_the_first_message(announcing: dict[str, str]) -> None:
    program = """
import os, sys
os.environ["LEASEHOLD_EVENTS"] = "pubsub://project/topic"
from functions import execute_step
execute_step.provider.engine
print([name for name in sys.modules if name.startswith("google.pubsub")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
