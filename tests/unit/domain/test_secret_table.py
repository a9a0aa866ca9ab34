"""One table of what a secret looks like in a text, and one of what only looks like it."""

from __future__ import annotations

import itertools

import pytest

from leasehold.domain.redaction import Redaction

SECRET = "hunter2" + "-Zq8"

NAMES = (
    "password",
    "db_password",
    "API_KEY",
    "apiKey",
    "client_secret",
    "accessToken",
    "PGPASSWORD",
    "x-api-key",
    "passphrase",
    "DB_PASS",
)

FORMS = (
    "{name}={secret}",
    "{name}: {secret}",
    '{name}="{secret}"',
    "{name} = '{secret}' # old",
    '{{"{name}": "{secret}", "n": 1}}',
    "{{'{name}': '{secret}'}}",
    "grant_type=x&{name}={secret}&n=1",
    "https://x.example/a?n=1&{name}={secret}",
    "login --{name} {secret} --force",
    "login --{name}={secret} --force",
    "<{name}>{secret}</{name}>",
    '<db:{name} of="x">{secret}</db:{name}>',
    "{name}: |\n  {secret}\n  {secret}\nother: 1",
    "  {name}: >-\n    {secret}\n  other: 1",
    '{{"Name": "{name}", "Value": "{secret}"}}',
    "{{'name': '{name}', 'value': '{secret}'}}",
    "export {name}={secret}; run",
    "('{name}', '{secret}')",
)

ALONE = (
    "postgres://ada:{secret}@db/x",
    "postgres://ada:a/b{secret}@db/x",
    "postgres://ada:a?b{secret}@db/x",
    "postgres://ada:a#b{secret}@db/x",
    "redis://:{secret}@cache:6379/0",
    "https://{secret}@git.example/x",
    "Authorization: Bearer {secret}",
    "authorization: Basic {secret}",
    "Authorization: Digest username=ada, response={secret}",
    "Cookie: session={secret}; b=1",
    "Set-Cookie: sid={secret}; Path=/",
    "get(url, auth=('ada', '{secret}'))",
    'get(url, auth=("ada", "{secret}"))',
    "CREATE USER ada IDENTIFIED BY '{secret}'",
    'alter user ada identified by "{secret}"',
    "CREATE USER ada IDENTIFIED WITH caching_sha2 BY '{secret}'",
    "docker login -u ada -p {secret} registry.example",
    "helm registry login x -p {secret}",
    "redis-cli -h x -a {secret} ping",
    "sshpass -p {secret} ssh x",
    "mysql -u ada -p{secret} db",
    "curl -u ada:{secret} https://x",
    "machine x login ada password {secret}",
    "-----BEGIN EC PRIVATE KEY-----\n{secret}\n-----END EC PRIVATE KEY-----",
)


@pytest.mark.parametrize(
    "text",
    [
        *(form.format(name=name, secret=SECRET) for form, name in itertools.product(FORMS, NAMES)),
        *(form.format(secret=SECRET) for form in ALONE),
    ],
)
def test_a_secret_goes_and_what_stands_around_it_stays(text: str) -> None:
    shown = Redaction().text(text)

    assert SECRET not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8080/users/user@example.com",
        "https://x.example:443/a?mail=ada@x.example",
        "docker run -p 8080:80 image",
        "mkdir -p a/b/c",
        "redis-cli -h cache ping",
        "<p>the author of it</p>",
        "<name>Ada</name>",
        "author: |\n  Ada\n  and others",
        '{"name": "colour", "value": "red"}',
        "{'key': 'a', 'value': 7}",
        "login at 10:00 by Ada",
        "user=ada&page=2&total_tokens=7",
        "password: Field required",
        "primary_key=7, key: value",
        "the password was changed",
        "1024 tokens were used of 4096",
        "read 12 of 40 pages",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_a_value_beside_its_name_is_cut_however_the_two_are_written() -> None:
    given = [{"Name": "DB_PASSWORD", "Value": SECRET}, {"Key": "colour", "Value": "red"}]

    assert Redaction().value(given) == [
        {"Name": "DB_PASSWORD", "Value": "[redacted]"},
        {"Key": "colour", "Value": "red"},
    ]
