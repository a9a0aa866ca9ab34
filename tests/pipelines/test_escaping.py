import pytest
from markdown_it import MarkdownIt

from pipelines.review.escaping import label, prose, row


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
