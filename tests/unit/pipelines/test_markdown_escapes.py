import json
from html import escape

import pytest
from markdown_it import MarkdownIt

from pipelines.review.markdown_escapes import escape_controls, prose


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words", "plain words"),
        ("2 * 3 and *not this*", "2 \\* 3 and \\*not this\\*"),
        ("snake_case and _this_", "snake_case and \\_this\\_"),
        ("a [link](x) <b>", "a \\[link\\](x) \\<b>"),
        ("code `a|b*`", "code \\`a\\|b\\*\\`"),
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
def test_invisible_characters_that_a_terminal_obeys_are_written_out(
    text: str, expected: str
) -> None:
    assert escape_controls(" ".join(text.split())) == expected


def test_json_that_is_written_out_is_the_same_json() -> None:
    value = {"a": '\x9b\u202e\U000e0041\x7f "x"'}
    text = json.dumps(value, ensure_ascii=False, indent=2)

    assert json.loads(escape_controls(text)) == value
    assert escape_controls(text).replace("\n", "").isprintable()


@pytest.mark.parametrize("text", ["a|b `c|d` <e>", "[f](g) **h** &amp; \\", "# i", "```", "1. j"])
def test_a_cell_of_a_table_shows_the_text_as_it_is(text: str) -> None:
    table = f"| 1 | 2 |\n| - | - |\n| {prose(text)} | end |"

    html = MarkdownIt("commonmark").enable("table").render(table)

    assert f"<td>{escape(text)}</td>\n<td>end</td>" in html
