import json

import pytest
from markdown_it import MarkdownIt

from pipelines.review.markdown_escapes import code, escape_controls, label, on_one_line, prose, row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words", "plain words"),
        ("2 * 3 and *not this*", "2 \\* 3 and \\*not this\\*"),
        ("snake_case and _this_", "snake_case and \\_this\\_"),
        ("a [link](x) <b>", "a \\[link\\](x) \\<b>"),
        ("code `a|b*` stays", "code `a|b*` stays"),
        ("a lone ` tick", "a lone \\` tick"),
        ("# no heading", "\\# no heading"),
        ("- no item", "\\- no item"),
        ("1. no list", "1\\. no list"),
        ("&amp; but R&D", "\\&amp; but R&D"),
        ("two\nlines", "two lines"),
    ],
)
def test_text_is_shown_as_it_is(text: str, expected: str) -> None:
    assert prose(text) == expected


def test_a_cell_cannot_break_its_table() -> None:
    cells = [prose("a|b"), prose("`c|d`"), prose("e\\|f"), "[g]"]
    table = "| 1 | 2 | 3 | 4 |\n| - | - | - | - |\n" + row(cells)

    html = MarkdownIt("commonmark").enable("table").render(table)

    assert row(cells) == "| a\\|b | `c\\|d` | e\\\\\\|f | [g] |"
    assert html.count("<td>") == 4
    assert "<td>a|b</td>" in html
    assert "<td><code>c|d</code></td>" in html
    assert "<td>e\\|f</td>" in html


def test_a_path_with_brackets_is_a_label() -> None:
    assert label("docs/[id].md:3") == "docs/\\[id\\].md:3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\x9b31mb", "a\\u009b31mb"),
        ("a\u202eb\u2066c\u2069", "a\\u202eb\\u2066c\\u2069"),
        ("bell\x07 del\x7f", "bell\\u0007 del\\u007f"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("two\x85lines\u2028and\ra third", "two lines and a third"),
        (
            "soft\u00adhyphen and \U0001f469\u200d\U0001f4bb",
            "soft\u00adhyphen and \U0001f469\u200d\U0001f4bb",
        ),
        ("Größe 日本語", "Größe 日本語"),
    ],
)
def test_what_no_one_sees_but_a_terminal_obeys_is_written_out(text: str, expected: str) -> None:
    assert on_one_line(text) == expected


def test_json_that_is_written_out_is_the_same_json() -> None:
    value = {"a": '\x9b\u202e\U000e0041\x7f "x"'}
    text = json.dumps(value, ensure_ascii=False, indent=2)

    assert json.loads(escape_controls(text)) == value
    assert escape_controls(text).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`<b>`", "`` `<b>` ``"), ("a``b`c", "```a``b`c```")],
)
def test_any_text_can_be_code(text: str, expected: str) -> None:
    html = MarkdownIt("commonmark").render(code(text))

    assert code(text) == expected
    assert html.count("<code>") == 1
    assert "<b>" not in html
