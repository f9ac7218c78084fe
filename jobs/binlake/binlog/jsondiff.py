"""Partial JSON updates: logged differences, applied to the document before them.

Manual: MySQL source documentation, "Json_diff_vector" (sql-common/json_diff.h) and "JSON binary format". Python is fast
enough: the server logs differences only with binlog_row_value_options=PARTIAL_JSON.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass

from binlake.binlog.events import ByteCursor
from binlake.errors import Malformed

_OBJECTS, _ARRAYS, _LARGE = (0, 1), (2, 3), (1, 3)
_LARGE_OBJECT, _LARGE_ARRAY = 1, 3
_LITERAL, _STRING, _OPAQUE = 4, 12, 15
_SIZES = {_LITERAL: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}
"""Sizes in bytes of values of fixed size, by their type."""
_MOST_DEEP = 100
_REPLACE, _INSERT, _REMOVE = range(3)
_LEG = re.compile(
    r"""\.(?P<name>[^.\["]+)|\.(?P<quoted>"(?:[^"\\]|\\.)*")|"""
    r"""\[(?:(?P<cell>\d+)|(?P<last>last)(?:-(?P<before_last>\d+))?)\]"""
)


@dataclass
class _Leaf:
    """A value that contains no others: its type, and its bytes as they are outside a container."""

    kind: int
    data: bytes


_Node = _Leaf | dict[bytes, "_Node"] | list["_Node"]


def apply(document: bytes, diffs: bytes) -> bytes:
    """Return the document (binary JSON) after the differences of one column. Raises Malformed."""
    try:
        root = _parse(document[0], document, 1, 0) if document else _Leaf(_LITERAL, b"\0")
        cursor = ByteCursor(diffs)
        while cursor.left:
            operation = cursor.uint(1)
            legs = _legs(cursor.packed_bytes().decode("utf-8"))
            value = None
            if operation in (_REPLACE, _INSERT):
                binary = cursor.packed_bytes()
                value = _parse(binary[0], binary, 1, 0)
            elif operation != _REMOVE:
                raise Malformed(f"JSON difference {operation}")
            root = _with_difference(root, legs, operation, value)
        kind, data = _encoded_node(root)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, ValueError) as error:
        raise Malformed(f"JSON difference: {type(error).__name__}") from None
    return bytes([kind]) + data


# the document -------------------------------------------------------------------------------------------------------


def _parse(kind: int, data: bytes, start: int, depth: int) -> _Node:
    if depth > _MOST_DEEP:
        raise Malformed("JSON: nested too deep")
    if kind in _OBJECTS or kind in _ARRAYS:
        return _container(kind, data, start, depth)
    if kind in _SIZES:
        end = start + _SIZES[kind]
    elif kind in (_STRING, _OPAQUE):
        end = _end_of_bytes(data, start + (kind == _OPAQUE))
    else:
        raise Malformed(f"JSON: type {kind}")
    if end > len(data):
        raise Malformed("JSON: a value that is cut off")
    return _Leaf(kind, data[start:end])


def _end_of_bytes(data: bytes, at: int) -> int:
    size = 0
    for place in range(5):
        byte = data[at + place]
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return at + place + 1 + size
    raise Malformed("JSON: a length without end")


def _container(kind: int, data: bytes, start: int, depth: int) -> _Node:
    number, width = ("<I", 4) if kind in _LARGE else ("<H", 2)
    count, _ = struct.unpack_from(number + number[1], data, start)
    keys = start + 2 * width
    entries = keys + (count * (width + 2) if kind in _OBJECTS else 0)
    if entries + count * (1 + width) > len(data):
        raise Malformed("JSON: more members than bytes")
    members: list[_Node] = []
    for place in range(count):
        at = entries + place * (1 + width)
        member = data[at]
        inline = member in _SIZES and _SIZES[member] <= width
        where = at + 1 if inline else start + struct.unpack_from(number, data, at + 1)[0]
        if not inline and where <= start:
            raise Malformed("JSON: a member that holds itself")
        members.append(_parse(member, data, where, depth + 1))
    if kind in _ARRAYS:
        return members
    names: list[bytes] = []
    for place in range(count):
        offset, size = struct.unpack_from(number + "H", data, keys + place * (width + 2))
        names.append(data[start + offset : start + offset + size])
    return dict(zip(names, members, strict=True))


def _encoded_node(node: _Node) -> tuple[int, bytes]:
    """Return type and bytes of a node. Containers are written in the large form, which fits all."""
    if isinstance(node, _Leaf):
        return node.kind, node.data
    names = sorted(node, key=lambda name: (len(name), name)) if isinstance(node, dict) else []
    members = [node[name] for name in names] if isinstance(node, dict) else node
    at = 8 + 6 * len(names) + 5 * len(members)
    keys = b""
    for name in names:
        keys += struct.pack("<IH", at, len(name))
        at += len(name)
    entries, bodies = [], []
    for member in members:
        kind, data = _encoded_node(member)
        if len(data) <= 4 and kind in _SIZES:
            entries.append(bytes([kind]) + data.ljust(4, b"\xff" if kind == 5 and data[1] & 0x80 else b"\0"))
            continue
        entries.append(struct.pack("<BI", kind, at))
        bodies.append(data)
        at += len(data)
    head = struct.pack("<II", len(members), at)
    kind = _LARGE_OBJECT if isinstance(node, dict) else _LARGE_ARRAY
    return kind, b"".join([head, keys, *entries, *names, *bodies])


# paths --------------------------------------------------------------------------------------------------------------


def _legs(path: str) -> list[bytes | int]:
    """Parse a path, as ``$.a[1]."b c"[last-1]``. Returns names of members, and numbers of cells (from the end: < 0)."""
    if not path.startswith("$"):
        raise Malformed("JSON difference: a path without its root")
    legs: list[bytes | int] = []
    at = 1
    while at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            raise Malformed("JSON difference: a path that isn't one")
        if leg["cell"] is not None:
            legs.append(int(leg["cell"]))
        elif leg["last"] is not None:
            legs.append(-1 - int(leg["before_last"] or 0))
        else:
            legs.append((json.loads(leg["quoted"]) if leg["quoted"] else leg["name"]).encode())
        at = leg.end()
    return legs


def _with_difference(root: _Node, legs: list[bytes | int], operation: int, value: _Node | None) -> _Node:
    """Return the root after one difference."""
    if operation == _INSERT and legs and value is not None:
        *way, last = legs
        _insert(_at(root, _existing(root, way)), last, value)
        return root
    places = _existing(root, legs)
    if not places:
        if operation != _REPLACE or value is None:
            raise Malformed("JSON difference: the whole document is inserted or removed")
        return value
    parent = _at(root, places[:-1])
    if value is None:
        del parent[places[-1]]  # type: ignore[union-attr, arg-type]  # _existing has proved that they fit
    else:
        parent[places[-1]] = value  # type: ignore[index]
    return root


def _existing(root: _Node, legs: list[bytes | int]) -> list[bytes | int]:
    """Resolve a path that exists to names and indexes. A value that isn't an array counts as its own only cell."""
    places: list[bytes | int] = []
    node = root
    for leg in legs:
        if isinstance(node, dict) and isinstance(leg, bytes):
            place: bytes | int = leg
        elif isinstance(node, list) and isinstance(leg, int) and -len(node) <= leg:
            place = leg % len(node) if leg < 0 else leg
        elif not isinstance(node, list) and leg in (0, -1):
            continue
        else:
            raise Malformed("JSON difference: a path to nowhere")
        places.append(place)
        node = node[place]  # type: ignore[index]
    return places


def _at(root: _Node, places: list[bytes | int]) -> _Node:
    node = root
    for place in places:
        node = node[place]  # type: ignore[index]
    return node


def _insert(parent: _Node, leg: bytes | int, value: _Node) -> None:
    if isinstance(parent, dict) and isinstance(leg, bytes) and leg not in parent:
        parent[leg] = value
    elif isinstance(parent, list) and isinstance(leg, int) and 0 <= leg <= len(parent):
        parent.insert(leg, value)
    else:
        raise Malformed("JSON difference: an insertion that doesn't fit")
