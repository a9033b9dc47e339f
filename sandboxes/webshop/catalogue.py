"""The products of a shop in their order, by id, by kind, and by search. Made once for equal arguments; never changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from rock_env.errors import InvalidArgument
from sandboxes.webshop.product import Product
from sandboxes.webshop.search import ProductIndex

__all__ = ["Catalogue"]


class Catalogue:
    """Products in their order, by id, and by kind."""

    def __init__(self, products: Sequence[Product]) -> None:
        self.products = tuple(products)
        self.by_asin = {product.asin: product for product in self.products}
        self.by_query: dict[str, list[Product]] = {}
        for product in self.products:
            self.by_query.setdefault(product.query, []).append(product)

    def product(self, asin: str) -> Product:
        """Return a product. Raise `InvalidArgument` if there is none of this id."""
        found = self.by_asin.get(asin)
        if found is None:
            raise InvalidArgument(
                f"no product {asin[:40]!r} in this webshop of {len(self.products)} products: pass a task or snapshot that "
                "was made with the same arguments."
            )
        return found

    @cached_property
    def index(self) -> ProductIndex:
        """Return what is searched, made when it is first needed: of 50,000 products in some seconds."""
        return ProductIndex(self.products)
