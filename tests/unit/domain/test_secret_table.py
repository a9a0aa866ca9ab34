"""One table of what a secret looks like in a text, and one of what only looks like it."""

from __future__ import annotations

import itertools

import pytest

from leasehold.domain.redaction import LinesRedaction, Redaction

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
    '{{\n    "Name": "{name}",\n    "Value": "{secret}"\n}}',
    '{{"value": "{secret}", "name": "{name}"}}',
    "env:\n  - name: {name}\n    value: {secret}\n",
    '- {{name: "{name}", value: "{secret}"}}',
    '<add key="{name}" value="{secret}"/>',
    '<input name="{name}" value="{secret}">',
    'Content-Disposition: form-data; name="{name}"\r\n\r\n{secret}\r\n--x',
    '{{"{name}":\n        "{secret}"}}',
    "{{'{name}': 'part one '\n         '{secret}'}}",
    "{name} -> {secret}",
    "{name} \u2192 {secret}",
    "{name} --> '{secret}'",
    "{name} == '{secret}'",
    "{name} != '{secret}'",
    "{name} <- '{secret}'",
    "{name} :: {secret}",
    "{name}: str = '{secret}'",
    '{name} = """{secret}"""',
    "**{name}**: {secret}",
    "`{name}`: `{secret}`",
    "\u201c{name}\u201d: \u201c{secret}\u201d",
    "{name}\uff1a{secret}",
    "{name}[0]={secret}",
    "{name} for user ada: {secret}",
    "login -{name} {secret} -f",
    "login --{name}\t{secret}",
    "ENV {name} {secret}",
    "Step 3/9 : ENV {name} '{secret}'",
    "setenv {name} {secret}; setx {name} {secret}",
    "set -gx {name} {secret}",
    "aws configure set {name} {secret}",
    "git config --global x.{name} {secret}",
    "user,{name}\nbob,{secret}",
    '"user","{name}","n"\r\n"bob","{secret}",7\r\n"ada","{secret}",8',
    "user;{name}\nbob;{secret}",
    "user\t{name}\nbob\t{secret}",
    "user | {name} \n-----+-----\n bob | {secret}",
    "| user | {name} |\n|---|---|\n| bob | {secret} |",
    "-[ RECORD 1 ]---\nuser | bob\n{name} | {secret}",
    "<key>{name}</key>\n  <string>{secret}</string>",
    "<property><name>{name}</name><value>{secret}</value></property>",
    '<string name="{name}">{secret}</string>',
    "<{name}><![CDATA[{secret}]]></{name}>",
    "{name}&#61;{secret}",
    "{name}&#x3D;{secret}",
    "{{&quot;{name}&quot;: &quot;{secret}&quot;}}",
    "{{&#34;{name}&#34;:&#34;{secret}&#34;}}",
    "&lt;{name}&gt;{secret}&lt;/{name}&gt;",
    "{name}%3D{secret}",
    "{name}%253d{secret}",
    "next=https%3A%2F%2Fx%2F%3Fuser%3Dada%26{name}%3D{secret}%26n%3D1",
    "%7B%22{name}%22%3A%20%22{secret}%22%7D",
    "user%5B{name}%5D={secret}",
    "{name}\\u003d{secret}",
    "{name}\\x3d{secret}",
    "'user,{name}\\nbob,{secret}\\n'",
    "'{name}: |\\n  {secret}\\n'",
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
    "redis-cli -h x --pass {secret} ping",
    "sshpass -p {secret} ssh x",
    "sshpass -p'{secret}' ssh x",
    "mysql -u ada -p{secret} db",
    "mysqldump -u ada -p'{secret}' db",
    "openssl enc -pass pass:{secret}",
    "SET PASSWORD FOR ada = '{secret}'",
    "curl -u ada:{secret} https://x",
    "machine x login ada password {secret}",
    "machine x\n  login ada\n  password {secret}",
    "postgres%3A%2F%2Fada%3A{secret}%40db%2Fx",
    "NAME   TOKEN   AGE\nada    {secret}   7d",
    "setPassword('{secret}')",
    'x.with_api_key("{secret}")',
    "passcode: {secret}",
    "the password is {secret}, and so on",
    "password was '{secret}'",
    "requirepass {secret}",
    "mongosh -u ada -p {secret} db",
    "unzip -P {secret} x.zip",
    "7z x -p{secret} x.7z",
    "ldapsearch -x -D cn=ada -w {secret}",
    "htpasswd -b file ada {secret}",
    "echo 'ada:{secret}' | sudo chpasswd",
    "sqlplus ada/{secret}@db",
    "jdbc:oracle:thin:ada/{secret}@//x:1521/y",
    "vault login {secret}",
    "-----BEGIN EC PRIVATE KEY-----\n{secret}\n-----END EC PRIVATE KEY-----",
)


def test_a_secret_goes_and_what_stands_around_it_stays() -> None:
    texts = [
        *(form.format(name=name, secret=SECRET) for form, name in itertools.product(FORMS, NAMES)),
        *(form.format(secret=SECRET) for form in ALONE),
    ]

    shown = {text: Redaction().text(text) for text in texts}

    assert [text for text in texts if SECRET in shown[text]] == []
    assert [text for text in texts if "[redacted]" not in shown[text]] == []


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
        '<input name="colour" value="red"> of a token',
        "- name: tokens\n  kind: x\n- value: 7",
        'form-data; name="file"\r\n\r\nthe secret of it',
        "mysql -p db, a secret",
        "error: token->kind is not a member",
        "def token(given) -> str:",
        "TokenExpired('the time of it is over')",
        "access_token.decode('utf-8')",
        "the password is case-sensitive",
        "token (str): the one to use",
        "from x import (\n    token,\n    metrics,\n    iam,\n)",
        "user, password\n\nbob, ada",
        "name,tokens\nbob,512",
        "name | tokens\n-----+-----\nbob | 512",
        "name,colour\nbob,red",
        "a password | a user\nbob | ada",
        "<td>colour</td><td>red</td>",
        "<key>colour</key><string>red</string>",
        "ENV COLOUR red",
        "set token limits, and the env of it",
        "colour%3Dred%26token+count%20of%20it",
        "&lt;p&gt; of a token &amp; more",
        "C:\\new\\token\\list",
        "unzip -p x.zip, a secret of it",
        "credential::\n\n    run this",
        "a token -- and more of it",
    ],
)
def test_a_harmless_text_stays(text: str) -> None:
    assert Redaction().text(text) == text


CUT = "[redacted]"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (
            ["password: |", f"  {SECRET}", "", "  more", "other: 1"],
            ["password: |", CUT, "", CUT, "other: 1"],
        ),
        (["  - token: >-", f"      {SECRET}", "  - b"], ["  - token: >-", CUT, "  - b"]),
        (
            ['  "name": "x-api-key",', f'  "value": "{SECRET}"', "}"],
            ['  "name": "x-api-key",', f'  "value": "{CUT}"', "}"],
        ),
        (["- name: DB_PASSWORD", f"  value: {SECRET}"], ["- name: DB_PASSWORD", f"  value: {CUT}"]),
        (["Password:", SECRET, "welcome"], ["Password:", CUT, "welcome"]),
        (
            ["user,password", f"bob,{SECRET}", f"ada,{SECRET}", "", "a,b"],
            ["user,password", f"bob,{CUT}", f"ada,{CUT}", "", "a,b"],
        ),
        (
            ["| user | token |", "|------|------|", f"| bob | {SECRET} |", "| a | b | c |"],
            ["| user | token |", "|------|------|", f"| bob | {CUT} |", "| a | b | c |"],
        ),
        (
            ["-----BEGIN PRIVATE KEY-----", SECRET, "-----END PRIVATE KEY-----", "and on"],
            [CUT, CUT, CUT, "and on"],
        ),
    ],
)
def test_of_lines_that_come_one_by_one_those_before_name_a_secret(
    lines: list[str], shown: list[str]
) -> None:
    redaction = LinesRedaction()

    assert [redaction.line(line) for line in lines] == shown


def test_lines_that_name_nothing_stay() -> None:
    lines = ["password: Field required", "author: |", "  Ada", "token count:", "12", "", "the end"]
    redaction = LinesRedaction()

    assert [redaction.line(line) for line in lines] == lines


def test_a_value_beside_its_name_is_cut_however_the_two_are_written() -> None:
    given = [{"Name": "DB_PASSWORD", "Value": SECRET}, {"Key": "colour", "Value": "red"}]

    assert Redaction().value(given) == [
        {"Name": "DB_PASSWORD", "Value": "[redacted]"},
        {"Key": "colour", "Value": "red"},
    ]
