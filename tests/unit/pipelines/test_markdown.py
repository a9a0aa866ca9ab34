import pytest

from pipelines.review.markdown import Page, Sentence, read_page, split
from pipelines.review.models import Section


def outline(page: Page) -> list[tuple[int, int, str]]:
    return [(section.line, section.level, " > ".join(section.path)) for section in page.sections]


def test_sections_have_their_heading_path_level_line_and_anchor() -> None:
    page = read_page(
        "# Guide\n\nHello.\n\n## Install\n\nRun it.\n\n### On Linux\n\nToo.\n\n## Use\n"
    )

    assert page.title == "Guide"
    assert page.sections == [
        Section(path=("Guide",), level=1, line=1),
        Section(path=("Guide", "Install"), level=2, line=5),
        Section(path=("Guide", "Install", "On Linux"), level=3, line=9),
        Section(path=("Guide", "Use"), level=2, line=13),
    ]


def test_an_empty_file_is_a_document_without_anything() -> None:
    assert read_page("") == Page(lines=0)


def test_front_matter_gives_the_title_and_keeps_the_line_numbers() -> None:
    page = read_page(
        "---\ntitle: 'The guide'\ntags: [a]\n---\n\n## Install\n\nIt takes 5 minutes.\n"
    )

    assert page.title == "The guide"
    assert outline(page) == [(6, 2, "Install")]
    assert page.sentences == [Sentence("It takes 5 minutes.", 8, ("Install",))]


def test_a_file_of_only_front_matter_has_a_title_and_no_text() -> None:
    page = read_page("---\ntitle: Draft\n---\n")

    assert (page.title, page.words, page.sections, page.sentences) == ("Draft", 0, [], [])


def test_a_rule_at_the_top_is_not_taken_for_front_matter_that_never_ends() -> None:
    page = read_page("---\n\n# Title\n\nText stands here.\n")

    assert outline(page) == [(3, 1, "Title")]


def test_windows_and_old_mac_line_ends_count_as_lines() -> None:
    windows = read_page("# A\r\n\r\nOne line.\r\n[b](b.md)\r\n")
    mac = read_page("# A\r\rOne line.\r[b](b.md)\r")

    assert (windows.lines, windows.links) == (4, [(4, "b.md")])
    assert mac == windows


def test_a_byte_order_mark_does_not_hide_the_title() -> None:
    assert read_page("\ufeff# Title\n").title == "Title"


def test_fences_and_indented_code_hold_no_headings_links_or_claims() -> None:
    page = read_page(
        "# A\n\n```md\n# Fake\n[x](gone.md) must be 5.\n```\n\n    # Fake [y](gone.md)\n"
    )

    assert outline(page) == [(1, 1, "A")]
    assert page.links == []
    assert page.sentences == []


def test_links_are_found_in_every_form_on_their_own_line() -> None:
    page = read_page(
        "See [a](a.md),\n[b][ref] and <https://example.org>.\n\n"
        "- item\n  - nested ![pic](p.png)\n\n"
        "| col |\n|---|\n| [cell](c.md) |\n\n"
        "> quoted [q](q.md)\n\n"
        "# Heading [h](h.md)\n\n"
        "[ref]: b.md 'Title'\n"
    )

    assert page.links == [
        (1, "a.md"),
        (2, "b.md"),
        (2, "https://example.org"),
        (5, "p.png"),
        (9, "c.md"),
        (11, "q.md"),
        (13, "h.md"),
    ]


def test_html_adds_its_anchors() -> None:
    page = read_page('<p><a id="start" href="a.md">a</a></p>\n\nText <a name=\'here\'></a>.\n')

    assert page.anchors == {"start", "here"}


def test_headings_that_repeat_get_numbered_anchors() -> None:
    assert read_page("# Use\n\n## Use\n\n## Use\n").anchors == {"use", "use-1", "use-2"}


def test_anchors_follow_the_rule_of_github() -> None:
    page = read_page(
        "# Überblick: *Größe* & `foo_bar()`\n\n## 日本語 の見出し\n\n"
        "## A -- b / c?\n\n## 🚀 Launch\n"
    )

    assert page.anchors == {
        "überblick-größe--foo_bar",
        "日本語-の見出し",
        "a----b--c",
        "-launch",
    }


def test_a_heading_in_a_list_or_quotation_is_an_anchor_but_no_section() -> None:
    page = read_page("# A\n\n> ## Quoted\n\n- ## Listed\n")

    assert outline(page) == [(1, 1, "A")]
    assert page.anchors == {"a", "quoted", "listed"}


def test_sentences_have_the_line_on_which_they_begin() -> None:
    page = read_page(
        "# A\n\nThe first one\nwraps. The second `has\ncode` in it. The third\\\nends.\n\n"
        "- An item says this.\n  - A nested one says that.\n"
    )

    assert [(sentence.line, sentence.text) for sentence in page.sentences] == [
        (3, "The first one wraps."),
        (4, "The second `has code` in it."),
        (5, "The third ends."),
        (8, "An item says this."),
        (9, "A nested one says that."),
    ]


def test_task_boxes_alerts_and_footnote_marks_are_no_text() -> None:
    page = read_page(
        "- [x] Done with it.\n\n> [!NOTE]\n> Mind this.\n\nIt holds.[^1]\n\n[^1]: Mostly.\n"
    )

    assert [sentence.text for sentence in page.sentences] == [
        "Done with it.",
        "Mind this.",
        "It holds.",
        "Mostly.",
    ]


def test_a_huge_line_is_read_but_is_no_sentence() -> None:
    page = read_page("# A\n\n" + "word " * 100_000 + "\n\nThe end is near.\n")

    assert page.words == 100_005
    assert [sentence.text for sentence in page.sentences] == ["The end is near."]


def test_ten_thousand_headings_are_no_trouble() -> None:
    assert len(read_page("## a\n" * 10_000).sections) == 10_000


def test_a_heading_is_carried_short_and_its_anchor_is_whole() -> None:
    """What stands under a heading carries it along: 95,000 times, in one file that came in."""
    page = read_page("# " + "a" * 500_000 + "\n" + "## b\n" * 5_000)

    assert len(page.title or "") == 160
    assert sum(len(part) for section in page.sections for part in section.path) < 1_000_000
    assert "a" * 500_000 in page.anchors


def test_a_target_that_many_links_share_is_carried_short() -> None:
    page = read_page("[a]: " + "b" * 100_000 + "\n\n[a] [a] [a]\n")

    assert [(line, len(target)) for line, target in page.links] == [(3, 1000)] * 3


def test_of_a_block_that_is_too_long_only_the_words_are_counted() -> None:
    page = read_page("# A\n\n" + "[a](b) " * 20_000 + "\n\n[c](d)\n")

    assert (page.words, page.too_long, page.links) == (20_002, [3], [(5, "d")])


def test_titles_of_front_matter_may_be_empty_or_stand_between_quotes() -> None:
    assert read_page("---\ntitle:   \n---\n").title is None
    assert read_page('---\ntitle: "A b"  \n---\n').title == "A b"
    assert read_page("---\ntitles: x\n---\n").title is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use e.g. Firestore, i.e. a store.", ["Use e.g. Firestore, i.e. a store."]),
        ("It takes 2.5 s. Then it ends.", ["It takes 2.5 s.", "Then it ends."]),
        ("After 15 min. of rest it ends.", ["After 15 min. of rest it ends."]),
        ("1. Install it. 2. Run it.", ["1. Install it.", "2. Run it."]),
        ("He said “Stop.” Then he left.", ["He said “Stop.”", "Then he left."]),
        ("Wait... It works.", ["Wait...", "It works."]),
        ("これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("no end", ["no end"]),
        ("x " * 40 + "e.g. This. Next.", ["x " * 40 + "e.g. This.", "Next."]),
    ],
)
def test_prose_is_split_where_its_sentences_end(text: str, expected: list[str]) -> None:
    assert [text[begin:end].strip() for begin, end in split(text) if text[begin:end]] == expected
