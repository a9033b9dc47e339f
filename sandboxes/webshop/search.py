"""BM25 over a catalogue: the ids of the best products for a query. Deterministic; ties are in catalogue order.

The library is bm25s: in 50,000 texts of 40 words it answers a query of eight in 0.6 ms, where rank-bm25 takes 250 ms. The
parameters are those of Pyserini, which the published task uses (k1 0.9, b 0.4). Words are not stemmed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np
from bm25s import BM25

from sandboxes.webshop.product import Product

__all__ = ["MOST_HITS", "MOST_QUERY_CHARS", "MOST_QUERY_WORDS", "ProductIndex", "words_of"]

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets its own level to DEBUG when it is imported

MOST_HITS = 50
"""Products that a search finds at most, as in the published task."""
MOST_QUERY_CHARS, MOST_QUERY_WORDS = 200, 32
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, in lower case."""
    return _WORD.findall(text.lower())


class ProductIndex:
    """The searchable form of some products."""

    def __init__(self, products: Sequence[Product]) -> None:
        self._bm25 = BM25(k1=0.9, b=0.4)
        self._bm25.index([words_of(product.text()) for product in products], show_progress=False)
        self._known = self._bm25.vocab_dict

    def weights(self) -> dict[str, tuple[list[int], list[float]]]:
        """Return by word the places of products that have it, and what it adds to the score of each, single precision."""
        scores, bounds = self._bm25.scores, self._bm25.scores["indptr"]
        return {
            word: (
                scores["indices"][bounds[number] : bounds[number + 1]].tolist(),
                scores["data"][bounds[number] : bounds[number + 1]].tolist(),
            )
            for word, number in self._known.items()
            if number + 1 < len(bounds)  # the library knows the empty word, which no text has
        }

    def hits(self, query: str) -> tuple[int, ...]:
        """Return the places of the best products that have a word of `query`, best first."""
        words = [word for word in dict.fromkeys(words_of(query[:MOST_QUERY_CHARS])) if word in self._known]
        if not words:
            return ()
        scores_P = self._bm25.get_scores(words[:MOST_QUERY_WORDS])
        count = min(MOST_HITS, int(np.count_nonzero(scores_P)))
        if not count:
            return ()
        least = np.partition(scores_P, -count)[-count]
        places = np.flatnonzero(scores_P >= least)
        order = np.argsort(-scores_P[places], kind="stable")[:count]
        return tuple(places[order].tolist())
