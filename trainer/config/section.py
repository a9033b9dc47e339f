"""What all sections of a run's settings are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Scalar", "Section"]

Scalar = bool | int | float | str


class Section(BaseModel):
    """A table of options: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
