"""The methods, by name. A new one is a file and a line here, and a preset where its defaults do not fit."""

from scommer.methods.agem import AGEM
from scommer.methods.base import Batch, Memories, MemoryFactory, Method, Outcome, TaskImages, View
from scommer.methods.cls_er import CLSER
from scommer.methods.derpp import DERpp
from scommer.methods.er import ER
from scommer.methods.er_ace import ERACE
from scommer.methods.ewc import EWC
from scommer.methods.joint import Joint
from scommer.methods.lwf import LwF
from scommer.methods.ncm import NCM
from scommer.methods.scommer import SCoMMER
from scommer.methods.sgd import SGD
from scommer.methods.slda import SLDA
from scommer.registry import Registry

METHODS: Registry[type[Method]] = Registry(
    "scommer.methods",
    "a subclass of Method",
    lambda entry: isinstance(entry, type) and issubclass(entry, Method),
    {
        "sgd": SGD,
        "joint": Joint,
        "ewc": EWC,
        "lwf": LwF,
        "ncm": NCM,
        "slda": SLDA,
        "agem": AGEM,
        "er": ER,
        "er-ace": ERACE,
        "der++": DERpp,
        "cls-er": CLSER,
        "scommer": SCoMMER,
    },
)

__all__ = ["METHODS", "Batch", "Memories", "MemoryFactory", "Method", "Outcome", "TaskImages", "View"]
