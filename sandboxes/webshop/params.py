"""The shop's arguments, what the agent is told, its catalogue and tasks. Called through `ENV`; holds caches alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal
from weakref import WeakValueDictionary

from pydantic import Field, model_validator

from rock_env.errors import ResourceExhausted
from rock_env.spec import EnvParams, HostPath, TaskSource
from rock_env.tasks import ListedTasks, ProceduralTasks
from sandboxes.webshop.catalogue import Catalogue
from sandboxes.webshop.files import read_catalogue, read_goals
from sandboxes.webshop.generator import Wish, random_catalogue, random_goal
from sandboxes.webshop.pages import LETTERS
from sandboxes.webshop.shop import Shop
from sandboxes.webshop.words import KINDS

__all__ = ["WebshopParams", "narrow", "shop_of", "tasks"]

MOST_PRODUCTS = 100_000
MOST_HELD = 2 * MOST_PRODUCTS
"""Products of all catalogues in one process, about 1.2 KB each."""
_catalogues: WeakValueDictionary[tuple[object, ...], Catalogue] = WeakValueDictionary()
"""By the arguments that a catalogue follows from, as long as anybody uses it."""


class WebshopParams(EnvParams):
    products: int = Field(default=1000, ge=2, le=MOST_PRODUCTS)
    """Products of the generated catalogue, or at most taken from products_file."""
    kinds: int = Field(default=len(KINDS), ge=1, le=len(KINDS))
    """Kinds of products in a generated catalogue, where there are as many products."""
    catalogue_seed: int = Field(default=0, ge=0, lt=1 << 63)
    """What a generated catalogue follows from."""
    attributes: int = Field(default=2, ge=0, le=3)
    """Attributes that a generated instruction asks for."""
    options: int = Field(default=2, ge=0, le=2)
    """Options that a generated instruction asks for."""
    per_page: int = Field(default=10, ge=1, le=20)
    """Products on a page of results."""
    suggestions: int | None = Field(default=None, ge=0, le=len(LETTERS))
    """Searches that the search page offers, in alphabetical order; not given: none, or 26 in the brief style."""
    style: Literal["full", "brief"] = "full"
    """How pages look: sentences and names, or columns of cut words whose links are letters."""
    max_turns: int = Field(default=15, ge=1, le=1000)
    """Turn limit."""
    products_file: HostPath | None = None
    """WebShop's products (`items_shuffle_1000.json`) instead of generated ones: a path or the name of a server's data."""
    attributes_file: HostPath | None = None
    """Their attributes (`items_ins_v2_1000.json`), a path or a name likewise."""
    instructions_file: HostPath | None = None
    """Their instructions (`items_human_ins.json`), which are the tasks, a path or a name likewise."""

    @model_validator(mode="after")
    def _fits(self) -> WebshopParams:
        files = (self.products_file, self.attributes_file, self.instructions_file)
        given = sum(file is not None for file in files)
        if given not in (0, 3):
            raise ValueError(
                f"products_file, attributes_file and instructions_file belong together, got {given} of them"
            )
        own = {"kinds", "catalogue_seed", "attributes", "options"} & self.model_fields_set
        if given and any(
            getattr(self, name) != type(self).model_fields[name].default for name in sorted(own)
        ):
            raise ValueError(f"products_file brings its own shop: remove {', '.join(sorted(own))}")
        return self

    @property
    def offered(self) -> int:
        """Return suggestions, or its default."""
        if self.suggestions is not None:
            return self.suggestions
        return len(LETTERS) if self.style == "brief" else 0


narrow = WebshopParams.narrowed


def instruction(params: WebshopParams) -> str:
    """Return the rules, the same text for every task of these arguments."""
    told = (
        "You are shopping in a web shop for what the instruction at the top of every page asks for. Search, open a product "
        f"from the results, choose its options, and buy it, within {params.max_turns} turns. You are paid once, for what "
        "you buy: the right kind of product, every attribute and option that was asked for, and a price below the limit "
        "count alike.\n"
    )
    if params.style == "full":
        return f"{told}Answer with search[words] where there is a search box, or click[name] with a name in brackets."
    return (
        f"{told}The first line is the wish: kind, attributes, options, highest price; words are cut after six letters. "
        "Below stand searches, products with attributes and price, or options, each behind its letter. Answer with a letter "
        "or a sign: ! buys, > and < turn pages, ^ goes back to the search page."
    )


def _held(make: Callable[[], Catalogue], *key: object, most: int) -> Catalogue:
    """Return the catalogue of at most so many products. Raise `ResourceExhausted` where those in use leave it no room."""
    found = _catalogues.get(key)
    if found is not None:
        return found
    if _in_use() + most > MOST_HELD:
        for cache in (shop_of, _tasks, _generated, _read):
            cache.cache_clear()
        gc.collect()  # a shop refers to itself
    if _in_use() + most > MOST_HELD:
        raise ResourceExhausted(
            f"the webshops of this process have {_in_use()} products and may have {MOST_HELD}: these arguments want up to "
            f"{most} more. Close webshops of other catalogues, use the same catalogue_seed, or set products lower."
        )
    _catalogues[key] = catalogue = make()
    return catalogue


def _in_use() -> int:
    return sum(len(catalogue.products) for catalogue in _catalogues.values())


@lru_cache(maxsize=2)
def _generated(products: int, kinds: int, seed: int) -> Catalogue:
    made = partial(random_catalogue, products, kinds=kinds, seed=seed)
    return _held(made, products, kinds, seed, most=products)


@lru_cache(maxsize=2)
def _read(products_file: str, attributes_file: str, most: int) -> Catalogue:
    made = partial(read_catalogue, products_file, attributes_file, most=most)
    return _held(made, products_file, attributes_file, most, most=most)


def catalogue_of(params: WebshopParams) -> Catalogue:
    """Return the catalogue of these arguments."""
    if params.products_file is None or params.attributes_file is None:
        return _generated(params.products, params.kinds, params.catalogue_seed)
    return _read(params.products_file, params.attributes_file, params.products)


@lru_cache(maxsize=8)
def shop_of(params: WebshopParams) -> Shop:
    """Return the shop of these arguments."""
    return Shop(catalogue_of(params), per_page=params.per_page, suggestions=params.offered)


@lru_cache(maxsize=8)
def _tasks(params: WebshopParams) -> TaskSource:
    catalogue, told = catalogue_of(params), instruction(params)
    if params.instructions_file is not None:
        goals = read_goals(params.instructions_file, catalogue)
        return ListedTasks([goal.payload() for goal in goals], instruction=told)
    wish = Wish(params.attributes, params.options, brief=params.style == "brief")
    return ProceduralTasks(
        lambda seed: random_goal(catalogue, wish, seed).payload(), salt="webshop", instruction=told
    )


def tasks(params: EnvParams) -> TaskSource:
    """Return the tasks: generated instructions split by content, or those of a file."""
    return _tasks(narrow(params))
