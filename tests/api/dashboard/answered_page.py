"""A page as a browser without style and script has it: its words, its rows, its forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode
from xml.etree.ElementTree import Element, TreeBuilder

#: Elements that have no end.
_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})

#: Opens a path, or sends a form there, and returns status, content type and text of the answer.
Send = Callable[[str, bytes | None], tuple[int, str, str]]


class AnsweredPage:
    """A page, and the forms that its reader may send."""

    def __init__(self, send: Send, status: int, text: str) -> None:
        self._send, self.status, self.root = send, status, _tree(text)

    @property
    def words(self) -> str:
        return words_of(self.root)

    @property
    def heading(self) -> str:
        return words_of(self.one(".//h1"))

    @property
    def said(self) -> str:
        """The words on what a form has done."""
        return words_of(self.one(".//*[@role='status']"))

    @property
    def alert(self) -> str:
        return words_of(self.one(".//*[@role='alert']"))

    @property
    def headline(self) -> str:
        return words_of(self.one(".//p[@class='headline']"))

    def one(self, path: str) -> Element:
        """Return the first element there; there has to be one."""
        found = self.root.find(path)
        assert found is not None, f"{path} is not on the page: {self.words}"
        return found

    def rows(self, *texts: str) -> list[Element]:
        """Return the rows of tables that have all these texts."""
        return [row for row in self.root.iter("tr") if all(it in words_of(row) for it in texts)]

    def links(self, name: str) -> list[str]:
        """Return where links of this name lead."""
        return [it.get("href", "") for it in self.root.iter("a") if words_of(it) == name]

    def buttons(self, name: str, within: Element | None = None) -> list[Element]:
        """Return the forms with a button whose name begins so."""
        forms = (self.root if within is None else within).iter("form")
        return [form for form in forms if words_of(_button_of(form)).startswith(name)]

    def press(
        self, name: str, fields: Mapping[str, str] | None = None, *, within: Element | None = None
    ) -> AnsweredPage:
        """Fill in the form of this one button, by the labels of its fields, and send it."""
        (form,) = self.buttons(name, within)
        for label, text in (fields or {}).items():
            (field,) = (it for it in form.iter("label") if words_of(it).startswith(label))
            _fill(next(it for it in field.iter() if it.get("name")), text)
        query, path = urlencode(list(_values_of(form))), form.get("action", "")
        is_get = form.get("method") == "get"
        answer = self._send(f"{path}?{query}", None) if is_get else self._send(path, query.encode())
        return AnsweredPage(self._send, answer[0], answer[2])


def words_of(element: Element) -> str:
    """Return the words of an element, in one line."""
    return " ".join("".join(element.itertext()).split())


def _button_of(form: Element) -> Element:
    (button,) = form.iter("button")
    return button


def _fill(field: Element, text: str) -> None:
    if field.tag == "textarea":
        field.text = text
        return
    if field.tag == "select":
        (chosen,) = (it for it in field if text in (words_of(it), it.get("value")))
        for option in field:
            option.attrib.pop("selected", None)
        chosen.set("selected", "")
        return
    field.set("value", text)


def _values_of(form: Element) -> Iterator[tuple[str, str]]:
    """Yield what a browser sends of each field."""
    for field in form.iter():
        name = field.get("name")
        if name is None or field.get("type") == "checkbox":
            continue
        value = field.get("value", "")
        if field.tag == "textarea":
            value = field.text or ""
        if field.tag == "select":
            chosen = next((it for it in field if "selected" in it.attrib), field[0])
            value = chosen.get("value", words_of(chosen))
        assert value or "required" not in field.attrib, f"a browser asks for {name} first"
        yield name, value


def _tree(text: str) -> Element:
    builder = _Builder()
    builder.feed(text)
    builder.close()
    assert not builder.open, builder.open
    return builder.tree.close()


class _Builder(HTMLParser):
    """Builds the tree of a page; each element has to end where it may."""

    def __init__(self) -> None:
        super().__init__()
        self.tree, self.open = TreeBuilder(), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tree.start(tag, {name: value or "" for name, value in attrs})
        if tag in _VOID:
            self.tree.end(tag)
        else:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tree.start(tag, {name: value or "" for name, value in attrs})
        self.tree.end(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag, self.open
        self.tree.end(tag)

    def handle_data(self, data: str) -> Any:
        if self.open:
            self.tree.data(data)
