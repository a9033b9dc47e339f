"""Read the published WebShop files: products, their attributes, and the instructions people wrote for them.

Each is one JSON value. The files are the operator's (`HostPath`), but their content is read as foreign: a wrong record is
an error that names it. Two random choices of the original follow from the product's id here: the price of a product that
has a range of them, and how much above it the instruction's limit lies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from rock_env.errors import InvalidArgument, NotFound
from rock_env.tasks import derive_seed
from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.product import MOST_WANTED, Goal, Product

__all__ = ["read_catalogue", "read_goals"]

MOST_BYTES = 1 << 28
"""Of a file, which may also be one without an end. All 1.2 million published products are 5 GB; those of 1,000 are 5 MB."""
_NO_PRICE = 100.0
_NO_LIMIT = 1_000_000.0
_LONGEST_ID = 10
_AMOUNT = re.compile(r"\d+(?:\.\d+)?")


def _load(path: str, argument: str) -> Any:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise NotFound(f"cannot read the file {path!r}: {error.strerror}. Check {argument}.") from error
    if len(content) > MOST_BYTES:
        raise InvalidArgument(
            f"{argument} {path!r} is too large: expected at most {MOST_BYTES} bytes. Take fewer products."
        )
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{argument} {path!r} is not JSON: {str(error)[:100]}.") from error


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Say of an error that `what` is not as it should be."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidArgument(
            f"{what} is not as in WebShop's files: {type(error).__name__}: {str(error)[:100]}."
        ) from error


def read_catalogue(products_file: str, attributes_file: str, *, most: int) -> Catalogue:
    """Read at most `most` products. Raise `NotFound` for no such file, `InvalidArgument` for other content."""
    records, about = _load(products_file, "products_file"), _load(attributes_file, "attributes_file")
    if not isinstance(records, list) or not isinstance(about, dict):
        raise InvalidArgument(
            f"products_file must hold a list and attributes_file an object, got {type(records).__name__} and "
            f"{type(about).__name__}. Were they exchanged?"
        )
    products: dict[str, Product] = {}
    for number, record in enumerate(records[:most]):
        with _reading(f"product {number} of {products_file!r}"):
            product = _product(record, about)
        if product is not None:
            products.setdefault(product.asin, product)
    if not products:
        raise InvalidArgument(f"{products_file!r} has no products.")
    return Catalogue(list(products.values()))


def _text(value: Any) -> str:
    """Return a text without line breaks and without halves of characters, which no page can show."""
    return " ".join(str(value).split()).encode(errors="replace").decode()


def _product(record: Any, about: dict[str, Any]) -> Product | None:
    asin = _text(record["asin"])
    if asin == "nan" or len(asin) > _LONGEST_ID:
        return None
    bullets = record.get("small_description") or []
    groups = (record.get("customization_options") or {}).items()
    return Product(
        asin=asin,
        name=_text(record["name"]),
        query=_text(record["query"]).lower(),
        category=_text(record["product_category"]),
        price=_price(asin, str(record.get("pricing") or "")),
        attributes=tuple(map(_text, about.get(asin, {}).get("attributes", ["DUMMY_ATTR"]))),
        options=tuple((_text(name).lower(), _values(values)) for name, values in groups if values),
        features=tuple(map(_text, bullets if isinstance(bullets, list) else [bullets])),
        description=_text(record.get("full_description") or ""),
    )


def _values(values: list[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_text(str(value["value"]).replace("/", " | ")).lower() for value in values))


def _price(asin: str, pricing: str) -> float:
    """Return a price from texts such as `$9.99` and `$9.99 - $12.50`."""
    amounts = [float(_AMOUNT.findall(part.replace(",", ""))[0]) for part in pricing.split("$")[1:3]]
    if len(amounts) == 2:
        return Random(derive_seed("webshop price", asin)).uniform(*amounts)
    return amounts[0] if amounts else _NO_PRICE


def read_goals(instructions_file: str, catalogue: Catalogue) -> list[Goal]:
    """Read the instructions for products of the catalogue, each text once. Raise as `read_catalogue`, also if none fits."""
    records = _load(instructions_file, "instructions_file")
    if not isinstance(records, dict):
        raise InvalidArgument(f"instructions_file must hold an object, got {type(records).__name__}.")
    goals: dict[str, Goal] = {}
    for product in catalogue.products:
        with _reading(f"the instructions for {product.asin} in {instructions_file!r}"):
            for goal in _goals(records.get(product.asin, []), product):
                goals.setdefault(goal.text, goal)
    if not goals:
        raise InvalidArgument(f"{instructions_file!r} has no instruction for a product of products_file.")
    return list(goals.values())


def _goals(records: Any, product: Product) -> list[Goal]:
    goals = []
    for record in records:
        attributes = tuple(map(_text, record["instruction_attributes"]))
        wanted = record["instruction_options"]
        options = tuple(map(_text, wanted.values() if isinstance(wanted, dict) else wanted))
        if not attributes:
            continue  # the original skips these, too
        if max(len(attributes), len(options)) > MOST_WANTED:
            raise ValueError(f"expected at most {MOST_WANTED} attributes and options")
        text = _text(record["instruction"]).strip(".")
        upper = _limit(product, text)
        if upper < _NO_LIMIT:
            text += f", and price lower than {upper:.2f} dollars"
        goals.append(Goal(product.asin, text, attributes, options, upper))
    return goals


def _limit(product: Product, text: str) -> float:
    """Return the higher of two of the next four tens above the price; without two below 1,000 there is no limit."""
    tens = [10.0 * step for step in range(1, 100) if 10.0 * step > product.price][:4]
    if len(tens) < 2:
        return _NO_LIMIT
    return max(Random(derive_seed("webshop limit", product.asin, text)).sample(tens, 2))
