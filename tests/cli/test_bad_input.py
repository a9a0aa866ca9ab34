"""Wrong usage and bad input: exit 2, one line that says what is allowed, and nothing written."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.worlds.ports import own_port
from tests.worlds.shell import Shell, only_line

ORDER = ("start", "order", "--input", '{"amount": 3}')
ORDER_HERE = (*ORDER, "--in-process")
MANY_LABELS = [word for number in range(17) for word in ("--label", f"a:{number}")]

ENTRY = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

def step(name):
    minute = timedelta(minutes=1)
    return StepDispatchEntry(
        step_type=name, handler="shop:reserve", agent_timeout=minute, dispatch_deadline=2 * minute
    )

"""


def assert_refused(shell: Shell, words: tuple[str, ...], *parts: str, **settings: str) -> None:
    refused = shell.run(*words, **settings)

    line = only_line(refused.stderr)
    assert line.startswith("error: ")
    for part in parts:
        assert part in line
    assert (refused.returncode, refused.stdout) == (2, "")
    assert shell.files() == ["shop.py"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("start", "ordr"), ("'ordr'", "order, doomed, broken, deaf")),
        (("start", "order", "--input", '{"amount": "x"}'), ("Order", "amount: Input should be")),
        (("start", "order"), ("Order", "amount: Field required")),
        (("start", "order", "--input", "{amount}"), ("--input", "not JSON", "@FILE")),
        (
            ("start", "order", "--input", '{"amount": 1, "amount": 2}'),
            ("--input", "two values for 'amount'"),
        ),
        (("start", "order", "--input", "NaN"), ("'order'", "JSON")),
        (("start", "order", "--input", "@none.json"), ("--input", "'@none.json'", "No such file")),
        ((*ORDER, "--label", "plain"), ("--label", "'plain'", "key:value")),
        ((*ORDER, "--label", "a:1", "--label", "a:2"), ("--label", "'a'", "once")),
        ((*ORDER, "--label", "a:"), ("--label is ", "'a:'", "1 to 64")),
        ((*ORDER, "--idempotency-key", ""), ("--idempotency-key is ", "1 to 256")),
        (("start", "broken", "--input", '{"amount": 3}'), ("'shop:nowhere'", "'lost'")),
        (("start",), ("PIPELINE", "leasehold start --help")),
        (("strt",), ("'strt'", "start, sweep, trace")),
        (("runs", "--status", "DONE"), ("--status", "'DONE'", "completed")),
        (("runs", "--trouble", "loud"), ("--trouble", "'loud'", "'retrying', 'silent', 'overdue'")),
        (
            ("runs", "--id-prefix", "/"),
            ("--id-prefix is ", "'/'", "the beginning of the id of a run"),
        ),
        (("runs", "--limit", "0"), ("--limit", "1<=x<=1000")),
        (("runs", "--label", "a:b", "--label", "plain"), ("--label", "'plain'", "key:value")),
        (("runs", *MANY_LABELS), ("--label is 17", "at most 16 labels")),
        (("purge", "--older-than", "1d", *MANY_LABELS), ("--label is 17", "at most 16 labels")),
        (
            ("batch", "pause", "--limit", "9", *MANY_LABELS),
            ("--label is 17", "at most 16 labels"),
        ),
        (("runs", "--page-token", "?"), ("--page-token is ", "'?'", "nextPageToken")),
        (("show", "r-none"), ("'r-none'", "leasehold runs")),
        (("trace", "r-none"), ("'r-none'", "leasehold runs")),
        (("why", "r-none"), ("'r-none'", "leasehold runs")),
        (("pause", "r-none"), ("'r-none'", "leasehold runs")),
        (("recreate", "r-none"), ("'r-none'", "leasehold runs")),
        (("retry",), ("RUN", "leasehold retry --help")),
        (("pause", "r-1", "--reason", "a\x07b"), ("reason", "at most 500 printable")),
        (("pause", "r-1", "--url", "ftp://x"), ("--url", "http://HOST:PORT")),
        (("pause", "r-1", "--from-step", "ship"), ("--from-step", "leasehold pause --help")),
        (("recreate", "r-1", "--input", "{amount}"), ("--input", "not JSON", "@FILE")),
        (("recreate", "r-1", "--label", "a:1", "--label", "a:2"), ("--label", "'a'", "once")),
        (("batch", "stop", "--limit", "1"), ("'stop'", "'pause', 'resume', 'cancel', 'retry'")),
        (("batch", "pause", "--pipeline", "order"), ("--limit", "leasehold batch --help")),
        (("batch", "pause", "--pipeline", "order", "--limit", "1001"), ("--limit", "1<=x<=1000")),
        (("batch", "pause", "--limit", "9"), ("--pipeline NAME alone means all runs",)),
        (
            ("batch", "pause", "--pipeline", "order", "--limit", "9", "--from-step", "ship"),
            ("--from-step", "recreate, not for pause"),
        ),
        (
            ("batch", "recreate", "--pipeline", "order", "--limit", "9", "--from-step", "shp"),
            ("--from-step is ", "'shp'", "reserve, charge, ship"),
        ),
        (("dev", "--lease-port", "0"), ("--lease-port", "1<=x<=65535")),
    ],
)
def test_wrong_words_are_refused(
    shell: Shell, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    assert_refused(shell, words, *parts)


def test_an_input_over_a_mebibyte_is_refused(shell: Shell) -> None:
    large = shell.folder.with_name("large.json")
    large.write_text(json.dumps({"amount": 3, "padding": "x" * 1024 * 1024}))

    assert_refused(shell, ("start", "order", "--input", f"@{large}"), "input", "at most 1048576")


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("LEASEHOLD_STORE", "postgres://here", "sqlite:///PATH"),
        ("LEASEHOLD_TASKS", "kafka", "in-process"),
        ("PIPELINE_LEASE_TTL_S", "0", "seconds above 0, at most 86400"),
        (
            "LEASEHOLD_CATALOG",
            "nowhere.catalog",
            "'nowhere.catalog' (LEASEHOLD_CATALOG) is not a module",
        ),
        ("LEASEHOLD_CATALOG", "json", "it has no STEPS"),
    ],
)
def test_a_bad_setting_is_refused(shell: Shell, setting: str, value: str, allowed: str) -> None:
    assert_refused(shell, ORDER, setting, repr(value), allowed, **{setting: value})


def test_the_port_of_the_leases_api_is_its_own(shell: Shell) -> None:
    """Where the catalog has a step for workers elsewhere; else nothing listens there."""
    shell.importing(Path(__file__).parents[2])
    port = str(own_port())

    assert_refused(
        shell,
        ("dev", "--port", port, "--lease-port", port),
        "--lease-port",
        LEASEHOLD_CATALOG="tests.worlds.catalogs.bundle_of_remote",
    )


def test_a_threshold_that_cannot_be_used_is_told_once_and_stops_nothing(shell: Shell) -> None:
    done = shell.run(*ORDER_HERE, "--json", PIPELINE_MAX_RETRIES="many")

    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert warning.startswith("warning: PIPELINE_MAX_RETRIES refused: it is 'many'")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("tables", "parts"),
    [
        (
            "STEPS = Registry('dispatch', [step('a'), step('a')])",
            ("dispatch", "'a' twice", "each key is allowed once"),
        ),
        (
            "PIPELINES = Registry('pipelines', [PipelineEntry(name='order', steps=())])",
            ("steps of 'order'", "at least one step"),
        ),
        (
            "PIPELINES = Registry('p', [PipelineEntry(name='order', steps=('a', 'b', 'a'))])",
            ("steps of 'order'", "each name once; 'a' is there twice"),
        ),
        (
            """
STEPS = Registry('dispatch', [step('a')])
PIPELINES = Registry('pipelines', [PipelineEntry(name='order', steps=('b',))])
""",
            ("steps of 'order'", "'b'", "steps of the dispatch registry: a"),
        ),
        (
            "STEPS = PIPELINES = Registry('dispatch', [step('a')])",
            ("class of 'a'", "pipelines registry", "'StepDispatchEntry'", "allowed: PipelineEntry"),
        ),
        (
            "PIPELINES = Registry('pipelines', [PipelineEntry(name=5, steps=('a',))])",
            ("name of 5", "pipelines registry", "1 to 63"),
        ),
        (
            "PIPELINES = Registry('pipelines', [PipelineEntry(name='order', steps=('a'))])",
            ("steps of 'order'", "'a'", "a tuple of step types"),
        ),
        (
            "import sys; sys.exit(0)",
            ("LEASEHOLD_CATALOG", "'catalog'", "SystemExit: 0, at catalog.py"),
        ),
        ("import sys; sys.exit()", ("LEASEHOLD_CATALOG", "'catalog'", "SystemExit, at catalog.py")),
    ],
)
def test_a_catalog_that_cannot_be_used_is_refused(
    shell: Shell, tmp_path_factory: pytest.TempPathFactory, tables: str, parts: tuple[str, ...]
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "catalog.py").write_text(ENTRY + tables)
    shell.importing(folder)
    shell.settings["LEASEHOLD_CATALOG"] = "catalog"

    for words in (ORDER_HERE, ("registry",)):
        assert_refused(shell, words, *parts)


@pytest.mark.parametrize("setting", ["LEASEHOLD_STORE", "LEASEHOLD_ARTIFACTS"])
def test_a_data_folder_that_cannot_be_written_is_refused(shell: Shell, setting: str) -> None:
    scheme = "sqlite:///" if setting == "LEASEHOLD_STORE" else "file://"
    settings = {
        "LEASEHOLD_STORE": f"sqlite:///{shell.folder.parent}/runs.db",
        setting: f"{scheme}{shell.folder}/shop.py/data",
    }

    for words in (ORDER, ORDER_HERE):
        assert_refused(shell, words, setting, "shop.py/data", "that can be written", **settings)
    assert not (shell.folder.parent / "runs.db").exists()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("LEASEHOLD_ARTIFACTS", "file:///proc/x"),
        ("LEASEHOLD_ARTIFACTS", "file://shop.py"),
        ("LEASEHOLD_STORE", "sqlite:////proc/x/runs.db"),
        ("LEASEHOLD_STORE", "sqlite:///shop.py"),
        ("LEASEHOLD_STORE", f"sqlite:///data/{'n' * 300}"),
    ],
)
def test_one_store_that_cannot_be_used_leaves_nothing_of_the_other(
    shell: Shell, setting: str, value: str
) -> None:
    for words in (ORDER, ORDER_HERE):
        assert_refused(shell, words, setting, value, **{setting: value})


@pytest.mark.parametrize("words", [ORDER, ORDER_HERE, ("runs",), ("show", "r-1")])
def test_a_database_of_another_program_is_refused_and_left_alone(
    shell: Shell, tmp_path_factory: pytest.TempPathFactory, words: tuple[str, ...]
) -> None:
    store = tmp_path_factory.mktemp("foreign") / "walks.db"
    foreign = sqlite3.connect(store)
    foreign.execute("CREATE TABLE runs (km)")
    foreign.execute("PRAGMA user_version = 1")
    foreign.close()
    before = store.read_bytes()

    assert_refused(
        shell, words, "it is another program's database", LEASEHOLD_STORE=f"sqlite:///{store}"
    )

    assert store.read_bytes() == before


def test_a_handler_that_ends_the_program_is_refused(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(
        (shell.folder / "shop.py").read_text().replace("shop:{handler}", "gone.shop:{handler}")
    )
    (shell.folder / "gone").mkdir()
    (shell.folder / "gone" / "shop.py").write_text("raise SystemExit(7)")

    refused = shell.run(*ORDER)

    assert "importing 'gone.shop' raised SystemExit: 7" in only_line(refused.stderr)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_a_path_that_looks_like_a_uri_is_a_path(shell: Shell) -> None:
    done = shell.run(*ORDER_HERE, LEASEHOLD_STORE="sqlite:///file:x")

    assert done.returncode == 0, done.stderr
    assert shell.files() == [".leasehold", "charging", "file:x", "shop.py"]


@pytest.mark.parametrize("words", [ORDER, ORDER_HERE, ("runs",), ("show", "r-1")])
def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    shell: Shell, tmp_path_factory: pytest.TempPathFactory, words: tuple[str, ...]
) -> None:
    store = tmp_path_factory.mktemp("newer") / "newer.db"
    newer(store)
    before = store.read_bytes()

    assert_refused(shell, words, "version 99", "Upgrade", LEASEHOLD_STORE=f"sqlite:///{store}")

    assert store.read_bytes() == before


def test_a_key_that_started_something_else_is_refused(shell: Shell) -> None:
    shell.run(*ORDER, "--idempotency-key", "k")

    refused = shell.run("start", "order", "--input", '{"amount": 4}', "--idempotency-key", "k")

    assert refused.returncode == 2
    assert "'k' belongs to run" in only_line(refused.stderr)
    assert len(shell.json("runs")["runs"]) == 1


def test_an_unexpected_error_is_one_line_and_a_traceback_for_who_asks(shell: Shell) -> None:
    """A file that is not text in place of the catalog's own code is a mistake."""
    (shell.folder / "shop.py").write_text("raise SystemError('odd')")

    plain = shell.run(*ORDER)
    with_debug = shell.run(*ORDER, LEASEHOLD_DEBUG="1")

    assert "SystemError: odd" in only_line(plain.stderr)
    assert "Traceback" in with_debug.stderr


def newer(store: Path) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
