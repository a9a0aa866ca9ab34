import random
import re

from pipelines.review.code_spans import code_spans

#: What a code span is, in one pattern; it takes too long where there are many backticks.
PATTERN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def test_code_spans_are_what_the_pattern_says() -> None:
    chance = random.Random(9)  # noqa: S311 - no secret
    for _ in range(3000):
        text = "".join(chance.choice("```ab ") for _ in range(chance.randint(0, 30)))

        assert list(code_spans(text)) == [found.span() for found in PATTERN.finditer(text)]
