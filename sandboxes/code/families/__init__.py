"""The families of functions, ten or more each. A family is a signature, arguments to draw, and a row for each function."""

from sandboxes.code.families import commands, integers, lists, tables, texts, unseen

__all__ = ["TRAINED", "UNSEEN"]

TRAINED = (*texts.FAMILIES, *lists.FAMILIES, *integers.FAMILIES, *tables.FAMILIES)
"""Of the splits train and held_out; each is a tuple of problems."""
UNSEEN = (*unseen.FAMILIES, *commands.FAMILIES)
"""Of held_out_family alone."""
