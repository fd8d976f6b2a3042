"""Reads YAML that others wrote: bounded in depth, in what aliases make of it, and in the length of numbers.

The loader in C overflows its stack at some 30,000 nested brackets and takes the process down, merge keys can
grow without bound, and a value may contain itself; each of these is refused before anything is constructed.
Every YAML text that comes from outside is to be read here: files, kubeconfigs, settings, bodies of requests.
"""

from __future__ import annotations

from typing import Any

import yaml

DEPTH_MAX = 200  # API objects nest a few dozen levels
VALUES_MAX = 5_000_000  # what aliases may expand a document to
NUMBER_BITS_MAX = 4096  # Python refuses to print integers that are much longer

# The loader in C is ten times faster; not every build of PyYAML has it.
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NOT_JSON = ("binary", "omap", "pairs", "set", "timestamp")  # what no API object holds
_ODD_SCALARS = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError)  # as in `!!bool maybe`


class UnreadableYAML(ValueError):
    """A text that is not read: where it went wrong (line and column from 1; 0 if unknown), and why."""

    def __init__(self, why: str, line: int = 0, column: int = 0) -> None:
        self.why = why
        self.line = line
        self.column = column
        super().__init__(f"{self.where}: {why}" if line else why)

    @property
    def where(self) -> str:
        parts = (f"line {self.line}" if self.line else "", f"column {self.column}" if self.column else "")
        return ", ".join(part for part in parts if part)


def bounded_yaml(text: str | bytes) -> Any:
    """The value of the only document; None if there is none. Raises UnreadableYAML."""
    found = bounded_documents(text)
    if len(found) > 1:
        raise UnreadableYAML("holds more than one document", found[1][0])
    return found[0][1] if found else None


def bounded_documents(text: str | bytes) -> list[tuple[int, Any]]:
    """The line and the value of each document that is not empty. Raises UnreadableYAML."""
    if isinstance(text, bytes):
        text = _decoded(text)
    found: list[tuple[int, Any]] = []
    try:
        _refuse_depth(text)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            line = node.start_mark.line + 1
            if "&" in text:
                _refuse_expansion(node, line)
            value = loader.construct_document(node)
            if value is not None:
                found.append((line, value))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise UnreadableYAML(f"is not YAML: {error.problem or error.context}", *place) from None
    except yaml.YAMLError as error:
        raise UnreadableYAML(f"is not YAML: {str(error).splitlines()[0]}") from None
    except UnreadableYAML:
        raise
    except _ODD_SCALARS as error:
        raise UnreadableYAML(f"holds a value that cannot be read: {error}") from None
    return found


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"is not text: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8"
        raise UnreadableYAML(why) from None


def _refuse_depth(text: str) -> None:
    """Looks at the events, which come one by one and without recursion, where such depth is possible."""
    deepest = max((len(line) - len(line.lstrip(" -?")) for line in text.splitlines()), default=0)
    if deepest + text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                mark = event.start_mark
                raise UnreadableYAML("is nested too deeply", mark.line + 1 if mark else 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _refuse_expansion(root: yaml.Node, line: int) -> None:
    """Aliases may make a value contain itself, or expand it; looked at before merge keys copy anything."""
    sizes: dict[int, int] = {}
    inside: set[int] = set()
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, left = stack.pop()
        below = _children(node)
        if left:
            inside.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in below)
        elif id(node) in inside:
            raise UnreadableYAML("holds an alias that contains itself", line)
        elif below and id(node) not in sizes:
            inside.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in below)
    if sizes.get(id(root), 1) > VALUES_MAX:
        raise UnreadableYAML(f"aliases make more than {VALUES_MAX:,} values of it", line)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Loader(_LOADER):  # type: ignore[misc]  # which loader there is depends on the build
    """A safe loader of what JSON can say: dates stay the text they are, and integers are bounded."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML looks it up on the class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
        for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
    }

    def bounded_integer(self, node: yaml.Node) -> int:
        value: int = self.construct_yaml_int(node)
        if value.bit_length() > NUMBER_BITS_MAX:  # hexadecimal digits are read without a limit
            raise yaml.constructor.ConstructorError(
                None, None, "holds a number that is too long", node.start_mark
            )
        return value


_Loader.add_constructor(f"{_TAG}int", _Loader.bounded_integer)
for _name in _NOT_JSON:
    _Loader.add_constructor(f"{_TAG}{_name}", _LOADER.construct_undefined)
