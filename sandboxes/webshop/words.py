"""What a generated shop is stocked with, and the words that the reward knows. Data alone.

Within a department the first words of attributes differ in their first six letters, and so do kinds over all departments:
the brief style shows no more of them (`pages.brief`). Option values of a group, and attributes of a department, are not
similar to the reward's eyes, which take `large` for `x-large` and `2 count` for `4 count`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BRANDS", "COLORS", "DEPARTMENTS", "KINDS", "NO_NOUNS", "Department", "Kind"]


@dataclass(frozen=True, slots=True)
class Department:
    """What the products of a department may have. `options` are named groups of values."""

    name: str
    shelves: tuple[tuple[str, tuple[str, ...]], ...]
    """Sub-categories, each with its kinds of products."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    prices: tuple[int, int]
    """Lowest and highest price in dollars."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product, such as `jacket`, and where it stands."""

    name: str
    category: str
    """The path of categories, such as `Clothing › Tops › Jacket`."""
    department: Department


_COLORS = (
    *("black", "white", "red", "blue", "green", "yellow", "purple", "pink", "gray", "brown", "beige"),
    *("orange", "teal", "navy", "silver", "gold"),
)
_SIZES = ("xs", "s", "m", "l", "xl", "xxl")

DEPARTMENTS = (
    Department(
        "Clothing",
        (
            ("Tops", ("shirt", "hoodie", "sweater", "blouse")),
            ("Bottoms", ("shorts", "skirt", "trousers", "leggings")),
            ("Outerwear", ("jacket", "parka", "raincoat", "vest")),
        ),
        (
            *("machine washable", "long sleeve", "slim fit", "cotton blend", "quick drying", "elastic waist"),
            *(
                "loose fit",
                "hand washable",
                "polyester spandex",
                "fleece lined",
                "water resistant",
                "button closure",
            ),
        ),
        (("color", _COLORS), ("size", _SIZES)),
        (12, 90),
    ),
    Department(
        "Shoes",
        (
            ("Athletic", ("sneakers", "cleats", "trainers")),
            ("Casual", ("loafers", "sandals", "slippers")),
            ("Boots", ("boots", "galoshes")),
        ),
        (
            *("arch support", "rubber sole", "memory foam", "non slip", "leather lining", "anti odor"),
            *("steel toe", "ethylene vinyl", "high heel", "open toe"),
        ),
        (("color", _COLORS), ("size", ("6", "7", "8", "9", "10", "11", "12"))),
        (20, 140),
    ),
    Department(
        "Home",
        (
            ("Lighting", ("lamp", "lantern", "chandelier")),
            ("Bedding", ("pillow", "blanket", "quilt")),
            ("Furniture", ("ottoman", "bookcase", "nightstand")),
            ("Windows", ("curtain", "blinds")),
        ),
        (
            *(
                "easy assembly",
                "solid wood",
                "space saving",
                "stainless steel",
                "spot clean",
                "tempered glass",
            ),
            *("super soft", "eco friendly", "storage space", "assembly required"),
        ),
        (("color", _COLORS), ("style", ("classic", "modern", "rustic", "minimal", "coastal"))),
        (15, 250),
    ),
    Department(
        "Beauty",
        (
            ("Hair", ("shampoo", "conditioner", "hairbrush")),
            ("Skin", ("lotion", "serum", "sunscreen", "cleanser")),
            ("Makeup", ("lipstick", "mascara")),
        ),
        (
            *(
                "cruelty free",
                "tea tree",
                "long lasting",
                "sulfate free",
                "fragrance free",
                "natural ingredients",
            ),
            *("paraben free", "hyaluronic acid", "dry skin", "travel size"),
        ),
        (
            ("scent", ("lavender", "citrus", "rose", "vanilla", "mint", "unscented")),
            ("volume", ("2 oz", "8 oz", "16 oz", "33 oz")),
        ),
        (5, 60),
    ),
    Department(
        "Electronics",
        (
            ("Audio", ("headphones", "speaker", "soundbar", "microphone")),
            ("Accessories", ("charger", "keyboard", "tripod", "webcam")),
            ("Wearables", ("smartwatch", "pedometer")),
        ),
        (
            *("noise cancelling", "fast charging", "wireless bluetooth", "high resolution", "carbon fiber"),
            *("plug play", "hands free", "water proof", "light weight", "easy install"),
        ),
        (("color", _COLORS), ("bundle", ("alone", "case", "stand", "spare"))),
        (15, 300),
    ),
    Department(
        "Grocery",
        (
            ("Drinks", ("coffee", "tea", "lemonade")),
            ("Snacks", ("granola", "crackers", "popcorn", "jerky")),
            ("Pantry", ("honey", "pasta", "oatmeal")),
        ),
        (
            *("gluten free", "non gmo", "low sugar", "plant based", "dairy free", "artificial colors"),
            *("keto friendly", "usda organic", "nut free", "high protein"),
        ),
        (
            ("flavor", ("original", "chocolate", "maple", "ginger", "peach", "salted")),
            ("pack", ("single", "double", "family", "bulk")),
        ),
        (4, 50),
    ),
)

KINDS = tuple(
    Kind(kind, f"{department.name} › {shelf} › {kind.capitalize()}", department)
    for department in DEPARTMENTS
    for shelf, kinds in department.shelves
    for kind in kinds
)

BRANDS = (
    *("Arvelo", "Bramtek", "Calvora", "Dunmere", "Elsitra", "Fenwol", "Galdora", "Hestona", "Ivarel"),
    *("Jorvika", "Kestrin", "Lumaro", "Mirdal", "Norvane", "Ostrela", "Pelinor", "Quarlen", "Rovanda"),
    *("Selkora", "Tarvino", "Ulmera", "Vestrin", "Wexdale", "Zandori"),
)

COLORS = (
    *("alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue", "blush"),
    *(
        "bordeaux",
        "bronze",
        "brown",
        "burgundy",
        "camel",
        "camo",
        "caramel",
        "champagne",
        "charcoal",
        "cheetah",
    ),
    *("chestnut", "chocolate", "christmas", "coffee", "cognac", "copper", "coral", "cranberry", "cream"),
    *("crystal", "dark", "denim", "eggplant", "elephant", "espresso", "fuchsia", "gold", "granite", "grape"),
    *("graphite", "grass", "gray", "green", "grey", "heather", "indigo", "ivory", "ivy", "khaki", "lavender"),
    *(
        "lemon",
        "leopard",
        "light",
        "lilac",
        "lime",
        "magenta",
        "maroon",
        "mauve",
        "merlot",
        "midnight",
        "mint",
    ),
    *("mocha", "multicolor", "mushroom", "mustard", "natural", "navy", "nude", "olive", "orange", "peach"),
    *("pewter", "pink", "plum", "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire"),
    *("seashell", "silver", "skull", "slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe"),
    *("teal", "tiger", "turquoise", "violet", "walnut", "wheat", "white", "wine", "yellow"),
)
"""The words for colours of the published task, in its order, which decides where a value has two of them."""

_FUNCTION_WORDS = """
a all an and any are as at be by can for from in into is it its no non of off on only or out over per plus that the this to
up use very with without you your"""
_FREQUENT_ADJECTIVES = """
best big compatible easy extra fit free full good great high large light long low mini more multi new old pro safe set
short slim small soft super top"""
NO_NOUNS = frozenset(f"{_FUNCTION_WORDS} {_FREQUENT_ADJECTIVES}".split())
"""Function words, and adjectives that titles are full of: words that do not say what a product is."""
