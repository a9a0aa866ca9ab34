"""What is cut out of a line of source code: texts and numbers that are secrets, and no code."""

from __future__ import annotations

import pytest

from leasehold.domain.redaction import Redaction
from leasehold.worker.failures.tracebacks import redacted_source


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('login(user, password="hunter2", retry=3)', "login(user, password=[redacted], retry=3)"),
        ('token: str = "hunter2"  # old', "token: str = [redacted]  # old"),
        ('{"api_key": "hunter2", "n": 1}', '{"api_key": [redacted], "n": 1}'),
        ('os.environ["DB_PASSWORD"] = "hunter2"', 'os.environ["DB_PASSWORD"] = [redacted]'),
        ('headers=[("x-api-key", "hunter2")]', 'headers=[("x-api-key", [redacted])]'),
        ('SecretStr("hunter2")', "SecretStr([redacted])"),
        ('if password == "hunter2": pass', "if password == [redacted]: pass"),
        ("pwd = 12345678", "pwd = [redacted]"),
        ('password = "unclosed', "password = [redacted]"),
        ('connect("password=hunter2 host=db")', 'connect("password=[redacted] host=db")'),
        ('get("postgres://ada:hunter2@db/x")', 'get("postgres://ada:[redacted]@db/x")'),
        ('call("Bearer abcdef123456")', 'call("Bearer [redacted]")'),
    ],
)
def test_a_secret_is_cut_out_of_a_line(line: str, shown: str) -> None:
    assert redacted_source(line, Redaction()) == shown


@pytest.mark.parametrize(
    "line",
    [
        "client = Client(api_key=settings.api_key, timeout=3)",
        "token = tokens[0].strip()",
        "tokens = [word for word in words if word]",
        'raise ValueError(f"bad token: {token}") from error',
        'assert response.status == 200, f"token={token!r} host={host}"',
        "max_tokens = 4096",
        'ctx.output_of("login")["token"]',
        "def login(user, password): return password",
        "return 1 / 0",
    ],
)
def test_code_stays(line: str) -> None:
    assert redacted_source(line, Redaction()) == line


def test_what_is_known_for_a_secret_is_cut_out_of_code() -> None:
    redaction = Redaction()
    redaction.value({"password": "hunter2"})

    assert redacted_source('raise ValueError("hunter2 is short")', redaction) == (
        'raise ValueError("[redacted] is short")'
    )


@pytest.mark.parametrize(
    ("before", "line", "shown"),
    [
        (["api_key = (\n"], '"hunter2" + fail()', "[redacted] + fail()"),
        (['d = {"password":\n'], '"hunter2" + fail()}', "[redacted] + fail()}"),
        (['q = f"""\n'], "password: hunter2 {fail()}", "password: [redacted] {fail()}"),
        (['q = """a"""\n', "x = f'''\n"], "PGPASSWORD=hunter2 {a}", "PGPASSWORD=[redacted] {a}"),
        (['q = f"""\n'], "token={token!r} host={host}", "token={token!r} host={host}"),
        (['"""About."""\n', "\n"], "token = tokens[0]", "token = tokens[0]"),
        (["def login(user, password):\n"], 'fail("stays")', 'fail("stays")'),
    ],
)
def test_a_secret_of_several_lines_is_cut_out_of_each(
    before: list[str], line: str, shown: str
) -> None:
    assert redacted_source(line, Redaction(), before) == shown
