"""The configuration file, LEASEHOLD_CONFIG: settings as YAML, by the names that operators know.

    scheduling:
      strategy: phase_decoupled
    budget:
      safety_buffer: 180

A key is a row of `SETTINGS` by its `file_key`, or its variable in the section `settings`. The
environment goes over the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leasehold.errors import SettingsFileError
from leasehold.registry.setting_texts import SettingEntry

if TYPE_CHECKING:
    import yaml


_MAX_FILE_BYTES: Final = 1024 * 1024
_ALIKE: Final = 0.6
#: A part of the file within a parser's sentence: it may be a secret. Names in <> are the parser's.
_OF_FILE: Final = re.compile(r" '[^'<][^']+'")
_OF_STEP: Final = re.compile(r"settings\.PIPELINE_.+_(TIMEOUT_MS|DEADLINE_S)")


def settings_in(path: str, entries: Mapping[str, SettingEntry]) -> dict[str, str]:
    """Return the text of each setting that a file has, by its variable.

    Args:
        path: of the file; relative to the folder of the process.
        entries: the setting of each key that may stand there, as `budget.percentile`.

    Raises:
        SettingsFileError: the file is not there, is no YAML, has a key that is not a setting, or a
            value that is not allowed; a bad threshold is left to `read_settings`.
    """
    found: dict[str, str] = {}
    for key, node in _leaves(_root(path), path, set()):
        where = f"{path}, line {node.start_mark.line + 1}"
        entry = entries.get(key)
        if entry is None and _is_empty(node) and any(one.startswith(f"{key}.") for one in entries):
            continue  # a section, all of whose keys are comments
        if entry is None:
            raise SettingsFileError(where=where, problem=_unknown(key, entries))
        if entry.name in found:
            raise SettingsFileError(where=where, problem=f"{key} stands there twice")
        found[entry.name] = _checked(key, node, entry, where)
    return found


def _checked(key: str, node: yaml.Node, entry: SettingEntry, where: str) -> str:
    """Return the text of a value that is allowed."""
    import yaml  # noqa: PLC0415 - as above

    text = ""
    if isinstance(node, yaml.ScalarNode):
        text = "" if _is_empty(node) else str(node.value)
    elif node.value:
        raise SettingsFileError(where=where, problem=f"{key} has no single value")
    if "\0" in text:  # no environment can have it
        raise SettingsFileError(where=where, problem=f"{key} has a null character")
    try:
        entry.read(text)
    except ValueError:
        if not entry.is_threshold:
            problem = f"{key} is {entry.as_refused(text)}; allowed: {entry.allowed}"
            raise SettingsFileError(where=where, problem=problem) from None
    return text


def _root(path: str) -> yaml.Node | None:
    """Return the tree of the file: its texts as they stand there, so that no value is changed."""
    import yaml  # noqa: PLC0415 - most processes have no such file

    where, data = path, _bytes_of(path)
    try:
        root: yaml.Node | None = yaml.compose(data.decode("utf-8-sig"), yaml.SafeLoader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        problem = str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            where, problem = f"{path}, line {error.problem_mark.line + 1}", str(error.problem)
        problem = _OF_FILE.sub("", " ".join(problem.split()))[:300]
        raise SettingsFileError(
            where=where, problem=f"it is no YAML that can be read ({problem})"
        ) from None
    return root


def _bytes_of(path: str) -> bytes:
    """Return what the file has; a pipe or a device may never end, or never answer."""
    try:
        file = Path(path)
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise SettingsFileError(where=path, problem="LEASEHOLD_CONFIG is no file")
        with file.open("rb") as opened:
            data = opened.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise SettingsFileError(
            where=path, problem=f"LEASEHOLD_CONFIG cannot be read ({reason})"
        ) from None
    if len(data) > _MAX_FILE_BYTES:
        raise SettingsFileError(where=path, problem="it is larger than 1 MiB")
    return data


def _leaves(
    node: yaml.Node | None, path: str, seen: set[yaml.Node], prefix: str = ""
) -> Iterator[tuple[str, yaml.Node]]:
    """Yield each key with its value: `budget.percentile` for `percentile` under `budget`.

    A section that stands at several keys is read at the first of them alone: aliases of aliases
    would take forever, and a section can have itself.
    """
    import yaml  # noqa: PLC0415 - as above

    if node is None:
        return
    if not isinstance(node, yaml.MappingNode):
        if not prefix:
            raise SettingsFileError(where=path, problem="it has no keys at its top")
        yield prefix, node
        return
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            where = f"{path}, line {name.start_mark.line + 1}"
            raise SettingsFileError(where=where, problem="a key is no text")
        key = f"{prefix}.{name.value}" if prefix else str(name.value)
        if isinstance(value, yaml.MappingNode) and value.value and value not in seen:
            seen.add(value)
            yield from _leaves(value, path, seen, key)
        else:
            yield key, value


def _is_empty(node: yaml.Node) -> bool:
    return bool(node.tag.endswith(":null")) or (node.tag.endswith(":map") and not node.value)


def _unknown(key: str, entries: Mapping[str, SettingEntry]) -> str:
    """Return what to do about a key that nothing reads."""
    within = [one for one in entries if one.startswith(f"{key}.")]
    if within:
        return f"{key} has no value of its own, but keys, such as {within[0]}"
    if _OF_STEP.fullmatch(key):
        return f"{key[:100]!r} is no setting; a limit of a step is set in the environment alone"
    names = {f"settings.{entry.name}": one for one, entry in entries.items()}
    allowed = names.get(key) or _alike(key, entries)
    return f"{key[:100]!r} is no setting; allowed: {allowed}"


def _alike(key: str, entries: Mapping[str, SettingEntry]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for who mistyped

    alike = get_close_matches(key, entries, 1, _ALIKE)
    return alike[0] if alike else "those in docs/configuration.md"
