"""What settings mean: the comment after the field of a dataclass, with the paper's symbol.

gamma: float = 0.15  # γ, weight of knowledge retrieval
"""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from dataclasses import fields
from typing import Any, Literal, NamedTuple, get_args, get_origin

from scommer.runs.settings import setting_types


class Meaning(NamedTuple):
    """The symbol of a setting, if it has one, and a sentence."""

    symbol: str = ""
    sentence: str = ""


def meanings(*kinds: type) -> dict[str, Meaning]:
    """Return what the settings of dataclasses mean, by name; an empty meaning where no comment is known."""
    return {
        f.name: _meaning(_comment(kind, f.name), _choices(setting_types(kind)[f.name]))
        for kind in kinds for f in fields(kind)
    }  # fmt: skip


def _choices(hint: Any) -> str:
    """Return the words that a setting may be: `: one, two or three`."""
    if get_origin(hint) is not Literal:
        return ""
    *others, last = map(str, get_args(hint))
    return f": {', '.join(others)} or {last}" if others else f": {last}"


def _comment(kind: type, name: str) -> str:
    """Return the comment after a field, from the class that has it last."""
    return next((found[name] for c in kind.__mro__ if name in (found := _comments(c))), "")


def _comments(kind: type) -> dict[str, str]:
    """Return the comments after the fields of a class, without those of its bases; "" where there is none."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        nodes = [node for top in ast.parse(source).body for node in ast.iter_child_nodes(top)]
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):  # typed into an interpreter, or edited since
        return {}
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    return {
        node.target.id: comments.get(node.end_lineno or 0, "")
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _meaning(comment: str, choices: str) -> Meaning:
    match = re.fullmatch(r"(?:(\S{1,3}), )?(\S)(.*)", comment)
    return Meaning(match[1] or "", f"{match[2].upper()}{match[3].rstrip('.')}{choices}.") if match else Meaning()
