"""`leasehold check` as a function would be checked: from the bundle, with its requirements alone.

The check runs in its own process, which hides all other packages and has only the bundle of
Leasehold.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from leasehold.deploy.bundle import BundleError
from leasehold.deploy.bundle.contents import REQUIREMENTS

_MODULES: Final = Path(__file__).with_name("modules.py")
#: Longer, and an import hangs.
_MAX_IMPORT_S: Final = 120
_NAME_IT: Final = "name the package in pipelines/requirements.txt, or an extra: --extra NAME"
#: Its answer has its own file: what is imported may write anything to stdout, or leave
#: threads and processes behind, which are not waited for.
_PROGRAM: Final = """
import contextlib, json, os, sys
given = json.load(sys.stdin)
sys.path += given["path"]
known = {"__name__": "modules"}
with open(given["modules"], encoding="utf-8") as file:
    exec(compile(file.read(), "modules.py", "exec"), known)
Modules = known["Modules"]
code = Modules.find_spec.__code__  # by this name it is not taken for the user's own code
Modules.find_spec.__code__ = code.replace(co_filename="<bundle>")
sys.meta_path.insert(0, Modules(given["files"]))
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the user's modules print, at whatever time, is no part of the answer
with contextlib.redirect_stdout(sys.stderr):
    from leasehold.errors import LeaseholdError
    from leasehold.static_check import check_project
    try:
        findings = check_project({"LEASEHOLD_CATALOG": given["catalog"]}).findings
        lines = [f"{it.file}:{it.line}: {it.message}" if it.file else it.message for it in findings]
    except LeaseholdError as error:
        lines = [error.message]
with open(given["answer"], "w", encoding="utf-8") as answer:
    json.dump(lines, answer)
os._exit(0)
"""


def check_imports(
    bundle: Path, catalog: str, files: Sequence[str], installed: Sequence[str]
) -> None:
    """Import the catalog and all that it names, in a bundle.

    Args:
        bundle: its folder.
        catalog: the name of its module.
        files: of the bundle and of its requirements, as `Modules` has them.
        installed: folders of the installed packages, before the bundle, as in a function.

    Raises:
        BundleError: all that `leasehold check` found.
    """
    path = [*installed, str(bundle)]
    given = {"modules": str(_MODULES), "path": path, "files": list(files), "catalog": catalog}
    with tempfile.TemporaryDirectory() as made:
        answer, said = Path(made) / "answer", Path(made) / "said"
        given["answer"] = str(answer)
        code = _run(json.dumps(given), bundle, said)
        text = answer.read_text(encoding="utf-8") if answer.exists() else ""
        last = said.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    if code is None or not text:
        why = f"it takes longer than {_MAX_IMPORT_S} s" if code is None else last or f"exit {code}"
        raise BundleError(f"the catalog {catalog} cannot be imported: {why}")
    lines: list[str] = json.loads(text)
    if lines:
        found = ". ".join(line.rstrip(".") for line in lines)
        raise BundleError(f"{found}.{_remedy(found)}")


def _run(given: str, bundle: Path, said: Path) -> int | None:
    """Run the program, with all that it starts; return its exit code, None where it hangs."""
    with said.open("wb") as output:
        program = subprocess.Popen(  # noqa: S603 - this interpreter, and a text of our own
            # -B: the folder is deleted, and no process would read the byte code in it.
            [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            cwd=bundle,
            text=True,
            start_new_session=True,
        )
    try:
        program.communicate(given, timeout=_MAX_IMPORT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
    return program.returncode


def _remedy(found: str) -> str:
    """Return what to do about a package that is not there."""
    if "ModuleNotFoundError" not in found:
        return ""
    return f" A function has only the bundle and its {REQUIREMENTS}: {_NAME_IT}"
