"""Texts that say the same are found, without comparing each with each."""

import random

from pipelines.review.salience import COMPARED, NEAR, fold
from pipelines.review.vocabulary import numbers, terms


def compared_with_each(texts: list[str]) -> list[list[int]]:
    """Return what `fold` should, by comparing each text with each group."""
    groups: list[list[int]] = []
    all_words, all_numbers = [set(terms(text)) for text in texts], [*map(numbers, texts)]
    for index, words in enumerate(all_words):
        for group in groups:
            other = all_words[group[0]]
            same = len(words & other) >= NEAR * len(words | other)
            if words and same and all_numbers[index] == all_numbers[group[0]]:
                group.append(index)
                break
        else:
            groups.append([index])
    return groups


def test_the_same_groups_are_found_as_by_comparing_each_with_each() -> None:
    chance = random.Random(9)  # noqa: S311 - no secret
    words = [f"word{letter}" for letter in "abcdefghijkl"]
    for _ in range(200):
        texts = [
            " ".join(chance.sample(words, chance.randint(0, 11))) + chance.choice(["", " 5", " 7"])
            for _ in range(COMPARED)
        ]

        assert fold(texts) == compared_with_each(texts)


def test_texts_of_one_word_are_the_same_or_not() -> None:
    assert fold(["leases", "lease", "runs", "", ""]) == [[0, 1], [2], [3], [4]]
