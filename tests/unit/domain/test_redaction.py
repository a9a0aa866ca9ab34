"""The redaction of an error: the parts that are cut out, and those that stay."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from leasehold.domain.redaction import MAX_SEARCHED_CHARS, Redaction, masked
from leasehold.domain.secret_names import hides


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PGPASSWORD",
        "db.password",
        "user_password",
        "passWord",
        "passwd",
        "pwd",
        "apiKey",
        "api-key",
        "API_KEY",
        "x-goog-api-key",
        "APIKey",
        "OPENAI_API_KEY",
        "token",
        "accessToken",
        "refresh_token",
        "AUTHTOKEN",
        "Authorization",
        "Proxy-Authorization",
        "Set-Cookie",
        "client_secret",
        "clientSecret",
        "AWS_SECRET_ACCESS_KEY",
        "private_key",
        "AccountKey",
        "credentials",
        "passphrase",
    ],
)
def test_a_name_tells_a_secret(name: str) -> None:
    assert hides(name, "abc")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("secretary", "Ada"),
        ("author", "Ada"),
        ("key", "a"),
        ("primary_key", "a"),
        ("idempotencyKey", "a"),
        ("tokenizer", "bpe"),
        ("max_tokens", 512),
        ("promptTokens", "1,024"),
        ("fencingToken", 7),
        ("has_password", True),
        ("password", None),
        ("passenger", "Ada"),
    ],
)
def test_a_name_that_tells_none(name: str, value: Any) -> None:
    assert not hides(name, value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2 for Ada", "password=[redacted] for Ada"),
        ("(password=hunter2)", "(password=[redacted])"),
        ("?user=ada&token=hunter2&page=2", "?user=ada&token=[redacted]&page=2"),
        ("{'password': 'hun\\'ter2', 'n': 1}", "{'password': [redacted], 'n': 1}"),
        ('{"apiKey":"hun\\"ter2","n":1}', '{"apiKey":[redacted],"n":1}'),
        (r'"{\"api_key\": \"hun\\\"ter2\"}"', r'"{\"api_key\": [redacted]}"'),
        ('{"password": "hunter2', '{"password": [redacted]'),
        ("Authorization: Basic YWRh OmFkYQ==\nHost: x", "Authorization: [redacted]\nHost: x"),
        ("Cookie: a=hunter2; b=hunter3", "Cookie: [redacted]"),
        ("sent 'Bearer hunter2.x-y_z' to x", "sent 'Bearer [redacted]' to x"),
        ("with basic aHVudGVyMg==", "with basic [redacted]"),
        ("token: Bearer hunter2", "token: [redacted]"),
        ("('x-api-key', 'hunter2')", "('x-api-key', [redacted])"),
        ("[b'cookie', b'hunter2']", "[b'cookie', [redacted]]"),
        ("login --password hunter2 --force", "login --password [redacted] --force"),
        ("API key provided: hunter2. See x", "API key provided: [redacted]. See x"),
        ("postgres://ada:hun@ter2@db/x", "postgres://ada:[redacted]@db/x"),
        ("https://x/?X-Goog-Signature=0aF3&y=1", "https://x/?X-Goog-Signature=[redacted]&y=1"),
        ("key sk-proj-0123456789.", "key [redacted]."),
        ("AIzaSyA0123456789", "[redacted]"),
        ("ghp_0123456789abcdef", "[redacted]"),
        ("AKIA0123456789ABCDEF", "[redacted]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln is old", "[redacted] is old"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\\nMIIE\n-----END RSA PRIVATE KEY----- and more",
            "[redacted] and more",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE", "[redacted]"),
        ("curl -sSu ada:hunter2 x", "curl -sSu ada:[redacted] x"),
        ("curl -u 'ada:hunter 2' x", "curl -u 'ada:[redacted]' x"),
        ("sshpass -p hunter2 ssh x", "sshpass -p [redacted] ssh x"),
        ("mysqldump -u ada -phunter2 -h db", "mysqldump -u ada -p[redacted] -h db"),
        ("['mysql', '-phunter2', '-h', 'db']", "['mysql', '-p[redacted]', '-h', 'db']"),
        ("machine x login ada password hunter2", "machine x login ada password [redacted]"),
        (
            "https://hooks.zapier.com/hooks/catch/1/a/",
            "https://hooks.zapier.com/hooks/catch/[redacted]",
        ),
        ('auth="password="hunter2"', "auth=[redacted]"),
        ("secrets = {'a': {'b': 'hunter2'}} x", "secrets = [redacted] x"),
        ("secrets = {'a': 'hunter2' x", "secrets = [redacted]"),  # it never closes
        ("auth=('ada', 'hun)ter2') to db", "auth=[redacted] to db"),
        ("tokens: [hunter2]hunter3, x", "tokens: [redacted], x"),
        ('password="correct horse battery', "password=[redacted]"),
    ],
)
def test_a_secret_is_cut_out_of_a_text(text: str, shown: str) -> None:
    assert Redaction().text(text) == shown


#: What real keys are made of; none of these is one, and none stands here whole.
HEX = "0123456789abcdef" * 4
MIXED = "Fake0Fake1Fake2Fake3Fake4Fake5Fake6Fake7Fake8Fake9"


KEYS = (
    "sk" + "-" + MIXED,
    "sk-ant" + "-" + MIXED,
    "sk_live" + "_" + MIXED[:24],
    "rk_test" + "_" + MIXED[:24],
    "AIza" + MIXED[:35],
    "ya29" + "." + MIXED,
    "ghp" + "_" + MIXED[:36],
    "github_pat" + "_" + MIXED,
    "glpat" + "-" + MIXED[:20],
    "xoxb" + "-" + MIXED[:30],
    "xapp" + "-" + MIXED[:30],
    "pypi" + "-" + MIXED,
    "GOCSPX" + "-" + MIXED[:28],
    "AKIA" + MIXED[:16],
    "gsk" + "_" + MIXED,
    "xai" + "-" + MIXED,
    "nvapi" + "-" + MIXED,
    "hvs" + "." + MIXED,
    "hvb" + ".AAAAAQ" + MIXED,
    "SG" + "." + MIXED[:22] + "." + MIXED[:43],
    "whsec" + "_" + MIXED[:32],
    "whsec" + "_" + MIXED[:30] + "w==",
    "shpat" + "_" + HEX[:32],
    "shpss" + "_" + HEX[:32],
    "AGE-SECRET-KEY-" + "1" + "QPZRY9X8" * 7,
    "hf" + "_" + MIXED[:34],
    "npm" + "_" + MIXED[:36],
    "ntn" + "_" + MIXED[:46],
    "secret" + "_" + MIXED[:43],
    "figd" + "_" + MIXED[:40],
    "sbp" + "_" + HEX[:40],
    "pcsk" + "_" + MIXED,
    "dckr_pat" + "_" + MIXED[:27],
    "lsv2_pt" + "_" + HEX[:32] + "_0123456789",
    "pscale_tkn" + "_" + MIXED[:43],
    "rubygems" + "_" + HEX[:48],
    "csk" + "-" + MIXED[:48],
    "tskey-auth" + "-k0Fake1Fake2-" + MIXED[:30],
    "glrt" + "-" + MIXED[:20],
    "dp.pt" + "." + MIXED[:43],
    "dapi" + HEX[:32],
    "key" + "-" + HEX[:32],
    "ATATT" + "3x" + MIXED,
    "1//" + "0g" + MIXED,
    MIXED[:14] + ".atlasv1" + "." + MIXED,
    "123456789" + ":AA" + MIXED[:33],
    "ops_eyJ" + MIXED,
)
AROUND = ("{}", "the key {}, refused", "({})", 'k="{}"', "k: {}.")


def test_a_key_is_known_by_its_shape() -> None:
    for secret, around in itertools.product(KEYS, AROUND):
        text = around.format(secret)

        shown = Redaction().text(text)

        assert secret[:12] not in shown, text
        assert Redaction().value([{"said": text}]) == [{"said": shown}], text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Authorization: Bearer hunter2, status 401 from api.x",
            "Authorization: [redacted], status 401 from api.x",
        ),
        ("Authorization: hunter2 status 401", "Authorization: [redacted] status 401"),
        ("Authorization: Token hunter2; see x", "Authorization: [redacted]; see x"),
        ("Authorization: hunter2", "Authorization: [redacted]"),
        ("proxy-authorization=Basic YTpi, 407", "proxy-authorization=[redacted], 407"),
        (
            'Authorization: Digest username="ada", response="0af", then 401',
            'Authorization: [redacted]", then 401',
        ),
        (
            "Authorization: AWS4-HMAC-SHA256 Credential=ada/2026/s3, Signature=0af, then 403",
            "Authorization: [redacted], then 403",
        ),
        (
            "curl -H 'Authorization: Bearer hunter2' https://x",
            "curl -H 'Authorization: [redacted]' https://x",
        ),
        ("Set-Cookie: a=hunter2; Path=/, then 200", "Set-Cookie: [redacted]"),
        ("curl -sS -u ada:hunter2 https://x", "curl -sS -u ada:[redacted] https://x"),
        ("curl --user=ada:hunter2 https://x", "curl --user=ada:[redacted] https://x"),
        ("['curl', '-u', 'ada:hunter2', 'x']", "['curl', '-u', 'ada:[redacted]', 'x']"),
        (
            "Command '['login', '--password', 'hunter2', '-f']' failed",
            "Command '['login', '--password', [redacted], '-f']' failed",
        ),
        ("DB_PASS=hunter2 ./run", "DB_PASS=[redacted] ./run"),
        ("smtpPass: hunter2", "smtpPass: [redacted]"),
        ("GET /v1?key=hunter2&q=a", "GET /v1?key=[redacted]&q=a"),
        ("(https://x/?q=a&key=hunter2)", "(https://x/?q=a&key=[redacted])"),
        (
            "https://hooks.slack.com/" + "services/T0/B0/hunter2 said 404",
            "https://hooks.slack.com/services/[redacted] said 404",
        ),
        (
            "https://discord.com/api/" + "webhooks/12/hunter2: 404",
            "https://discord.com/api/webhooks/[redacted]: 404",
        ),
        (
            "https://x.webhook.office.com/" + "webhookb2/a@b/IncomingWebhook/c/d is gone",
            "https://x.webhook.office.com/webhookb2/[redacted] is gone",
        ),
    ],
)
def test_only_the_secret_is_cut_and_not_what_is_said_of_it(text: str, shown: str) -> None:
    assert Redaction().text(text) == shown


def test_the_word_after_an_option_is_cut_out_of_a_command() -> None:
    given = [
        ["/usr/bin/curl", "-u", "ada:hunter2", "x"],
        ["curl", "-sSu", "ada:hunter2"],
        ["login", "--password", "hunter2", "-f"],
    ]

    assert Redaction().value(given) == [
        ["/usr/bin/curl", "-u", "[redacted]", "x"],
        ["curl", "-sSu", "[redacted]"],
        ["login", "--password", "[redacted]", "-f"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SG. Weber and SG.Weber.sagt, of SG. 12",
        "a whsec_ key, a gsk_ key and an xai- key are refused",
        "hf_hub_download() and npm_lifecycle_event, secret_manager_of_2024, dp.pt.br",
        "xai-explainability-toolkit-of-the-whole-team",
        "hvs.some-internal-host-name.example.com is down",
        "shpat_test and gsk_short1",
        "AGE-SECRET-KEY-1 is how it begins",
        "https://hooks.slack.com/ and https://discord.com/api/webhooks are up",
        "which key? key=value pairs, please",
        "two-pass: slow, first_pass: slow, bypass: slow",
        "docker run -u www-data:www-data image",
        "sort -u a:b",
        "authorization: required",
        "the authorization of Ada, status 401",
        "token count 512",
        "max_tokens: 512, total_tokens=1024",
        "the secretary said: no",
        "author: Ada",
        "Unexpected token '}' in JSON at position 3",
        "password: must be set",
        "password: Field required",
        "one of 'password', 'token' or 'code'",
        "Bearer authentication failed",
        "the bearer token is missing",
        "a basic understanding",
        "a risk-based task-force-delta",
        "http://localhost:8080/runs/r-1:pause, see user@example.com",
        "KeyError: 'step'",
        "r-0123456789abcdef is held by host+1/2@3",
        "",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_values_are_cut_by_their_names_however_deep() -> None:
    given = {
        "request": {"headers": [("Authorization", "Bearer x"), ("Accept", "json")]},
        "env": {"DB_PASSWORD": ["hunter2"], "HOME": "/root"},
        "field": {"name": "api_key", "value": "hunter2"},
        "usage": {"total_tokens": 512, "password": None},
    }

    assert Redaction().value(given) == {
        "request": {"headers": [["Authorization", "[redacted]"], ["Accept", "json"]]},
        "env": {"DB_PASSWORD": "[redacted]", "HOME": "/root"},
        "field": {"name": "api_key", "value": "[redacted]"},
        "usage": {"total_tokens": 512, "password": None},
    }


def test_what_a_name_gave_away_is_cut_wherever_it_is_said() -> None:
    redaction = Redaction()

    redaction.value({"session": {"token": 'hun"ter2'}, "credentials": {"ada": ["opensesame"]}})

    assert redaction.text('401: hun"ter2 is not known ("hun\\"ter2")') == (
        '401: [redacted] is not known ("[redacted]")'
    )
    assert redaction.text("nor is opensesame") == "nor is [redacted]"


def test_values_of_any_class_become_plain() -> None:
    class Login(BaseModel):
        at: datetime
        password: str
        pin: SecretStr

    class Broken:
        def __repr__(self) -> str:
            raise OSError

    login = Login(at=datetime(2026, 1, 1, tzinfo=UTC), password="hunter2", pin=SecretStr("1234"))  # noqa: S106
    plain = {"at": "2026-01-01T00:00:00Z", "password": "[redacted]", "pin": "**********"}

    assert Redaction().value([login, {1}, b"token=x", 2**70]) == [
        plain,
        [1],
        "token=[redacted]",
        "0x400000000000000000",
    ]
    assert Redaction().value(MappingProxyType({"a": 1})) == {"a": 1}
    assert Redaction().value(Broken()) == "<Broken, which raised OSError>"


def test_so_much_of_a_value_is_looked_at_and_no_more() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]

    loop: list[Any] = []
    loop.append(loop)

    assert len(str(Redaction().value(deep))) < 200
    assert len(str(Redaction().value(loop))) < 200
    assert len(str(Redaction().value(["x" * 1000] * 10_000))) < 120_000
    assert len(Redaction().text("x " * 20_000)) <= 20_001


def test_no_secret_is_cut_in_two_where_a_text_is_too_long() -> None:
    """Half a secret looks like none."""
    address = "postgres://ada:hunter2@db"
    for place in range(len(address)):
        key = "-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY----- "
        before = key.format("x" * (MAX_SEARCHED_CHARS - place - len(key) + 2))

        shown = Redaction().text(f"{before}{address} {'x' * 100}")

        assert len(before) == MAX_SEARCHED_CHARS - place
        assert "hunter" not in shown


def test_of_a_secret_people_see_what_tells_it_from_another_and_nothing_of_a_short_one() -> None:
    assert masked("0123456789abcdef") == "0123…"
    assert masked("0123456789abcde") == "…"
