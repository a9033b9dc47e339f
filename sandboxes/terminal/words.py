"""What a template draws from: seeded numbers, and names that training and held-out tasks do not share.

Used by the templates. A `Draw` of one split never gives a name of the other.
"""

from __future__ import annotations

import hashlib
from random import Random
from typing import Literal

from rock_env.tasks import derive_seed

__all__ = ["Draw", "Kind"]

Kind = Literal["person", "service", "thing", "place", "word"]

_NAMES: dict[str, dict[Kind, str]] = {
    "train": {
        "person": "alma boris carla david elena farid greta hugo irene jonas karin lev mona nils olga pavel",
        "service": "gateway mailer indexer ledger cache resizer billing search auth uploader notifier planner",
        "thing": "kettle lantern bucket ladder pillow candle basket hammer mirror carpet whistle teapot shovel",
        "place": "harbor station library market bakery museum garden office stadium theatre airport school",
        "word": "amber birch copper delta ember frost grove hazel indigo juniper kelp linen maple nectar olive",
    },
    "held_out": {
        "person": "amara bruno chiara dmitri esther fiona goran hanna ivo judit kemal lucia",
        "service": "router courier catalog treasury buffer encoder invoicing crawler keyring spooler beacon scheduler",
        "thing": "anvil bellows compass drum easel funnel goblet hinge inkwell jug kite lute",
        "place": "quarry orchard foundry chapel wharf depot mill observatory tavern arena clinic nursery",
        "word": "agate basil cedar dune echo flint garnet heather iris jade karst lotus mica nutmeg onyx",
    },
}


class Draw:
    """The random choices of one task. Names are drawn without repetition."""

    def __init__(self, template: str, variant: int, *, split: str) -> None:
        self._label = f"{template}/{variant}"
        self.rng = Random(derive_seed("terminal", template, variant))
        self._left = {kind: self._shuffled(names) for kind, names in _NAMES[split].items()}

    def _shuffled(self, names: str) -> list[str]:
        words = names.split()
        self.rng.shuffle(words)
        return words

    def names(self, kind: Kind, count: int) -> list[str]:
        """Return `count` names not drawn before. Raise `IndexError` if there are not as many."""
        return [self._left[kind].pop() for _ in range(count)]

    def name(self, kind: Kind) -> str:
        """Return one name not drawn before."""
        return self._left[kind].pop()

    def number(self, low: int, high: int) -> int:
        """Return a whole number, both ends included."""
        return self.rng.randint(low, high)

    def code(self, purpose: str) -> str:
        """Return 12 hex digits that belong to this task and `purpose`, and cannot be guessed from the task."""
        return hashlib.blake2b(f"{self._label}/{purpose}".encode(), digest_size=6).hexdigest()
