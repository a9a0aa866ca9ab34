"""Orders of faults: each happens once, at the first point that fits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A fault that is to happen once; `of` names a step or a channel, None: any."""

    kind: str
    of: str | None
    number: int = 1
    seconds: float = 0.0
    concurrently: bool = False
    place: str = "step"

    def __str__(self) -> str:
        where = f"any {self.place}" if self.of is None else f"{self.place} {self.of!r}"
        number = f" {self.number}" if self.kind.endswith("checkpoint") else ""
        return f"{self.kind}{number} of {where}"


@dataclass(slots=True)
class Orders:
    """The faults that are ordered and have not happened."""

    pending: list[Order] = field(default_factory=list)

    def add(self, order: Order) -> None:
        """Order a fault."""
        self.pending.append(order)

    def take(
        self, kind: str, of: str | None, *, number: int = 1, concurrently: bool = False
    ) -> Order | None:
        """Return an order that this point fits, which is none any more; or None."""
        for order in self.pending:
            fits = (order.kind, order.number, order.concurrently) == (kind, number, concurrently)
            if fits and order.of in (None, of):
                self.pending.remove(order)
                return order
        return None
