"""The JSON output of a command is valid JSON, whatever a server said."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from leasehold.cli.stdout import print_json, print_json_line
from leasehold.domain.manifest_parts import Progress


@pytest.mark.parametrize("share", [inf, nan])
def test_a_value_that_is_not_a_json_number_is_null(
    share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json_line({"progress": Progress(fraction=share), "of": ["läuft", 1]})
    print_json(Progress(fraction=share))

    line, block = capsys.readouterr().out.split("\n", 1)
    assert json.loads(line)["progress"]["fraction"] is None
    assert json.loads(block)["fraction"] is None
