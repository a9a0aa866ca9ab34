"""The configuration file, LEASEHOLD_CONFIG: settings as YAML, by the names that operators know.

    scheduling:
      strategy: phase_decoupled
    budget:
      safety_buffer: 180

A key is a row of `SETTINGS` by its `file_key`, or its variable in the section `settings`. The
environment goes over the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leasehold.errors import SettingsFileError
from leasehold.registry.setting_texts import SettingEntry, as_refused

if TYPE_CHECKING:
    import yaml


_MAX_BYTES: Final = 1024 * 1024
#: No key lies deeper; a file that refers to itself ends there.
_DEEPEST: Final = 4
_ALIKE: Final = 0.6


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
    for key, node in _leaves(_root(path), path):
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
    try:
        entry.read(text)
    except ValueError:
        if not entry.is_threshold:
            problem = f"{key} is {as_refused(text)}; allowed: {entry.allowed}"
            raise SettingsFileError(where=where, problem=problem) from None
    return text


def _root(path: str) -> yaml.Node | None:
    """Return the tree of the file: its texts as they stand there, so that no value is changed."""
    import yaml  # noqa: PLC0415 - most processes have no such file

    try:
        data = Path(path).read_bytes()
        if len(data) > _MAX_BYTES:
            raise SettingsFileError(where=path, problem="it is larger than 1 MiB")
        root: yaml.Node | None = yaml.compose(data.decode("utf-8-sig"), yaml.SafeLoader)
    except OSError as error:
        raise SettingsFileError(
            where=path, problem=f"LEASEHOLD_CONFIG cannot be read ({error.strerror})"
        ) from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())[:300]
        raise SettingsFileError(
            where=path, problem=f"it is no YAML that can be read ({problem})"
        ) from None
    return root


def _leaves(
    node: yaml.Node | None, path: str, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, yaml.Node]]:
    """Yield each key with its value: `budget.percentile` for `percentile` under `budget`."""
    import yaml  # noqa: PLC0415 - as above

    if node is None:
        return
    if not isinstance(node, yaml.MappingNode):
        if not prefix:
            raise SettingsFileError(where=path, problem="it has no keys at its top")
        yield prefix, node
        return
    for name, value in node.value:
        key = f"{prefix}.{name.value}" if prefix else str(name.value)
        if depth < _DEEPEST and isinstance(value, yaml.MappingNode):
            yield from _leaves(value, path, key, depth + 1)
        else:
            yield key, value


def _is_empty(node: yaml.Node) -> bool:
    return bool(node.tag.endswith(":null"))


def _unknown(key: str, entries: Mapping[str, SettingEntry]) -> str:
    """Return what to do about a key that nothing reads."""
    from difflib import get_close_matches  # noqa: PLC0415 - for who mistyped

    alike = get_close_matches(key, entries, 1, _ALIKE)
    allowed = alike[0] if alike else "those in docs/configuration.md"
    return f"{key[:100]!r} is no setting; allowed: {allowed}"
