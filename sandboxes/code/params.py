"""The environment's arguments."""

from __future__ import annotations

from pydantic import model_validator

from rock_env.arguments import items
from rock_env.spec import EnvParams
from sandboxes.code.families import TRAINED, UNSEEN

__all__ = ["CodeParams", "narrow"]

_TRAINED = tuple(problems[0].family for problems in TRAINED)
_UNSEEN = tuple(problems[0].family for problems in UNSEEN)


class CodeParams(EnvParams):
    """Arguments of the `code` environment."""

    families: str = ""
    """Families of train and held_out, as `digits,tally`; empty: all of these splits."""

    @property
    def chosen_families(self) -> tuple[str, ...]:
        """Return the families of train and held_out."""
        named = tuple(dict.fromkeys(items(self.families)))
        return named or _TRAINED

    @model_validator(mode="after")
    def _fits(self) -> CodeParams:
        for name in self.chosen_families:
            if name in _UNSEEN:
                raise ValueError(
                    f"family {name!r} is only in the split held_out_family; choose of {', '.join(_TRAINED)}"
                )
            if name not in _TRAINED:
                raise ValueError(f"no family {name!r}; the families are {', '.join(_TRAINED)}")
        return self


narrow = CodeParams.narrowed
