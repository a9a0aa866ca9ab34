"""A file that a command writes for its user: whole or not at all, and over nothing unasked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from leasehold.cli.results import save
from leasehold.ports.artifacts import ArtifactContent


def test_a_file_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "report"

    def blocks() -> Iterator[bytes]:
        yield b"new"
        target.write_bytes(b"of another program")

    with pytest.raises(click.ClickException, match="exists; --force replaces it"):
        save(ArtifactContent(3, blocks()), target, replace=False)

    assert target.read_bytes() == b"of another program"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "report"

    def blocks() -> Iterator[bytes]:
        yield b"half"
        raise click.ClickException("it broke off")

    with pytest.raises(click.ClickException, match="it broke off"):
        save(ArtifactContent(8, blocks()), target, replace=False)

    assert list(tmp_path.iterdir()) == []
