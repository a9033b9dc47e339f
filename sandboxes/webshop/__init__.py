"""A shop to find and buy things in. See README.md."""

from rock_env.spec import EnvSpec, Picture
from sandboxes.webshop.env import make
from sandboxes.webshop.oracle import make_oracle, optimum
from sandboxes.webshop.params import WebshopParams, tasks

__all__ = ["ENV"]

ENV = EnvSpec(
    name="webshop",
    version="1",
    summary="Find what an instruction asks for in a web shop, choose its options and buy it (text; WebShop's reward).",
    params=WebshopParams,
    factory=make,
    tasks=tasks,
    oracle=make_oracle,
    optimum=optimum,
    snapshots=True,
    picture=Picture("page"),
)
