"""`python -m tools.prose`: plain English in docs, docstrings, messages, test names and commits.

The gate runs it; `python -m tools.prose FILE` checks the message of a commit, for a hook. All rules
and words are in the tables below. A rule that refuses good prose is corrected here; the prose is
not made worse for it.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

#: Folders that are checked, beside the pages in the root: of tests, their names and docstrings.
FOLDERS: Final = ("docs", "examples", "pipelines", "shared", "tests", "tools")
#: Decisions are records: they stay as they were written.
NOT_YET: Final = ("docs/decisions/",)
#: The words of the rules, and the sentences that break them.
EXEMPT: Final = frozenset({"tools/prose.py", "tests/unit/test_prose.py"})

#: Commits, by the first nine digits, whose subject is accepted: a history is not rewritten for it.
ACCEPTED: Final = frozenset(
    {"9522e8025", "cfa693335", "f6d84cefb", "b62476590", "de5a9b936", "8e37074e3", "c4aefb3dc"}
)

#: Archaic or crooked phrases, and the plain ones. A pattern is bounded by words.
PHRASES: Final[Sequence[tuple[str, str]]] = (
    (r"who(?:m|so)?ever|whatsoever", "name the role: 'the caller', 'each worker'"),
    (r"somebody|nobody|everybody|anybody", "name the role: 'the caller', 'each worker'"),
    (r"no one|someone", "name the process or the person: 'the next task', 'the operator'"),
    (r"told of", "write 'gets', 'receives', 'is reported'"),
    (r"look after look", "write 'again and again'"),
    (r"whence|thereof|wherein|lest|aught|naught|betimes|for ever", "write a modern word"),
    (r"for want of", "write 'because there is no ...'"),
    (r"(?:at most|only|for|within|after|until) so long(?! as)", "write 'for this time'"),
    (r"(?:at most|only) so (?:many|much|few)", "name the limit"),
    (r"let(?:s|ting)? go of", "write 'release'"),
    (r"bearable|how-manieth", "name the limit or the number"),
    (r"that (?:is|are|was|were) (?:none|no)\b(?! longer| more| of)", "write 'that is not a ...'"),
    (r"(?:is|are|was|were) none of (?:its|their|the|his|our)", "write 'is not part of ...'"),
    (r"(?<!no )(?:an?|the) [\w-]+ of (?:its|their|his|her) own", "write 'its own ...'"),
    (r"of (?:its|their) own few", "write 'its own ...'"),
    (r"(?:channels?|runs?|workers?|it|child) (?:is|are|was|were) told", "write 'gets', 'receives'"),
    (r"(?:is|are|was|were|be|been) told(?: (?:by|as|so|with)\b|(?=[,;]))", "write 'is reported'"),
    (r"what (?:is|was|are|were) (?:none|no)\b(?! longer)", "write a noun"),
    (r"(?:who|which|what)ever comes? (?:by|first)", "name the component"),
    (
        r"(?:of|with|by|than) what (?:is|was|are|were|has|had|stands|comes)\b(?! wrong)",
        "write a noun",
    ),
)

#: Synonyms, and the term of docs/glossary.md.
SYNONYMS: Final[Sequence[tuple[str, str]]] = (
    (r"(?:gives?|gave|given|giving) back (?:the|a|its) lease", "release"),
    (r"mend(?:s|ed|ing)?", "repair"),
    (r"runs? at rest", "idle, or terminal"),
    (r"calls? (?:that (?:is|are|was|were) )?made once", "recorded result"),
    (r"fenc(?:e|ing) numbers?", "fencing token"),
)

#: Both, as they are looked for.
_PHRASES: Final = [(re.compile(rf"\b(?:{of})", re.IGNORECASE), advice) for of, advice in PHRASES]
_SYNONYMS: Final = [(re.compile(rf"\b(?:{of})\b", re.IGNORECASE), term) for of, term in SYNONYMS]

#: Verbs that take a question: "it is known which file it is" has no relative clause.
_ASKING: Final = (
    "known|said|asked|decided|recorded|noted|shown|told|written|checked|listed|named|seen|stored"
    "|kept|logged|printed|counted|read|compared|explained|described|understood|tested|\\w+one"
)
#: "The run is given up whose value is lost": the clause is behind the verb.
SEPARATED: Final = re.compile(
    rf"\b(?:is|are|was|were|be|been) (?!(?:{_ASKING})\b)\w+(?:ed|en|ept|ost|ut|ade|aid|ound)"
    r"(?: up| off| out| away| back)? (?:whose|who|that (?:is|are|was|were|has|have|had))\b",
    re.IGNORECASE,
)
#: Most texts have none of these: they are looked for together first.
_ANY: Final = re.compile(
    "|".join(one.pattern for one in (*dict(_PHRASES), *dict(_SYNONYMS), SEPARATED)), re.IGNORECASE
)
#: A sentence with a clause for its subject: "What an attempt counts as is ...".
CLAUSE_FIRST: Final = re.compile(r"(?:What|Whatever|Whoever|Who|Whose)\b")
#: Words of a sentence, without those in parentheses.
LONGEST: Final = 35
#: Shorter ones are labels: "What it costs."
_LABEL: Final = 4

#: In which a comment may seem to begin, and one that does: to tokenize it all takes a second more.
_STRING_OR_COMMENT: Final = re.compile(
    r"""(?s:('''|\"{3}).*?(?<!\\)(?:\\\\)*\1)"""
    r"""|(['"])(?:\\(?s:.)|[^\\\n])*?\2"""
    r"""|#[^\n]*"""
)

#: What may have a docstring.
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """A piece of prose, its place, and whether it is made of whole sentences."""

    where: str
    text: str
    has_sentences: bool = False


def problems(text: str, *, has_sentences: bool = True) -> Iterator[str]:
    """Yield each problem of a piece of prose, one line each."""
    if _ANY.search(text):
        yield from _problems_of_words(text)
    if has_sentences:
        for sentence in re.split(r"(?<=[.!?:;])\s+", text):
            yield from _problems_of_sentence(sentence)


def _problems_of_words(text: str) -> Iterator[str]:
    for pattern, advice in _PHRASES:
        for found in pattern.finditer(text):
            if _is_prose(text, found):
                yield f"'{found.group()}': {advice}"
    for pattern, term in _SYNONYMS:
        for found in pattern.finditer(text):
            yield f"'{found.group()}': the term is {term}"
    for found in SEPARATED.finditer(text):
        yield f"'{found.group()}': a relative clause follows its noun"


def _is_prose(text: str, found: re.Match[str]) -> bool:
    """Return whether a match is whole words, not in quotes, and not the value None of Python."""
    after, before = text[found.end() :][:1], text[: found.start()][-1:]
    is_quoted = before != "" and before == after and before in "'\""
    return not (after.isalnum() or after == "_" or is_quoted or found.group().endswith("None"))


def _problems_of_sentence(sentence: str) -> Iterator[str]:
    words = len(re.sub(r"\([^()]*\)", "", sentence).split())
    if words > _LABEL and sentence.endswith(".") and CLAUSE_FIRST.match(sentence):
        yield f"'{sentence[:30]}...': begin with the subject, a noun"
    if words > LONGEST:
        yield f"'{sentence[:30]}...': {words} words in one sentence, at most {LONGEST}"


def of_markdown(path: str, text: str) -> Iterator[Text]:
    """Yield the prose of a page: its lines and the cells of its tables, without code.

    Generated parts are left out: their texts are in the code.
    """
    text = re.sub(r"(?ms)^ *```.*?^ *```|^<!-- generated.*?^<!-- end -->", _blank, text)
    for number, line in enumerate(text.splitlines(), 1):
        for cell in line.split(" | ") if line.startswith("|") else [line]:
            prose = re.sub(r"^[\s|>#*-]+|^\d+\. ", "", _plain(cell)).strip(" |")
            if " " in prose:
                yield Text(f"{path}:{number}", prose, line[0] not in "#|")


def of_python(path: str, text: str) -> Iterator[Text]:
    """Yield the prose of a module: docstrings, comments and messages."""
    module = ast.parse(text)
    yield from of_docstrings(path, module)
    seen: set[int] = set()
    for node in ast.walk(module):  # what is around a text comes before it
        message = ""
        if isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
            message = "".join(_literal(one) for one in node.values)
        elif isinstance(node, ast.Constant):
            message = _literal(node, "") if id(node) not in seen else ""
        elif isinstance(node, _DOCUMENTED):
            seen.add(id(_docstring(node)))
        if message.count(" ") > 1 and not re.search(r"[\\{}^\n]|\bSELECT\b", message):
            yield Text(f"{path}:{getattr(node, 'lineno', 0)}", _plain(message))
    yield from (Text(f"{path}:{line}", _plain(comment)) for line, comment in _comments(text))


def of_docstrings(path: str, module: ast.Module) -> Iterator[Text]:
    """Yield each paragraph of the docstrings of a module."""
    blocks: list[ast.AST] = [module]
    for node in blocks:
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            blocks += getattr(node, name, ())
        if constant := _docstring(node):
            for line, part in _paragraphs(constant):
                yield Text(f"{path}:{line}", part, has_sentences=True)


def of_tests(path: str, text: str) -> Iterator[Text]:
    """Yield the docstrings of a module of tests, and the names of its tests, as sentences."""
    yield from of_docstrings(path, ast.parse(text))
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*(?:async )?def test_(\w+)", line):
            yield Text(f"{path}:{number}", found[1].replace("_", " "))


def _docstring(node: ast.AST) -> ast.Constant | None:
    if not isinstance(node, _DOCUMENTED) or not node.body:
        return None
    first = node.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    return first.value if isinstance(first.value.value, str) else None


def _literal(node: ast.AST, other: str = "X") -> str:
    """Return the text of a literal; of anything else `other`."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(node.value) if is_text and isinstance(node, ast.Constant) else other


def _paragraphs(constant: ast.Constant) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and each item of a docstring on one line, with its place."""
    lines: list[str] = []
    begun = constant.lineno
    for number, line in enumerate([*str(constant.value).splitlines(), ""], begun):
        item = re.match(r"\s+(?:[\w*, `.]+: |- |\d+ )", line)
        if item or not line.strip():
            if lines:
                yield begun, _plain(" ".join(lines))
            lines = []
        begun = begun if lines else number
        lines += [line[item.end() :] if item else line.strip()] if line.strip() else []


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield each comment, those of neighbouring lines as one."""
    lines: list[str] = []
    last, row, counted = 0, 1, 0
    for found in _STRING_OR_COMMENT.finditer(text):
        if found.group()[0] != "#":
            continue
        start = found.start()
        row, counted = row + text.count("\n", counted, start), start
        if lines and (row != last + 1 or text[text.rfind("\n", 0, start) + 1 : start].strip()):
            yield last, " ".join(lines)
            lines = []
        lines.append(found.group().lstrip("#: "))
        last = row
    if lines:
        yield last, " ".join(lines)


def _plain(text: str) -> str:
    """Return a text without its code and without the addresses of its links."""
    text = re.sub(r"`+[^`]*`+", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"https?://\S+", "URL", text).replace("*", "")


def _blank(part: re.Match[str]) -> str:
    return "\n" * part[0].count("\n")


def texts(root: Path = ROOT) -> Iterator[Text]:
    """Yield all prose that is checked."""
    for path in sorted(root.glob("*.md")) + [p for name in FOLDERS for p in _files(root / name)]:
        name = path.relative_to(root).as_posix()
        if name in EXEMPT or name.startswith(NOT_YET):
            continue
        text = path.read_text(encoding="utf-8")
        if name.endswith(".md"):
            yield from of_markdown(name, text)
        else:
            yield from (of_tests if name.startswith("tests/") else of_python)(name, text)


def of_commits(root: Path = ROOT) -> Iterator[Text]:
    """Yield the subjects of commits since the one that introduced this function.

    Where the history is shallow, the first commit that is there counts as that one; without a
    history there are none.
    """
    introduced = _git(root, "log", "--format=%H", "-S", "def of_commits(", "--", "tools/prose.py")
    for line in _git(
        root, "log", "--no-merges", "--abbrev=9", "--format=%h %s", *_since(introduced)
    ):
        commit, _, subject = line.partition(" ")
        if commit not in ACCEPTED:
            yield Text(commit, _plain(subject))


def _since(introduced: Sequence[str]) -> Sequence[str]:
    return [f"{introduced[-1]}..HEAD"] if introduced else ["--max-count=0"]


def _git(root: Path, *words: str) -> list[str]:
    """Return the lines of git's answer; none where there is no repository, or no git."""
    if not (root / ".git").exists():
        return []
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(  # noqa: S603 - git of the developer, with words of this module
            command, check=False, capture_output=True, text=True
        )
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix in {".md", ".py"} and p.is_file())


def main(arguments: Sequence[str]) -> int:
    """Print each problem of the project, or of a commit's message; return the exit code."""
    if arguments:
        first = Path(arguments[0]).read_text(encoding="utf-8").partition("\n")[0]
        checked = [Text("the subject", _plain(first))]
    else:
        gc.disable()  # a syntax tree has no cycles, and to look for some takes a third of the time
        checked = [*texts(), *of_commits()]
    count = 0
    for one in checked:
        for problem in problems(one.text, has_sentences=one.has_sentences):
            count += 1
            print(f"{one.where}: {problem}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
