"""A YAML reader for untrusted input: bounded in depth, alias expansion, and length of numbers.

The C loader overflows its stack at some 30,000 nested brackets and crashes the process, merge keys can grow
without bound, and a value may contain itself; all of these are rejected before anything is constructed.
All YAML from outside must be read here: files, kubeconfigs, settings, request bodies.
"""

from __future__ import annotations

from typing import Any

import yaml

DEPTH_MAX = 200  # API objects nest a few dozen levels
VALUES_MAX = 5_000_000  # what aliases may expand a document to
NUMBER_BITS_MAX = 4096  # Python refuses to print integers that are much longer

# The C loader is ten times faster; not every build of PyYAML has it.
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NOT_JSON = ("binary", "omap", "pairs", "set", "timestamp")  # not used in API objects
_ODD_SCALARS = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError)  # as in `!!bool maybe`


class UnreadableYAML(ValueError):
    """A text that cannot be read: line and column (from 1; 0 if unknown), and why."""

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
    documents = bounded_documents(text)
    if len(documents) > 1:
        raise UnreadableYAML("holds more than one document", documents[1][0])
    return documents[0][1] if documents else None


def bounded_documents(text: str | bytes) -> list[tuple[int, Any]]:
    """The line and the value of each non-empty document. Raises UnreadableYAML."""
    if isinstance(text, bytes):
        text = _decoded(text)
    documents: list[tuple[int, Any]] = []
    try:
        _reject_depth(text)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            line = node.start_mark.line + 1
            if "&" in text:
                _reject_expansion(node, line)
            value = loader.construct_document(node)
            if value is not None:
                documents.append((line, value))
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
    return documents


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"is not text: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8"
        raise UnreadableYAML(why) from None


def _reject_depth(text: str) -> None:
    """Count the depth of events, which need no recursion, if the text may be nested too deeply."""
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


def _reject_expansion(root: yaml.Node, line: int) -> None:
    """Reject aliases that contain themselves or expand too far, before merge keys copy anything."""
    sizes: dict[int, int] = {}
    inside: set[int] = set()
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        children = _children(node)
        if leaving:
            inside.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in children)
        elif id(node) in inside:
            raise UnreadableYAML("holds an alias that contains itself", line)
        elif children and id(node) not in sizes:
            inside.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in children)
    if sizes.get(id(root), 1) > VALUES_MAX:
        raise UnreadableYAML(f"aliases make more than {VALUES_MAX:,} values of it", line)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Loader(_LOADER):  # type: ignore[misc]  # the loader depends on the build
    """A safe loader for JSON types: dates stay strings, and integers are bounded."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML looks it up on the class
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
        for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
    }

    def bounded_integer(self, node: yaml.Node) -> int:
        value: int = self.construct_yaml_int(node)
        if value.bit_length() > NUMBER_BITS_MAX:  # the length of hexadecimal numbers is not limited
            raise yaml.constructor.ConstructorError(
                None, None, "holds a number that is too long", node.start_mark
            )
        return value


_Loader.add_constructor(f"{_TAG}int", _Loader.bounded_integer)
for _name in _NOT_JSON:
    _Loader.add_constructor(f"{_TAG}{_name}", _LOADER.construct_undefined)
