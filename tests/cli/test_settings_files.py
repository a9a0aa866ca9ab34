"""Settings of a project stand in its `.env` and its pyproject.toml; the environment goes first."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from leasehold.cli.settings_files import read_settings_files
from leasehold.devserver.server import DevOptions, function_environ
from leasehold.errors import SettingsFileError
from tests.worlds.ports import own_port
from tests.worlds.shell import LEASEHOLD, Shell, only_line

STEP = "PIPELINE_CHARGE_TIMEOUT_MS"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(env: str = "", project: str = "", **environ: str) -> dict[str, str]:
    """Return the environment after these files were read."""
    Path(".env").write_text(env)
    Path("pyproject.toml").write_text(project)
    read_settings_files(environ)
    return environ


def refused(env: str = "", project: str = "") -> str:
    environ: dict[str, str] = {}
    Path(".env").write_text(env)
    Path("pyproject.toml").write_text(project)
    with pytest.raises(SettingsFileError) as caught:
        read_settings_files(environ)
    return caught.value.message


def test_the_environment_goes_before_env_and_that_before_the_project(folder: Path) -> None:
    project = "[tool.leasehold]\ncatalog = 'c'\nstore = 'sqlite:///c.db'\nmax-retries = 3\n"

    assert read(
        "LEASEHOLD_CATALOG=b\nLEASEHOLD_STORE=sqlite:///b.db", project, LEASEHOLD_CATALOG="a"
    ) == {
        "LEASEHOLD_CATALOG": "a",
        "LEASEHOLD_STORE": "sqlite:///b.db",
        "PIPELINE_MAX_RETRIES": "3",
    }


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=plain", "plain"),
        ("export KEY = spaced out ", "spaced out"),
        ("KEY=a#b  # a comment", "a#b"),
        ("KEY=", ""),
        ("KEY= # only a comment", ""),
        ("KEY='single # $HOME \\n'", "single # $HOME \\n"),
        ('KEY="two\\nlines \\"quoted\\"" # why', 'two\nlines "quoted"'),
        ("\ufeffKEY=after a mark", "after a mark"),
    ],
)
def test_a_line_of_env_is_a_name_and_a_value(folder: Path, line: str, value: str) -> None:
    assert read(f"{line}\n\n  # a comment\n") == {"KEY": value}


@pytest.mark.parametrize(
    ("key", "value", "name", "text"),
    [
        ("LEASEHOLD_CATALOG", "'shop'", "LEASEHOLD_CATALOG", "shop"),
        ("log_level", "'DEBUG'", "LEASEHOLD_LOG_LEVEL", "DEBUG"),
        ("lease-ttl-s", "1.5", "PIPELINE_LEASE_TTL_S", "1.5"),
        ("artifacts-shared", "true", "LEASEHOLD_ARTIFACTS_SHARED", "yes"),
        ("charge-timeout-ms", "5000", STEP, "5000"),
    ],
)
def test_a_key_of_the_project_is_a_variable_or_the_end_of_one(
    folder: Path, key: str, value: str, name: str, text: str
) -> None:
    assert read(project=f"[tool.leasehold]\n{key} = {value}\n") == {name: text}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"env": "A=1\nLEASEHOLD_CATALOGUE=x"},
            ".env, line 2: 'LEASEHOLD_CATALOGUE' is no setting; allowed: LEASEHOLD_CATALOG.",
        ),
        ({"env": "PIPELINE_RETRIES=1"}, "is no setting; allowed: PIPELINE_MAX_RETRIES."),
        (
            {"env": "LEASEHOLD_QQQ_ZZZZZZZZZZ=1"},
            "is no setting; allowed: those in docs/settings.md.",
        ),
        (
            {"project": "[tool.leasehold]\nmax-retris=1"},
            "no setting; allowed: PIPELINE_MAX_RETRIES.",
        ),
        ({"env": "not a line"}, ".env, line 1: it is no NAME=VALUE."),
        ({"env": "KEY='open"}, ".env, line 1: its quotes do not end in this line"),
        ({"env": "KEY=1\nKEY=2"}, ".env, line 2: KEY stands there twice."),
        (
            {"env": "LEASEHOLD_LOG_LEVEL=loud"},
            ".env, line 1: LEASEHOLD_LOG_LEVEL is 'loud'; allowed: ",
        ),
        ({"project": "[tool.leasehold]\nOPENAI_API_KEY='x'"}, "'OPENAI_API_KEY' is no setting; "),
        ({"project": "[tool.leasehold]\ncatalog=['x']"}, "catalog is no text, number or boolean."),
        (
            {"project": "[tool.leasehold]\ncatalog='x'\nLEASEHOLD_CATALOG='y'"},
            "stands there twice.",
        ),
        ({"project": "[tool]\nleasehold=1"}, "pyproject.toml: tool.leasehold is no table."),
        ({"project": "[tool.leasehold\n"}, "pyproject.toml: it is no TOML that can be read ("),
        (
            {"project": f"[tool.leasehold]\nmax-retries = {'9' * 5000}\n"},
            "pyproject.toml: it is no TOML that can be read (",
        ),
        (
            {"project": '[tool.leasehold]\ncatalog = "a\\u0000b"\n'},
            "pyproject.toml, [tool.leasehold]: LEASEHOLD_CATALOG has a null character.",
        ),
        ({"env": "KEY=a\0b\n"}, ".env, line 1: KEY has a null character."),
        (
            {"project": "[tool.leasehold]\ntoken = 'a-secret-of-a-team-in-git'\n"},
            "LEASEHOLD_TOKEN is a secret: put it into .env, which stays here.",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_line(
    folder: Path, files: dict[str, str], words: str
) -> None:
    message = refused(**files)

    assert words in message
    assert len(message) < 250
    assert "\n" not in message


def test_no_value_of_a_line_that_is_refused_is_repeated(folder: Path) -> None:
    for line in (
        "KEY='hunter2",
        "LEASEHOLD_KEY=hunter2",
        "LEASEHOLD_TOKEN=hunter2",
        "my key=hunter2",
        "PIPELINE_X=hunter2",
    ):
        assert "hunter2" not in refused(line)


def test_a_binary_file_is_refused_and_a_folder_of_that_name_is_ignored(folder: Path) -> None:
    (folder / ".env").write_bytes(b"KEY=\xff")
    with pytest.raises(SettingsFileError, match="it is no text in UTF-8"):
        read_settings_files({})
    (folder / ".env").unlink()
    (folder / ".env").mkdir()

    environ: dict[str, str] = {}
    read_settings_files(environ)

    assert environ == {}


def test_a_project_without_our_table_may_be_whatever_it_is(folder: Path) -> None:
    assert read(project="[broken") == {}


# -- the commands ----------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    del shell.settings["LEASEHOLD_CATALOG"]
    return shell


def test_a_command_works_on_what_the_files_say(shell: Shell) -> None:
    (shell.folder / "pyproject.toml").write_text("[tool.leasehold]\ncatalog = 'shop'\n")
    (shell.folder / ".env").write_text("LEASEHOLD_STORE=sqlite:///own.db\nSHOP_KEY=hunter2\n")

    done = shell.run("start", "order", "--input", '{"amount": 1}', "--in-process", "--json")

    assert json.loads(done.stdout)["status"] == "COMPLETED", done.stderr
    assert (shell.folder / "own.db").exists()
    assert "SHOP_KEY" not in os.environ


@pytest.mark.parametrize("command", ["registry", "check", "doctor"])
def test_where_sources_are_shown_the_files_are_named_and_no_secret(
    shell: Shell, command: str
) -> None:
    (shell.folder / ".env").write_text(f"LEASEHOLD_CATALOG=shop\n{STEP}=31000\nSHOP_KEY=hunter2\n")

    done = shell.run(command)

    words = f"set by .env: LEASEHOLD_CATALOG, {STEP}, 1 other variable"
    assert words in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    if command == "registry":
        assert f"31 s ({STEP})" in done.stdout


@pytest.mark.parametrize("command", ["check", "doctor", "registry"])
def test_a_configuration_file_holds_for_every_command(shell: Shell, command: str) -> None:
    """`check` looked at another catalog than `serve` ran, and `doctor` at another store."""
    (shell.folder / "leasehold.yaml").write_text(
        "settings:\n  LEASEHOLD_CATALOG: shop\n  LEASEHOLD_STORE: sqlite:///own.db\n"
    )
    (shell.folder / ".env").write_text("LEASEHOLD_CONFIG=leasehold.yaml\n")

    done = shell.run(command)

    assert "set by leasehold.yaml: LEASEHOLD_CATALOG, LEASEHOLD_STORE" in done.stderr
    assert "There is no catalog" not in done.stdout + done.stderr


def test_the_functions_of_a_dev_server_have_what_the_configuration_file_says(folder: Path) -> None:
    """It sets catalog and store of its functions itself, and what it set went over the file."""
    said = {"LEASEHOLD_CATALOG": "shop", "LEASEHOLD_STORE": "sqlite:///own.db"}
    Path("c.yaml").write_text(f"settings: {json.dumps(said)}\n")

    environ = function_environ(DevOptions(environ=read(LEASEHOLD_CONFIG="c.yaml")), "http://x")

    assert environ.items() >= said.items()


@pytest.mark.parametrize("command", ["check", "serve --port", "dev --port"])
def test_a_variable_that_looks_like_a_setting_is_warned_of(shell: Shell, command: str) -> None:
    """`doctor` alone said so, and who starts a server does not ask it."""
    shop = (shell.folder / "shop.py").read_text()
    (shell.folder / "slow_shop.py").write_text(
        shop.replace('handler=f"shop:', 'handler=f"nowhere:').replace(
            "dispatch_deadline=timedelta(seconds", "dispatch_deadline=2000 * timedelta(seconds"
        )
    )
    settings = {
        "LEASEHOLD_CATALOG": "slow_shop",
        "LEASEHOLD_STOR": "sqlite:///own.db",
        "PIPELINE_CHRAGE_TIMEOUT_MS": "9",
        "PIPELINE_WORKSPACE": "/of/another/program",
    }

    port = [str(own_port())] if command.endswith("--port") else []

    done = shell.process(*LEASEHOLD, *command.split(), *port, **settings)

    assert "warning: LEASEHOLD_STOR is set, and nothing reads it: is LEASEHOLD_STORE meant?" in (
        done.stderr
    )
    assert "warning: PIPELINE_CHRAGE_TIMEOUT_MS is set, and " in done.stderr
    assert "PIPELINE_WORKSPACE" not in done.stderr
    assert done.returncode in (1, 2)


def test_a_bad_file_stops_a_command_and_not_its_help_or_a_new_project(shell: Shell) -> None:
    (shell.folder / ".env").write_text("LEASEHOLD_CATALOGUE=shop\n")

    for command in ("runs", "check", "doctor"):
        done = shell.run(command)
        assert done.returncode == 2
        assert only_line(done.stderr).startswith("error: .env, line 1: 'LEASEHOLD_CATALOGUE' is no")
    assert json.loads(shell.run("runs", "--json").stdout)["error"]["code"] == "bad_settings_file"
    assert shell.run("init", "fresh").returncode == 0
    assert shell.run("--help").returncode == 0


def test_a_handler_in_its_own_process_has_what_env_says(shell: Shell) -> None:
    (shell.folder / "keyed.py").write_text(
        "import os\nfrom datetime import timedelta\n"
        "from leasehold import PipelineEntry, Registry, StepDispatchEntry\n"
        "def read(ctx, given):\n    return os.environ['SHOP_KEY']\n"
        "STEPS = Registry('dispatch', [StepDispatchEntry(step_type='read', handler='keyed:read',\n"
        "    agent_timeout=timedelta(seconds=30), dispatch_deadline=timedelta(seconds=60))])\n"
        "PIPELINES = Registry('pipelines', [PipelineEntry(name='keyed', steps=('read',))])\n"
    )
    (shell.folder / ".env").write_text("LEASEHOLD_CATALOG=keyed\nSHOP_KEY=hunter2\n")

    words = ("start", "keyed", "--input", "1", "--in-process", "--json")
    done = shell.process(*LEASEHOLD, *words, LEASEHOLD_ISOLATION="")

    assert json.loads(done.stdout)["output"] == "hunter2", done.stderr


def test_a_program_of_the_user_and_a_function_read_no_file(shell: Shell) -> None:
    """What is deployed is configured where it is deployed; a file that came along says nothing."""
    (shell.folder / ".env").write_text("LEASEHOLD_CATALOG=nowhere\n")
    (shell.folder / "serve_api.py").write_text(
        (Path(__file__).parents[2] / "shared/leasehold/functions/serve_api.py").read_text()
    )
    program = "import os, serve_api; print(os.environ.get('LEASEHOLD_CATALOG'))"

    done = shell.process(sys.executable, "-c", program, LEASEHOLD_CATALOG="shop")

    assert done.stdout == "shop\n", done.stderr
