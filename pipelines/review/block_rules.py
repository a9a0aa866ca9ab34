"""The rules of CommonMark that look ahead, within bounds: else many would look at all lines."""

from typing import Final

from markdown_it.rules_block import StateBlock, blockquote, reference

DEFINITION_LINES: Final = 20  # that a link definition may take, its title included
LAZY_LINES: Final = 20  # of a quotation: those of its paragraphs that have no `>` themselves


def short_reference(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a link definition that is not a footnote, looking at a few lines only."""
    begin = state.bMarks[line] + state.tShift[line]
    if state.src.startswith("[^", begin):
        return False
    last, state.lineMax = state.lineMax, min(state.lineMax, line + DEFINITION_LINES)
    try:
        return reference(state, line, end, silent)
    finally:
        state.lineMax = last


def short_quotation(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Read a quotation, which ends at the first lines without `>` that no paragraph takes.

    The parser takes each line that could continue a paragraph, down to an empty one, before it sees
    that there is no paragraph; and then the next quotation takes them all again.
    """
    return blockquote(state, line, end if silent else _quotation_end(state, line, end), silent)


def _quotation_end(state: StateBlock, line: int, end: int) -> int:
    """Return the line at which the quotation that begins at `line` ends at last."""
    lazy = 0
    for number in range(line + 1, end):
        begin = state.bMarks[number] + state.tShift[number]
        if begin >= state.eMarks[number]:
            return number
        if state.src[begin] != ">":
            lazy += 1
            if lazy > LAZY_LINES:
                return number
    return end
