"""The traceback that is kept: the user's own frames, causes and groups, in a bounded room."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic_core
import pytest
from pydantic import TypeAdapter

from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.stored import replace
from leasehold.errors import AgentClientError
from leasehold.worker.failures.error_chain import MAX_CHAIN_ERRORS
from leasehold.worker.failures.failures import record_of, record_of_report

LIMIT = 16 * 1024
TRACEBACK_LIMIT = 8 * 1024


def record(raises: Callable[[], object], handler: str = "") -> ErrorRecord:
    """Return what is kept of the error that a call raises, and check that there is room for it."""
    try:
        raises()
    except BaseException as error:  # noqa: BLE001 - it is what the test is about
        kept = record_of(error, handler)
    last = replace(kept, step="s" * 64, attempt=1000, permanent=True)
    assert len(pydantic_core.to_json(to_document(last))) <= LIMIT
    assert len((kept.traceback or "").encode()) <= TRACEBACK_LIMIT
    return kept


def told(raises: Callable[[], object], handler: str = "") -> str:
    return record(raises, handler).traceback or ""


def frames(traceback: str) -> list[str]:
    """Return the functions of the frames that are shown."""
    return [line.rpartition(" in ")[2] for line in traceback.split("\n") if '  File "' in line]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Writes a module of the user's, or of a library, and imports it."""

    def write(source: str, name: str = "mine", folder: str = "") -> ModuleType:
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(place)
        monkeypatch.setitem(sys.modules, name, sys)  # so that it is not there afterwards, either
        del sys.modules[name]
        return __import__(name)

    return write


def parse(text: str) -> Any:
    return json.loads(text)


PARSED_AT = parse.__code__.co_firstlineno + 1


def test_the_frames_are_shown_with_the_lines_of_the_users_own_code() -> None:
    traceback = told(lambda: parse("{"))

    assert traceback.startswith("Traceback (most recent call last):\n")
    assert (
        f'  File "tests/unit/worker/test_tracebacks.py", line {PARSED_AT}, in parse\n'
        "    return json.loads(text)\n"
        '  File "json/__init__.py"' in traceback
    )
    assert traceback.endswith("json.decoder.JSONDecodeError: " + str(error_of(lambda: parse("{"))))


def error_of(raises: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it is
        raises()
    return caught.value


def test_the_origin_is_in_the_users_code_and_not_in_the_library_it_called() -> None:
    assert record(lambda: parse("{")).origin == f"test_tracebacks.py:{PARSED_AT} (parse)"


def test_what_is_installed_is_a_library_unless_the_handler_is_of_it(
    written: Callable[..., ModuleType],
) -> None:
    """A project may be installed itself, as a wheel."""
    library = written("def call():\n    return 1 / 0\n", "lib", "site-packages")

    def handle() -> object:
        return library.call()

    of_library, of_handler = record(handle), record(handle, "lib:call")
    where, error = '  File "lib.py", line 2, in call\n', "ZeroDivisionError: division by zero"

    assert (of_library.origin or "").endswith("(handle)")
    assert (of_library.traceback or "").endswith(f"{where}{error}")
    assert of_handler.origin == "lib.py:2 (call)"
    assert (of_handler.traceback or "").endswith(f"{where}    return 1 / 0\n{error}")


def test_no_place_of_this_machine_and_no_local_variable_is_told(tmp_path: Path) -> None:
    def look() -> None:
        precious = "a value that nobody prints"
        raise ValueError(len(precious))

    traceback = told(look)

    assert str(Path.cwd()) not in traceback
    assert 'precious = "' not in traceback


def test_causes_and_contexts_are_told_and_what_is_suppressed_is_not() -> None:
    def caused() -> None:
        try:
            parse("{")
        except ValueError as error:
            raise RuntimeError("the answer is odd") from error

    def handled() -> None:
        try:
            caused()
        except RuntimeError:
            raise KeyError("on top")  # noqa: B904 - so that it has a context

    def suppressed() -> None:
        try:
            caused()
        except RuntimeError:
            raise KeyError("alone") from None

    both, alone = told(handled), told(suppressed)

    assert both.index("JSONDecodeError") < both.index("direct cause of") < both.index("is odd")
    assert both.index("is odd") < both.index("During handling of") < both.index("'on top'")
    assert "RuntimeError" not in alone


def test_notes_are_told() -> None:
    def noted() -> None:
        error = ValueError("no")
        error.add_note("while reading page 7")
        raise error

    assert told(noted).endswith("ValueError: no\nwhile reading page 7")


def test_the_members_of_a_group_are_told_and_those_left_out_are_counted() -> None:
    def grouped() -> None:
        members = [error_of(lambda: parse("{")), ExceptionGroup("inner", [ValueError("deep")])]
        raise BaseExceptionGroup("2 tasks failed", [*members, *[KeyError(n) for n in range(30)]])

    traceback = told(grouped)

    assert "ExceptionGroup: 2 tasks failed (32 sub-exceptions)\n  1 of 32:\n" in traceback
    assert "JSONDecodeError" in traceback
    assert "    1 of 1:\n    ValueError: deep\n" in traceback
    assert traceback.endswith("\n  [22 more left out]")


def test_a_cycle_of_causes_ends_where_it_began() -> None:
    def circle() -> None:
        first, second = ValueError("first"), ValueError("second")
        first.__cause__, second.__cause__ = second, first
        raise first

    traceback = told(circle)
    assert traceback.count("ValueError: ") == 2
    assert traceback.count("the direct cause of") == 1


def test_of_many_causes_the_nearest_are_told_and_the_others_are_counted() -> None:
    def chained() -> None:
        error: BaseException = ValueError("0")
        for number in range(1, 3000):
            following = ValueError(str(number))
            following.__cause__, error = error, following
        raise error

    traceback = told(chained)

    assert traceback.count("ValueError: ") == MAX_CHAIN_ERRORS
    assert traceback.startswith("\n[2992 earlier exceptions left out]\n")


def test_a_group_within_groups_without_end_is_bounded() -> None:
    def nested() -> None:
        error: Exception = ValueError("deep")
        for _ in range(500):
            error = ExceptionGroup("outer", [error])
        raise error

    assert "[1 more left out]" in told(nested)


def test_where_all_errors_have_no_room_the_newest_is_told_alone() -> None:
    """The lines of errors in groups are indented: each takes more than it had room for."""

    def chain() -> Exception:
        error = None
        for _ in range(MAX_CHAIN_ERRORS):
            following = ValueError("\n" * 9999)
            following.__cause__, error = error, following
        assert error
        return error

    def grouped() -> None:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [chain(), chain()])])

    traceback = told(grouped)

    assert traceback.startswith("\n[other exceptions left out]\n\nTraceback (most recent call")
    assert traceback.endswith("\nExceptionGroup: outer (1 sub-exception)")


def turn(number: int) -> int:
    return turn_back(number)


def turn_back(number: int) -> int:
    return turn(number + 1)


def test_a_recursion_is_shown_by_its_first_and_last_rounds() -> None:
    kept = record(lambda: turn(0))

    shown = frames(kept.traceback or "")
    assert shown.count("turn") == shown.count("turn_back") == 6
    assert "frames left out]" in (kept.traceback or "")
    assert (kept.origin or "").startswith("test_tracebacks.py:")


def test_ten_thousand_frames_are_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    try:
        kept = record(lambda: turn(0))
    finally:
        sys.setrecursionlimit(limit)

    assert len(frames(kept.traceback or "")) < 20


def test_frames_of_libraries_are_left_out_before_the_users_own(
    written: Callable[..., ModuleType],
) -> None:
    calls = [f"def f{n}():\n    return f{n + 1}()  # {'x' * 100}\n" for n in range(60)]
    deep = [f"def g{n}():\n    return g{n + 1}()\n" for n in range(300)]
    lib = written("".join([*deep, "def g300():\n    return 1 / 0\n"]), "lib", "site-packages")
    mine = written("".join([*calls, "import lib\ndef f60():\n    return lib.g0()\n"]))
    assert lib

    traceback = told(mine.f0)

    own = [name for name in frames(traceback) if name.startswith("f")]
    assert own[0] == "f0"
    assert own[-1] == "f60"
    assert not [name for name in frames(traceback) if name.startswith("g")]
    assert "[301 frames of libraries left out]" in traceback


def test_a_file_that_is_not_python_is_the_origin(tmp_path: Path) -> None:
    kept = record(lambda: compile("def f(:\n  pass", str(tmp_path / "steps.py"), "exec"))

    assert kept.origin == "steps.py:1 (<module>)"
    assert '  File "steps.py", line 1, in <module>\n    def f(:\n' in (kept.traceback or "")


def test_the_secrets_of_one_error_are_cut_out_of_all_of_them() -> None:
    def refused() -> None:
        error = AgentClientError("refused", details={"password": "hunter2hunter2"})
        error.add_note("tried hunter2hunter2 and token=hunter3")
        try:
            raise ValueError("hunter2hunter2 is too short")  # noqa: TRY301 - a cause
        except ValueError as cause:
            raise error from cause

    traceback = told(refused)

    assert "hunter" not in traceback
    assert "ValueError: [redacted] is too short" in traceback
    assert traceback.endswith("tried [redacted] and token=[redacted]")


def test_the_values_of_a_validation_that_is_a_cause_are_not_told() -> None:
    """Messages of pydantic quote them without the names that reveal a secret."""

    def misread() -> None:
        try:
            TypeAdapter(dict[str, int]).validate_python({"password": "hunter2"})
        except ValueError as cause:
            raise RuntimeError("odd") from cause

    assert "hunter2'" not in told(misread).replace('"password": [redacted]', "")
    assert "ValidationError: dict[str,int]: password: Input should be" in told(misread)


class LiarError(Exception):
    """All that it says of itself raises."""

    def _lie(self, *_: object) -> Any:
        raise OSError

    __cause__ = __context__ = __traceback__ = __notes__ = property(_lie)  # type: ignore[assignment]
    __str__ = __repr__ = _lie


def kind_of_no_words() -> type[Exception]:
    """Return a class that nothing can be asked of."""

    class Kind(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__module__", "__name__", "__qualname__", "__mro__"):
                raise OSError
            return super().__getattribute__(name)

    class OddError(Exception, metaclass=Kind):
        pass

    return OddError


@pytest.mark.parametrize("kind_of", [lambda: LiarError, kind_of_no_words])
def test_an_error_whose_class_lies_is_kept_with_its_traceback(
    kind_of: Callable[[], type[Exception]],
) -> None:
    kind = kind_of()

    def lie() -> None:
        raise kind

    kept = record(lie)

    assert (kept.origin or "").endswith("(lie)")
    assert "raise kind" in (kept.traceback or "")


class FalseError(Exception):
    """An error that counts as none."""

    def __bool__(self) -> bool:
        raise OSError


def much_of_all() -> Exception:
    error = AgentClientError("x" * 9999, details={"a": "y" * 9999})
    error.__cause__ = ExceptionGroup("all", [ValueError("z" * 999) for _ in range(30)])
    return error


def odd_syntax(filename: Any, line: Any, text: Any) -> SyntaxError:
    error = SyntaxError("odd")
    error.filename, error.lineno, error.text = filename, line, text
    return error


@pytest.mark.parametrize(
    "error",
    [
        odd_syntax("/dev/zero", 10**30, "\ud800" * 100_000),
        odd_syntax(7, "x", object()),
        ValueError("\ud800\x1b[31m"),
        ExceptionGroup("\x00" * 9999, [ValueError("😀" * 9999) for _ in range(99)]),
        AgentClientError("😀" * 9999, code="\x00" * 999, details=['😀\x00"' * 9999] * 999),
        AgentClientError("x" * 9999, details={"a": "\x00" * 99_999}),
        FalseError("no"),
        much_of_all(),
    ],
    ids=range(8),
)
def test_whatever_it_says_there_is_room_for_it(error: Exception) -> None:
    def fail() -> None:
        raise error

    assert record(fail).traceback


@pytest.mark.parametrize("file", ["/dev/zero", "/tmp", "\udc80.py", "<x>", "", "x" * 99_999])  # noqa: S108
def test_a_frame_of_no_file_has_no_source(file: str) -> None:
    run = compile("1 / 0", file, "exec")

    assert "ZeroDivisionError" in told(lambda: exec(run, {}))  # noqa: S102 - the test's own


def test_the_traceback_of_a_remote_worker_keeps_its_ends() -> None:
    lines = [f"at Worker.call{n} (worker.js:{n})" for n in range(1000)]

    whole = record_of_report("E", "e", "no", None, "Error: no\n  at f (token=hunter2)\n")
    long = record_of_report("E", "e", "no", None, "\n".join(lines)).traceback or ""

    assert whole.traceback == "Error: no\n  at f (token=[redacted])"
    assert len(long.encode()) <= TRACEBACK_LIMIT
    assert long.endswith("worker.js:999)")
    assert "\n[lines left out]\n" in long


def test_the_error_of_a_remote_worker_is_kept_without_its_secrets() -> None:
    details = {"api_key": "opensesame"}

    record = record_of_report(
        "E", "e", "no, token=hunter2, nor opensesame", details, "Error: opensesame is no key\n"
    )

    assert record.message == "no, token=[redacted], nor [redacted]"
    assert record.details == '{"api_key":"[redacted]"}'
    assert record.traceback == "Error: [redacted] is no key"
