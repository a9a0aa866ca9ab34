"""What one step gives and the next one takes: only what surely fails is refused."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as data_field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from leasehold.worker.handler.checks import misfit, no_verdict

T = TypeVar("T")


class Page(BaseModel):
    title: str
    size: int = 0


class Titled(BaseModel):
    title: str


class Rated(BaseModel):
    title: str
    rating: int


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: str


class Hidden(BaseModel):
    title: str = Field("x", exclude=True)


class Aliased(BaseModel):
    title: str = Field(alias="theTitle")


class AliasedByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True)
    title: str = Field(alias="theTitle")


class WrittenByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)
    title: str = Field(alias="theTitle")


class Choices(BaseModel):
    title: str = Field(validation_alias=AliasChoices("name", "title"))


class Path(BaseModel):
    title: str = Field(validation_alias=AliasPath("page", 0))


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Number(BaseModel):
    title: int


class Lines(BaseModel):
    title: list[str]


class Wrapped(BaseModel):
    page: Page


class WrappedRated(BaseModel):
    page: Rated


class MaybeRated(BaseModel):
    page: Rated | None = None


class Pages(BaseModel):
    page: list[Page]


class Computed(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def title(self) -> str:
        return "x"


class Converted(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def rename(cls, _: Any) -> Any:
        return {"rating": 1}

    rating: int


class ConvertedField(BaseModel):
    title: list[str]

    @field_validator("title", mode="before")
    @classmethod
    def split(cls, given: Any) -> Any:
        return given.split() if isinstance(given, str) else given


class Texted(BaseModel):
    title: Annotated[Page, PlainSerializer(lambda page: page.title)]


class Coercing(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)
    title: str


class Box(BaseModel, Generic[T]):
    value: T


class Node(BaseModel):
    title: str
    child: Node | None = None


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Fish(BaseModel):
    kind: Literal["fish"] = "fish"


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Colour(StrEnum):
    RED = "red"


class Painted(BaseModel):
    title: Literal["blue", "red"]


class Record(TypedDict):
    title: str
    size: NotRequired[int]


class Sparse(TypedDict, total=False):
    title: str


@dataclass
class Data:
    title: str
    size: int = 0


@dataclass
class DataRated:
    title: str
    rating: int
    tags: list[str] = data_field(default_factory=list)


class Stamped(BaseModel):
    title: datetime


PAGE = Page(title="t")

#: A value of the first type, which surely can or cannot be read as the second.
SURELY_FAILS = [
    (PAGE, Page, Rated, "it lacks 'rating', which is required"),
    (PAGE, Page, DataRated, "it lacks 'rating', which is required"),
    (PAGE, Page, Aliased, "it lacks 'theTitle', which is required"),
    (PAGE, Page, Path, "it lacks 'page', which is required"),
    (PAGE, Page, Strict, "it always has 'size', which is forbidden (extra)"),
    (PAGE, Page, Lines, "its 'title' is a string and must be an array"),
    (PAGE, Page, list[Page], "it is an object and must be an array"),
    (PAGE, Page, str, "it is an object and must be a string"),
    (None, None, Page, "it is null and must be an object"),
    ([PAGE], list[Page], Page, "it is an array and must be an object"),
    (["a"], RootModel[list[str]], Page, "it is an array and must be an object"),
    ("a", str, Page, "it is a string and must be an object"),
    (1, int, str, "it is a number and must be a string"),
    (1, float, Stamped, "it is a number and must be an object"),
    (Number(title=1), Number, Titled, "its 'title' is a number and must be a string"),
    (Hidden(), Hidden, Titled, "it lacks 'title', which is required"),
    (Wrapped(page=PAGE), Wrapped, WrappedRated, "it lacks 'page.rating', which is required"),
    (Wrapped(page=PAGE), Wrapped, Pages, "its 'page' is an object and must be an array"),
    (Wrapped(page=PAGE), Wrapped, MaybeRated, "it lacks 'page.rating', which is required"),
    (Box[int](value=1), Box[int], Box[list[int]], "its 'value' is a number and must be an array"),
    (Fish(), Fish, Pet, "it fits none of the choices"),
    (Data("t"), Data, Rated, "it lacks 'rating', which is required"),
    ({"title": "t"}, Record, Rated, "it lacks 'rating', which is required"),
    (Titled(title="green"), Painted, Rated, "it lacks 'rating', which is required"),
    (Box[Colour](value=Colour.RED), Box[Colour], Box[Literal["blue"]], "its 'value' is never"),
    (PAGE, Page | Titled, Rated, "it lacks 'rating', which is required"),
    (Computed(), Computed, Rated, "it lacks 'rating', which is required"),
    (Node(title="t"), Node, WrappedRated, "it lacks 'page', which is required"),
]
MAY_FIT = [
    (PAGE, Page, Page),
    (PAGE, Page, Titled),
    (PAGE, Page, Data),
    (PAGE, Page, Record),
    (PAGE, Page, Sparse),
    (PAGE, Page, Any),
    (PAGE, Page, dict[str, Any]),
    (PAGE, Page, Open),
    (PAGE, Page, Choices),
    (PAGE, Page, AliasedByName),
    (PAGE, Page, Converted),
    (PAGE, Page, ConvertedField),
    (PAGE, Page, Page | None),
    (PAGE, Page, RootModel[Page]),
    (PAGE, Page, Annotated[Any, BeforeValidator(str)]),
    (PAGE, Any, Rated),
    (PAGE, object, list[int]),
    ({"title": "t", "rating": 1}, dict[str, Any], Rated),
    ({"title": "t", "rating": 1}, Open, Rated),
    ({"title": "t", "rating": 1}, Rated | Page, Rated),
    (None, Page | None, Page | None),
    (Titled(title="5"), Titled, Number),
    (Titled(title="2026-01-01T00:00:00Z"), Titled, Stamped),
    (Number(title=1), Number, Coercing),
    (Number(title=1), Number, Stamped),
    (Computed(), Computed, Titled),
    (WrittenByAlias(title="t"), WrittenByAlias, Aliased),
    (Texted(title=PAGE), Texted, Titled),
    (Wrapped(page=PAGE), Wrapped, Wrapped),
    (MaybeRated(), MaybeRated, MaybeRated),
    (Cat(), Cat, Pet),
    (Cat(), Pet, Cat),
    (Titled(title="red"), Painted, Titled),
    (Titled(title="red"), Titled, Painted),
    (Node(title="t", child=Node(title="u")), Node, Node),
    ({"title": "t"}, Sparse, Titled),
    ([1, 2], tuple[int, int], list[int]),
    ({1}, set[int], list[int]),
    (Box[Colour](value=Colour.RED), Box[Colour], Box[str]),
    (1, int, float),
    (True, bool, int),
]


def fails(value: Any, output: Any, given: Any) -> bool:
    """Try it, as the engine does."""
    text = TypeAdapter(output).dump_json(value, warnings=False)
    try:
        TypeAdapter(given).validate_json(text)
    except ValidationError:
        return True
    return False


@pytest.mark.parametrize(("value", "output", "given", "problem"), SURELY_FAILS)
def test_what_surely_fails_is_told(value: Any, output: Any, given: Any, problem: str) -> None:
    found = misfit(TypeAdapter(output), TypeAdapter(given))

    assert found is not None
    assert found.startswith(problem)
    assert fails(value, output, given)


@pytest.mark.parametrize(("value", "output", "given"), MAY_FIT)
def test_what_may_fit_passes(value: Any, output: Any, given: Any) -> None:
    """A false alarm would keep a good pipeline from starting."""
    assert misfit(TypeAdapter(output), TypeAdapter(given)) is None
    if value is PAGE and output in (Any, object):
        return  # of plain JSON nothing is known
    assert not fails(value, output, given)


def test_all_that_is_wrong_is_told_at_once() -> None:
    class Much(BaseModel):
        a: int
        b: int
        c: int
        d: int
        e: int
        f: int
        title: list[str]

    found = misfit(TypeAdapter(Page), TypeAdapter(Much))

    assert found is not None
    assert found.count("it lacks") == 5
    assert found.endswith("; 2 more")


def test_a_name_that_may_be_meant_by_two_fields_is_not_looked_into() -> None:
    """Whether `lines` is written under its alias depends on more than its model."""

    class Ambiguous(BaseModel):
        title: str
        lines: list[str] = Field([], serialization_alias="body")

    class Body(BaseModel):
        body: str = ""

    assert misfit(TypeAdapter(Ambiguous), TypeAdapter(Body)) is None
    assert not fails(Ambiguous(title="t"), Ambiguous, Body)


# -- verdicts --------------------------------------------------------------------------------------


class Verdict(BaseModel):
    settled: bool
    score: float
    findings: list[str] = []


class Optional(BaseModel):
    settled: bool
    score: float | None
    findings: list[str]


class Graded(BaseModel):
    settled: str
    score: str
    remarks: list[str]


class Renamed(BaseModel):
    settled: bool
    score: int = Field(serialization_alias="points")
    findings: tuple[str, ...]


@pytest.mark.parametrize(
    "fits", [Verdict, Optional, Any, dict[str, Any], Verdict | None, Literal[1] | Verdict, Renamed]
)
def test_a_model_that_may_give_a_verdict_is_not_refused(fits: Any) -> None:
    assert no_verdict(TypeAdapter(fits)) is None


def test_a_model_that_surely_gives_none_is_refused_by_its_fields() -> None:
    assert no_verdict(TypeAdapter(Graded)) == (
        "its 'settled' is a string and must be a boolean; its 'score' is a string and must be a "
        "number; it lacks 'findings', which is required"
    )
    assert no_verdict(TypeAdapter(list[Verdict])) == "it is an array and must be an object"
