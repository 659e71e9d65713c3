"""Pydantic models and a function with them, for the tests that have the package."""

from pydantic import BaseModel, Field


class Line(BaseModel):
    amount: int = Field(gt=0)


class Invoice(BaseModel):
    customer: str
    lines: list[Line]


def total(invoice: Invoice, extra: list[Line]) -> Line:
    """Adds up."""
    return Line(amount=sum(line.amount for line in [*invoice.lines, *extra]))
