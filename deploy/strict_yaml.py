"""YAML as recipes need it: YAML 1.2 scalars, no duplicate keys, and errors of one line with the line number."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from learner import json_text
from learner.errors import UserError

_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
# PyYAML knows octal 010 and sexagesimal 1:30; nobody who writes a recipe means those.
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")
# YAML 1.1 wants a dot and a sign in the exponent, so 1e-4 would be a string there.
_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_SCALARS = {
    "str": re.compile(""),
    "int": _INT,
    "float": re.compile(f"{_INT.pattern}|{_FLOAT.pattern}"),
    "bool": _BOOL,
    "null": _NULL,
}
"""Tags a scalar may carry, and how it must then be written: `!!int x` is no number."""
MAX_INT = 2**63 - 1
"""No number of a recipe needs more than 64 bits, and libraries below take no more."""
MAX_NODES = 100_000
"""Values of one text, those behind aliases counted wherever they stand: an alias of aliases can mean billions."""


class _Loader(yaml.SafeLoader):
    """Safe loader with YAML 1.2's core scalars and unique text keys."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own name

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(
                    None, None, f"keys must be plain text, got {getattr(key, 'value', key.tag)!r}", key.start_mark
                )
            line = key.start_mark.line + 1
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} stands twice, first in line {seen[key.value]}", key.start_mark
                )
            seen[key.value] = line
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_implicit_resolver(_MERGE, re.compile(r"^(?:<<)$"), ["<"])


def parse(text: str, where: str, numbered: bool = True) -> Any:
    """Value of a YAML text; `where` names it in errors, with the line unless it has but one.

    Raises:
        UserError: not YAML as we accept it; one line with the line number.
    """
    loader: _Loader | None = None
    try:
        # Our loader is a SafeLoader: no tag builds an object.
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark and numbered else ""
        raise UserError(f"{where}{line}: {_say(error)}") from None
    except yaml.reader.ReaderError as error:
        line_number = text.count("\n", 0, error.position) + 1
        raise UserError(f"{where}:{line_number}: character {error.character!r} is not allowed in YAML") from None
    except RecursionError:
        raise UserError(f"{where}: nested too deeply") from None
    except (ValueError, OverflowError) as error:  # PyYAML lets Python's own through, for "\UFFFFFFFF" say
        line = f":{loader.line + 1}" if loader is not None and numbered else ""
        raise UserError(f"{where}{line}: {error}") from None


def _check(root: yaml.Node) -> None:
    """Refuses what YAML can say and no recipe means: other types, values that hold themselves, numbers without end.

    Raises:
        yaml.constructor.ConstructorError: with the place.
    """
    num_seen = 0

    def visit(node: yaml.Node, above: tuple[int, ...]) -> None:
        nonlocal num_seen
        num_seen += 1
        if num_seen > MAX_NODES:
            raise _refused(node, f"more than {MAX_NODES} values")
        if id(node) in above:
            raise _refused(node, "a value that holds itself")
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
            return
        kind = "map" if isinstance(node, yaml.MappingNode) else "seq"
        if node.tag != _TAG + kind:
            raise _refused(node, f"tag {_short(node.tag)} is not allowed here")
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                visit(part, (*above, id(node)))

    visit(root, ())


def _check_scalar(node: yaml.ScalarNode) -> None:
    kind, text = node.tag.removeprefix(_TAG), node.value
    if node.tag == _MERGE:
        return
    if kind not in _SCALARS:
        raise _refused(node, f"tag {_short(node.tag)} is not allowed here")
    if not _SCALARS[kind].match(text):
        raise _refused(node, f"{text[:40]!r} is no {kind}")
    if kind == "int" and (len(text) > len(str(MAX_INT)) + 1 or abs(int(text)) > MAX_INT):
        raise _refused(node, f"{text[:24]}{'...' * (len(text) > 24)} is more than 64 bits hold")
    if not json_text.is_unicode(text):
        raise _refused(node, f"{text[:40]!r} holds half a character")


def _refused(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _short(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _say(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "not valid YAML"
    if "'\\t'" in problem:
        return "a tab where YAML wants spaces"
    if error.context and not isinstance(error, yaml.constructor.ConstructorError):
        return f"{problem} ({error.context})"
    return problem


def load(path: Path) -> dict[str, Any]:
    """Mapping in a YAML file.

    Raises:
        UserError: no such file, not UTF-8, not YAML, or not a mapping; one line.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 (byte 0x{raw[error.start]:02x})") from None
    data = parse(text, str(path))
    if not isinstance(data, dict):
        got = "nothing" if data is None else f"a {type(data).__name__}"
        raise UserError(f"{path}: a recipe is a mapping of sections, got {got}")
    return data


def dump(data: dict[str, Any]) -> str:
    """YAML text that :func:`parse` reads back to the same data, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False)


class _Dumper(yaml.SafeDumper):
    """Quotes with our scalars in mind, so that text like 1e-4 stays text."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    if value != value or value in (float("inf"), float("-inf")):
        text = ".nan" if value != value else (".inf" if value > 0 else "-.inf")
    else:
        text = repr(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _represent_float)
