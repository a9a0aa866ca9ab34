"""The file of LEASEHOLD_CONFIG: settings by the names that operators know, checked by line."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.errors import SettingsFileError
from leasehold.registry.settings import FILE_KEYS, SETTINGS, read_settings

ALL = """
scheduling:
  strategy: phase_decoupled
  metrics_source: https://prometheus.example/
budget:
  init_p95:
    source: metric:agent.bootstrap_seconds
  exec_p95:
    source: metric:shop_execution
  percentile: 0.9
  safety_buffer: 120
  rounding_granularity: 30
  window: 14
delivery:
  retry_policy: {tries: 4, first_wait: 2.5, multiplier: 3}
  idempotency_store: runs
settings:
  PIPELINE_LEASE_TTL_S: 45
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "leasehold.yaml"


def read(file: Path, text: str, **environ: str) -> dict[str, object]:
    file.write_text(text)
    return read_settings({"LEASEHOLD_CONFIG": str(file), **environ})


def test_each_key_sets_what_it_names(file: Path) -> None:
    values = read(file, ALL)

    assert {name: values[name] for name in values if name in _named(ALL)} == {
        "PIPELINE_LIMIT_STRATEGY": "phase_decoupled",
        "PIPELINE_METRICS_SOURCE": "https://prometheus.example",
        "PIPELINE_BUDGET_INIT_SOURCE": "agent.bootstrap_seconds",
        "PIPELINE_BUDGET_EXEC_SOURCE": "shop_execution",
        "PIPELINE_BUDGET_PERCENTILE": 0.9,
        "PIPELINE_BUDGET_BUFFER_S": timedelta(seconds=120),
        "PIPELINE_BUDGET_ROUNDING_S": timedelta(seconds=30),
        "PIPELINE_BUDGET_WINDOW_DAYS": timedelta(days=14),
        "PIPELINE_DELIVERY_TRIES": 4,
        "PIPELINE_DELIVERY_WAIT_S": timedelta(seconds=2.5),
        "PIPELINE_DELIVERY_MULTIPLIER": 3,
        "PIPELINE_DELIVERY_STORE": "runs",
        "PIPELINE_LEASE_TTL_S": timedelta(seconds=45),
    }


def _named(text: str) -> set[str]:
    return {"PIPELINE_LEASE_TTL_S"} | {
        entry.name for entry in SETTINGS if entry.file_key and entry.file_key.split(".")[-1] in text
    }


def test_the_environment_goes_over_the_file(file: Path) -> None:
    values = read(file, ALL, PIPELINE_BUDGET_BUFFER_S="60")

    assert values["PIPELINE_BUDGET_BUFFER_S"] == timedelta(minutes=1)
    assert values["PIPELINE_BUDGET_PERCENTILE"] == 0.9


def test_each_setting_has_one_key(file: Path) -> None:
    assert {*SETTINGS.keys()} - {entry.name for entry in FILE_KEYS.values()} == {
        "LEASEHOLD_CONFIG",
        "LEASEHOLD_TOKEN",
        "LEASEHOLD_VIEWER_TOKEN",
        "LEASEHOLD_LINK_SECRET",
    }


def test_a_secret_has_no_key_and_is_not_shown(file: Path) -> None:
    with pytest.raises(SettingsFileError, match=r"LEASEHOLD_TOKEN' is no setting") as it:
        read(file, "settings: {LEASEHOLD_TOKEN: a-secret-of-a-file-in-git}")

    assert "a-secret-of" not in str(it.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "budget:\n", "budget: {}\n"])
def test_a_file_may_be_empty(file: Path, text: str) -> None:
    assert read(file, text)["PIPELINE_BUDGET_BUFFER_S"] == timedelta(minutes=3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("budget:\n  percentil: 0.9\n", "line 2: 'budget.percentil' is no setting; allowed: bud"),
        ("settings:\n  LEASEHOLD_CONFIG: x\n", "line 2: 'settings.LEASEHOLD_CONFIG' is no setting"),
        ("budget: {percentile: 95}\n", "line 1: budget.percentile is '95'; allowed: a share from"),
        ("budget: {percentile: .nan}\n", "budget.percentile is '.nan'; allowed: a share"),
        ("budget: {safety_buffer: -1}\n", "budget.safety_buffer is '-1'; allowed: seconds from 0"),
        ("budget: {safety_buffer: [1]}\n", "budget.safety_buffer has no single value"),
        ("budget: {window: 7d}\n", "budget.window is '7d'; allowed: a whole number of days"),
        ("scheduling: {strategy: Fixed}\n", "scheduling.strategy is 'Fixed'; allowed: fixed, prop"),
        ("delivery: {idempotency_store: redis}\n", "is 'redis'; allowed: runs"),
        ("budget: {window: 7, window: 8}\n", "line 1: budget.window stands there twice"),
        ("- a\n- b\n", "it has no keys at its top"),
        ("a: [\n", "it is no YAML that can be read"),
        ("budget:\n\twindow: 7\n", "line 2: it is no YAML that can be read (found character"),
        ("budget: 5\n", "line 1: budget has no value of its own, but keys, such as budget."),
        ("budget: !!python/name:os.system [id]\n", "budget has no value of its own"),
        ("? [a, b]\n: c\n", "line 1: a key is no text"),
        ("settings: {PIPELINE_LIMIT_STRATEGY: fixed}\n", "allowed: scheduling.strategy"),
        ("settings: {PIPELINE_DRAFT_TIMEOUT_MS: 9}\n", "is set in the environment alone"),
        (
            "delivery: {retry_policy: {first_wait: 700}}\n",
            "leasehold.yaml: delivery.retry_policy.first_wait: PIPELINE_DELIVERY_WAIT_S is '700';",
        ),
        ("a: &x {b: *x}\n", "is no setting"),
        ("bugdet: {}\n", "line 1: 'bugdet' is no setting; allowed: "),
        ("budget: {safety_buffer: 1_80}\n", "budget.safety_buffer is '1_80'; allowed: seconds"),
        ("budget: {safety_buffer: \u0663}\n", "budget.safety_buffer is '\u0663'; allowed: seconds"),
        ("\x00", "it is no YAML that can be read"),
        ("!!python/object/apply:os.system [id]\n", "it has no keys at its top"),
    ],
)
def test_a_mistake_is_refused_in_one_line_that_names_the_key(
    file: Path, text: str, line: str
) -> None:
    with pytest.raises(SettingsFileError) as refused:
        read(file, text)

    message = refused.value.message
    assert line in message
    assert message.startswith(str(file))
    assert "\n" not in message


@pytest.mark.parametrize("value", ["*hunter2", "!hunter2!x y"])
def test_a_secret_that_is_an_alias_or_a_tag_is_not_shown(file: Path, value: str) -> None:
    """An alias, or a tag: the words of the parser have its name, and are in every log."""
    with pytest.raises(SettingsFileError, match="line 2: it is no YAML") as refused:
        read(file, f"settings:\n  LEASEHOLD_TOKEN: {value}\n")

    assert "hunter2" not in str(refused.value)


def test_sections_of_sections_are_read_once_each(file: Path) -> None:
    """A file of 1 MiB had more keys than a process can look at, none of which has a value."""
    aliases = ", ".join("k: *a{}" for _ in range(60))
    sections = ["s0: &a0 {}"] + [
        f"s{level}: &a{level} {{{aliases.replace('{}', str(level - 1))}}}" for level in (1, 2, 3)
    ]

    with pytest.raises(SettingsFileError, match=r"line 1: 's0' is no setting"):
        read(file, "\n".join(sections))
    sections[0] = "budget: &a0 {}"
    with pytest.raises(SettingsFileError, match=r"line 1: 's1\.k' is no setting"):
        read(file, "\n".join(sections))


def test_a_file_that_is_away_or_no_text_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsFileError, match="cannot be read"):
        read_settings({"LEASEHOLD_CONFIG": str(tmp_path / "other.yaml")})
    with pytest.raises(SettingsFileError, match="cannot be read"):
        read_settings({"LEASEHOLD_CONFIG": str(tmp_path)})
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(SettingsFileError, match="no YAML"):
        read_settings({"LEASEHOLD_CONFIG": str(file)})
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(SettingsFileError, match="larger than 1 MiB"):
        read_settings({"LEASEHOLD_CONFIG": str(file)})


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer hung every command, and /dev/zero filled the memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    for path in (str(pipe), "/dev/zero", "\0"):
        with pytest.raises(
            SettingsFileError, match=r"LEASEHOLD_CONFIG (is no file|cannot be read)"
        ):
            read_settings({"LEASEHOLD_CONFIG": path})


def test_a_bad_threshold_is_reported_and_its_default_holds(file: Path) -> None:
    told: list[str] = []
    file.write_text("settings: {PIPELINE_MAX_RETRIES: many}\n")

    values = read_settings({"LEASEHOLD_CONFIG": str(file)}, told.append)

    assert values["PIPELINE_MAX_RETRIES"] == 5
    assert len(told) == 1
