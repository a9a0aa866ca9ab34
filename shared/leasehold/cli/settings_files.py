"""The settings that stand in files: `.env`, `[tool.leasehold]`, and that of LEASEHOLD_CONFIG.

The command line reads them in the current folder, once, into its environment, so that all that it
starts has them. The environment goes first, then `.env`, then pyproject.toml, then the YAML file.
Nothing else reads the first two: no deployed function, and no program that uses Leasehold as a
library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from leasehold.cli.streams import note
from leasehold.domain.printable import counted
from leasehold.errors import SettingsFileError

ENV_FILE: Final = ".env"
PROJECT_FILE: Final = "pyproject.toml"

_MAX_FILE_BYTES: Final = 1024 * 1024
_PREFIXES: Final = ("LEASEHOLD_", "PIPELINE_")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE: Final = re.compile(rf"(?:export\s+)?(?P<name>{_NAME.pattern})\s*=\s*(?P<value>.*)")
_OF_STEP: Final = re.compile(r"PIPELINE_[A-Z0-9_]+_(TIMEOUT_MS|DEADLINE_S)")
_QUOTED: Final = re.compile(r"""(?:'([^']*)'|"((?:[^"\\]|\\.)*)")\s*(?:\#.*)?""")
_ESCAPED: Final = re.compile(r"\\(.)")
#: How much a name is to be like a setting's, for that to be the one that was meant.
_ALIKE: Final = 0.75
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}

#: The settings that come from a file, each with the file.
FROM_FILES: dict[str, str] = {}


class _Setting(NamedTuple):
    """A variable, its text, and where in a file it stands."""

    name: str
    text: str
    where: str


def read_settings_files(environ: MutableMapping[str, str] | None = None) -> None:
    """Set what the files of the current folder say and the environment does not.

    Args:
        environ: where; None: in that of this process.

    Raises:
        SettingsFileError: a file cannot be read, or has an unknown setting.
    """
    environ = os.environ if environ is None else environ
    FROM_FILES.clear()
    for file, settings in ((ENV_FILE, _of_env_file()), (PROJECT_FILE, _of_project())):
        for setting in list(settings):
            if setting.name not in environ:
                _check(setting)
                environ[setting.name] = setting.text
                FROM_FILES[setting.name] = file
    if config := environ.get("LEASEHOLD_CONFIG"):
        from leasehold.registry.settings import with_config_file  # noqa: PLC0415 - where there is a file

        for name, text in with_config_file(environ).items():
            if name not in environ:
                environ[name] = text
                FROM_FILES[name] = config


def note_settings_files() -> None:
    """Say on stderr which settings come from which file; what else is there is only counted."""
    for file in dict.fromkeys(FROM_FILES.values()):
        names = [name for name, where in FROM_FILES.items() if where == file]
        ours = [name for name in names if name.startswith(_PREFIXES)]
        others = len(names) - len(ours)
        words = [
            *ours,
            *([counted(others, "other variable")] if others else []),
        ]
        note(f"set by {file}: {', '.join(words)}")


def _of_env_file() -> Iterator[_Setting]:
    """Yield the variables of `.env`: those of handlers and channels may be there as well."""
    seen: set[str] = set()
    for number, line in enumerate(_text_of(ENV_FILE).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{ENV_FILE}, line {number}"
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise _refused(where, "it is no NAME=VALUE")
        name, text = found["name"], _value_of(found["value"], where)
        if name in seen:
            raise _refused(where, f"{name} stands there twice")
        seen.add(name)
        if name.startswith(_PREFIXES) and not _is_known(name):
            raise _refused(where, _unknown(name))
        yield _Setting(name, text, where)


def _value_of(text: str, where: str) -> str:
    """Return a value without its quotes; without quotes, up to a comment."""
    if text[:1] not in ("'", '"'):
        return re.split(r"(?:^|\s+)#", text, maxsplit=1)[0].strip()
    found = _QUOTED.fullmatch(text)
    if found is None:
        raise _refused(where, "its quotes do not end in this line, or something follows them")
    if found[1] is not None:
        return found[1]
    return _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[1]), found[2])


def _of_project() -> Iterator[_Setting]:
    """Yield the settings of pyproject.toml; a key is a variable, or in short the end of one."""
    text = _text_of(PROJECT_FILE)
    if "leasehold" not in text:  # most have no table of ours: nothing is parsed then
        return
    import tomllib  # noqa: PLC0415 - see above

    try:
        table = tomllib.loads(text).get("tool", {}).get("leasehold", {})
    except (ValueError, AttributeError, RecursionError) as error:  # a huge number too
        raise _refused(PROJECT_FILE, f"it is no TOML that can be read ({error})") from None
    if not isinstance(table, dict):
        raise _refused(PROJECT_FILE, "tool.leasehold is no table")
    seen: set[str] = set()
    for key, value in table.items():
        where = f"{PROJECT_FILE}, [tool.leasehold]"
        name = next((each for each in _names_for(key) if _is_known(each)), None)
        if name is None:
            raise _refused(where, _unknown(key))
        if name in seen:
            raise _refused(where, f"{name} stands there twice")
        seen.add(name)
        if _is_secret(name):
            raise _refused(where, f"{name} is a secret: put it into {ENV_FILE}, which stays here")
        yield _Setting(name, _text_of_value(key, value, where), where)


def _names_for(key: str) -> Iterator[str]:
    name = key.upper().replace("-", "_")
    yield name
    yield from (f"{prefix}{name}" for prefix in _PREFIXES)


def _text_of_value(key: str, value: Any, where: str) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int() | float():
            return str(value)
    raise _refused(where, f"{key} is no text, number or boolean")


def _text_of(name: str) -> str:
    """Return what the file says; nothing where there is none: a folder may have its name."""
    path = Path(name)
    try:
        if not path.is_file():
            return ""
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _refused(name, "it is larger than 1 MiB")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise _refused(name, f"it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _refused(name, "it is no text in UTF-8") from None


def _is_known(name: str) -> bool:
    from leasehold.registry.settings import SETTINGS  # noqa: PLC0415 - where there is a file

    return name in SETTINGS or _OF_STEP.fullmatch(name) is not None or name in _others()


def _is_secret(name: str) -> bool:
    from leasehold.registry.settings import SETTINGS  # noqa: PLC0415 - where there is a file

    return name in SETTINGS and SETTINGS[name].is_secret


def _others() -> set[str]:
    from leasehold.doctor.variables import OF_DEPLOY, OTHERS  # noqa: PLC0415 - seldom

    return {*OTHERS, *OF_DEPLOY}


def _unknown(name: str) -> str:
    """Return what to do about a name that nothing reads; all that is allowed would be a page."""
    from difflib import get_close_matches  # noqa: PLC0415 - for who mistyped

    from leasehold.registry.settings import SETTINGS  # noqa: PLC0415 - as above

    names = (entry.name for entry in SETTINGS)
    known = {short: name for name in names for short in (name, name.partition("_")[2])}
    alike = get_close_matches(name.upper().replace("-", "_"), known, 1, _ALIKE)
    allowed = known[alike[0]] if alike else "those in docs/settings.md"
    return f"{name[:100]!r} is no setting; allowed: {allowed}"


def _check(setting: _Setting) -> None:
    """Refuse a value here, where its place is known; a threshold is reported later."""
    if "\0" in setting.text:  # no environment can have it
        raise _refused(setting.where, f"{setting.name} has a null character")
    from leasehold.registry.setting_texts import NOT_SHOWN  # noqa: PLC0415 - where there is a file
    from leasehold.registry.settings import SETTINGS  # noqa: PLC0415 - as above

    if setting.name not in SETTINGS or SETTINGS[setting.name].is_threshold:
        return
    entry = SETTINGS[setting.name]
    try:
        entry.read(setting.text)
    except ValueError:
        text = NOT_SHOWN if entry.is_secret else repr(setting.text[:200])
        problem = f"{entry.name} is {text}; allowed: {entry.allowed}"
        raise _refused(setting.where, problem) from None


def _refused(where: str, problem: str) -> SettingsFileError:
    return SettingsFileError(where=where, problem=problem)
