"""What an installation may be called: the rest is refused before anything is looked at."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from leasehold.cli.deploy.options import installation_of
from leasehold.errors import InvalidEntryError
from leasehold.google_clients.clients import EMULATOR
from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.cloud import deploy

ROOT = Path(__file__).parents[2]
GIVEN = {"project": "shop-prod", "project_number": "123456789012", "region": "europe-west1"}


def test_what_is_not_given_has_its_default() -> None:
    installation = installation_of(GIVEN | {"bucket": "", "retention_days": None})

    assert installation.bucket_name == "shop-prod-leasehold"
    assert installation.retention_days is None
    assert installation.topic_name == "projects/shop-prod/topics/leasehold-announcements"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("project", "Shop"),
        ("project", "shop prod"),
        ("project", "shop-prod; rm -rf /"),
        ("project", "x" * 31),
        ("project", "shop-prød"),
        ("project", "example.com:shop-prod"),  # its accounts are …@shop-prod.example.com.iam…
        ("project_number", "12e3"),
        ("region", "europe"),
        ("region", "europe-west1-b"),
        ("region", "../europe-west1"),
        ("region", f"{'a' * 100_000}-west1"),
        ("database", "Default"),
        ("database", "abc"),
        ("bucket", "Shop"),
        ("bucket", "google-shop"),
        ("bucket", "x" * 64),
        ("topic", "ab"),
        ("topic", "goog-topic"),
        ("topic", "x" * 251),
        ("topic", "a/b/c"),
        ("alert_email", "nobody"),
        ("callers", ("allUsers",)),
        ("callers", ("allAuthenticatedUsers",)),
        ("callers", ("user:a@example.com,user:b@example.com",)),
        ("callers", ("user:\x1b[2Ja@example.com",)),
        ("workers", ("user:",)),
        ("workers", (f"user:{'a' * 100_000}@example.com",)),
    ],
)
def test_an_impossible_value_is_refused_with_the_allowed_ones(name: str, value: Any) -> None:
    with pytest.raises(click.UsageError, match="allowed: ") as refused:
        installation_of(GIVEN | {name: value})
    assert len(str(refused.value)) < 300


def test_a_project_that_no_bucket_may_be_named_after_is_told_what_to_give() -> None:
    with pytest.raises(click.UsageError, match="give --bucket"):
        installation_of(GIVEN | {"project": "goog-shop"})


def test_the_ledger_is_kept_no_longer_than_firestore_can_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of `Field.TtlConfig.expiration_offset`: at most 2,147,483,647 seconds."""
    assert deploy(["plan", "--ledger-days=24856"]) == 2
    assert "24856 is not in the range 1<=x<=24855" in capsys.readouterr().err
    assert (
        timedelta(days=24_855).total_seconds() <= 2**31 - 1 < timedelta(days=24_856).total_seconds()
    )


def test_no_name_of_the_table_makes_an_address_too_long() -> None:
    """A part of an address has 63 characters; beyond that the known address does not exist."""
    longest = replace(FUNCTIONS["serve_api"], name="a" * 20)
    installation = installation_of(GIVEN | {"project_number": "9" * 19})

    label = installation.url_of(longest).removeprefix("https://").partition(".")[0]

    assert len(label) <= 63
    with pytest.raises(InvalidEntryError):
        replace(longest, name="a" * 21)


@pytest.mark.parametrize("command", ["plan", "settings"])
def test_a_missing_package_is_reported_with_the_command(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "google.api_core.exceptions", None)  # as without it
    monkeypatch.setattr("leasehold.registry.extras._is_installed", lambda _: False)
    words = ["--project=shop-prod", "--region=europe-west1"]

    assert deploy([command, *words]) == 2

    assert f"Type: pip install -e '{ROOT}[deploy]'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "settings"])
def test_a_catalog_that_ends_the_process_is_told_and_never_counts_as_done(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A build would go on with resources that were never provisioned."""
    (tmp_path / "ending_catalog.py").write_text("import os\n\nos._exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(EMULATOR, "127.0.0.1:1")  # where nobody listens: no account is needed
    words = ["--project=shop-prod", "--project-number=123456789012", "--region=europe-west1"]

    assert deploy([command, *words, "--catalog=ending_catalog"]) == 2

    assert "importing it raised SystemExit: os._exit(0)" in capsys.readouterr().err
