"""Attempts by a real Prometheus, as its package of Debian has it."""

from __future__ import annotations

import math
import shutil
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.prometheus import PrometheusSamples
from leasehold.budgets.samples import Outcome
from leasehold.errors import MetricsUnavailableError
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed; get it: apt install prometheus",
)

_EVERY = timedelta(minutes=5)
_WINDOW = timedelta(days=3)
#: A scrape: when it was, and how many attempts there were up to each bound.
_Scrape = tuple[datetime, Mapping[float, int]]


def scraped(name: str, labels: str, scrapes: Sequence[_Scrape]) -> Iterator[str]:
    """Yield the lines of a histogram in the text that Prometheus reads."""
    for bound in scrapes[0][1]:
        le = "+Inf" if bound == math.inf else str(bound)
        for at, counts in scrapes:
            yield f'{name}_bucket{{le="{le}",{labels}}} {counts[bound]} {at.timestamp():.0f}'


def grown(now: datetime) -> list[_Scrape]:
    """Return scrapes of a process that lives for longer than the window: one attempt in each."""
    count = int((_WINDOW + timedelta(days=1)) / _EVERY)
    return [
        (now - _EVERY * (count - at), {60.0: at // 2, 120.0: at, math.inf: at})
        for at in range(count)
    ]


def begun(now: datetime) -> list[_Scrape]:
    """Return scrapes of a process that began half an hour ago: its first attempt, a cold start."""
    return [
        (now - timedelta(minutes=at), {60.0: 0, 120.0: 1, math.inf: 1}) for at in range(30, 0, -1)
    ]


@pytest.fixture(scope="module")
def now() -> datetime:
    return SystemClock().now()


@pytest.fixture(scope="module")
def address(now: datetime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the attempts of the step `draft`."""
    folder = tmp_path_factory.mktemp("prometheus")
    lines = ["# TYPE agent_execution_seconds histogram"]
    common = 'step_type="draft",cause="completed"'
    lines += scraped(
        "agent_execution_seconds", f'{common},cold_start="false",instance="one"', grown(now)
    )
    lines += scraped(
        "agent_execution_seconds", f'{common},cold_start="true",instance="two"', begun(now)
    )
    lines += ["# TYPE agent_bootstrap_seconds histogram"]
    lines += scraped("agent_bootstrap_seconds", f'{common},cold_start="false"', grown(now))
    (folder / "scrapes").write_text("\n".join([*lines, "# EOF", ""]))
    (folder / "prometheus.yml").write_text("global: {}\n")
    tool = str(shutil.which("promtool"))
    few = "--max-block-duration=240h"  # a block takes as long as a whole test
    made = [tool, "tsdb", "create-blocks-from", few, "openmetrics", "scrapes", "data"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    host = f"127.0.0.1:{own_port()}"
    words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(shutil.which("prometheus")), *words, f"--web.listen-address={host}"],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: server.poll() is not None or is_ready(host))
        assert server.poll() is None, (folder / "log").read_text()
        yield f"http://{host}"
    finally:
        server.kill()
        server.wait()


def is_ready(host: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}/-/ready", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def source(address: str, execution: str = "agent.execution_seconds") -> PrometheusSamples:
    return PrometheusSamples(
        address,
        bootstrap="agent.bootstrap_seconds",
        execution=execution,
        window=_WINDOW,
        clock=SystemClock(),
    )


def test_its_histograms_become_attempts_of_three_spans(address: str, now: datetime) -> None:
    found = source(address).samples("draft", now - _WINDOW)

    counted = Counter(
        (next(hours for hours in (1, 24, 72) if now - one.ended_at < timedelta(hours=hours)))
        for one in found
        if not one.cold
    )
    assert counted[1] == pytest.approx(12, abs=4)
    assert counted[24] == pytest.approx(23 * 12, abs=6)
    assert counted[72] == pytest.approx(48 * 12, abs=6)
    assert {one.outcome for one in found} == {Outcome.SUCCESS}
    times = Counter(one.execution_seconds for one in found if not one.cold)
    assert times[60.0] == pytest.approx(times[120.0], abs=12)


def test_the_one_cold_start_of_a_process_is_counted(address: str, now: datetime) -> None:
    """Its series begins with 1, and never grows: `increase` alone finds nothing."""
    found = source(address).samples("draft", now - _WINDOW)

    assert [one.execution_seconds for one in found if one.cold] == [120.0]


def test_what_it_does_not_have_is_refused(address: str, now: datetime) -> None:
    with pytest.raises(MetricsUnavailableError, match="no attempts of step review"):
        source(address).samples("review", now - _WINDOW)
    with pytest.raises(MetricsUnavailableError, match=r"in shop\.execution \(PIPELINE_BUDGET_EXEC"):
        source(address, "shop.execution").samples("draft", now - _WINDOW)
