import pytest

from pipelines.review.sentences import split


def sentences(text: str) -> list[str]:
    return [sentence for _, sentence in split(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use e.g. Firestore, i.e. a store.", ["Use e.g. Firestore, i.e. a store."]),
        ("It takes 2.5 s. Then it ends.", ["It takes 2.5 s.", "Then it ends."]),
        ("Kept up to 15 min. Requests wait.", ["Kept up to 15 min.", "Requests wait."]),
        ("After 15 min. of rest it ends.", ["After 15 min. of rest it ends."]),
        ("Open `a. B` first. npm does it.", ["Open `a. B` first.", "npm does it."]),
        ("1. Install it. 2. Run it.", ["1. Install it.", "2. Run it."]),
        ("He said “Stop.” Then he left.", ["He said “Stop.”", "Then he left."]),
        ("Wait... It works.", ["Wait...", "It works."]),
        ("これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("no end", ["no end"]),
        ("a" * 80 + ". Next.", ["a" * 80 + ".", "Next."]),
        ("x " * 40 + "e.g. this. Next.", ["x " * 40 + "e.g. this.", "Next."]),
        ("x " * 40 + "see 1. Next.", ["x " * 40 + "see 1.", "Next."]),
        ("One. " + " " * 80 + ". Two.", ["One.", ". Two."]),
        ("", []),
    ],
)
def test_prose_is_split_where_its_sentences_end(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_each_sentence_comes_with_its_offset() -> None:
    assert list(split("  One. Two.")) == [(2, "One."), (7, "Two.")]
