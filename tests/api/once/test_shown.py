"""Recorded results, and the calls that they spared, as the command line shows them."""

from __future__ import annotations

from pathlib import Path

from leasehold.testing import InProcessEngine
from tests.worlds.shell import Shell


def test_trace_and_show_tell_how_many_calls_were_made_and_spared(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    """The values are shown as outputs are; no column is shown where no step makes calls once."""
    names = ["one", "two", "three"]
    run = engine.start("asks", {"names": names, "fails": [2], "keep": ["two"]})
    engine.run_until_settled(run.run_id)
    shell = Shell(tmp_path, {"LEASEHOLD_STORE": f"sqlite:///{tmp_path}/leasehold.db"})

    trace = shell.run("trace", run.run_id).stdout
    show = shell.run("show", run.run_id).stdout.splitlines()
    events = shell.json("trace", run.run_id)["events"]
    manifest = shell.json("show", run.run_id)

    assert "step_completed\task\t2\t3 calls made, 2 spared\n" in trace
    assert "\t1 call made, 0 spared\n" in trace
    assert [
        (event["callsMade"], event["callsSpared"]) for event in events if "callsMade" in event
    ] == [
        (3, 2),
        (1, 0),
    ]
    assert [line.split("\t")[-1] for line in show[-3:]] == [
        "CALLS",
        "3 made, 2 spared",
        "1 made, 0 spared",
    ]
    assert manifest["steps"]["ask"]["calls"] == {"made": 3, "spared": 2}
    (kept,) = [call for call in shell.json("calls", run.run_id)["calls"] if call["keep"]]
    assert (kept["key"], kept["result"]) == ("two", "two 2 xxxx")
