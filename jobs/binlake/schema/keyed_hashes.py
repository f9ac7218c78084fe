"""HMAC-SHA-256 of a column's values, in compiled code (RFC 2104, FIPS 180-4).

What the key alone decides is computed once: the states behind its two blocks. A value of up to 55 bytes then takes two
blocks of the hash. Where the processor has instructions for it, that takes a third of the time, and two values at once
hardly longer than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
import numba
import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from binlake.kernels.native import act, copy, fill, intrinsic, kernel, load8, load32, store8, swap64
from binlake.schema.hash_key import HashKey
from binlake.schema.mask import FEWEST_DIGITS, MOST_DIGITS

_MASK = 0xFFFFFFFF
_PRIMES = [number for number in range(2, 312) if all(number % other for other in range(2, number))]


def _fraction(number: int, root: int) -> int:
    """Return the first 32 bits behind the point of a number's square root (2) or cubic root (3)."""
    wanted, low, high = number << 32 * root, 0, number << 32
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= wanted else (low, middle)
    return low & _MASK


_ROUND_CONSTANTS = np.array([_fraction(prime, 3) for prime in _PRIMES], np.uint32)
_FIRST_STATE = np.array([_fraction(prime, 2) for prime in _PRIMES[:8]], np.uint32)


@act
def _rotated(word: Any, by: int) -> Any:
    return np.uint32(word >> np.uint32(by)) | np.uint32(word << np.uint32(32 - by))


_declared: Any = cgutils.get_or_insert_function


_FOUR = ir.VectorType(ir.IntType(32), 4)
_Pair = tuple[Any, Any]
"""A state, or two vectors of it: the words a, b, e, f and c, d, g, h, each from the last one on."""


def _constant(*words: int) -> Any:
    return ir.Constant(_FOUR, list(words))


class _Instructions:
    """SHA-256 by a processor's instructions (Intel, "Intel SHA Extensions", 2013), as a function is built.

    One block waits for itself, round by round, so that two at once take hardly longer than one.
    """

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def place(self, address: Any, number: int, kind: Any = _FOUR) -> Any:
        """Return the pointer at the vector with this number behind an address."""
        at = self._builder.add(address, ir.Constant(ir.IntType(64), 16 * number))
        return self._builder.inttoptr(at, kind.as_pointer())

    def load(self, address: Any, number: int) -> Any:
        return self._builder.load(self.place(address, number), align=1)

    def ordered(self, left: Any, right: Any, *lanes: int) -> Any:
        return self._builder.shuffle_vector(left, right, _constant(*lanes))

    def swapped(self, words: Any) -> Any:
        """Return words with their bytes in reversed order."""
        swap = _declared(self._builder.module, ir.FunctionType(_FOUR, [_FOUR]), "llvm.bswap.v4i32")
        return self._builder.call(swap, [words])

    def state(self, address: Any) -> _Pair:
        """Return the state at an address."""
        low, high = self.load(address, 0), self.load(address, 1)
        return self.ordered(low, high, 5, 4, 1, 0), self.ordered(low, high, 7, 6, 3, 2)

    def words(self, state: _Pair) -> list[Any]:
        """Return the words of a state in their order, as two vectors."""
        return [self.ordered(*state, 3, 2, 7, 6), self.ordered(*state, 1, 0, 5, 4)]

    def _call(self, name: str, *operands: Any) -> Any:
        kind = ir.FunctionType(_FOUR, [_FOUR] * len(operands))
        function = _declared(self._builder.module, kind, f"llvm.x86.sha256{name}")
        return self._builder.call(function, operands)

    def compressed(self, states: Sequence[_Pair], blocks: Sequence[Sequence[Any]]) -> list[_Pair]:
        """Return states behind a block each. blocks: four vectors of words each."""
        builder, pairs, parts = self._builder, list(states), [list(block) for block in blocks]
        for number in range(16):
            constants = _constant(*(int(word) for word in _ROUND_CONSTANTS[4 * number : 4 * number + 4]))
            for stream, own in enumerate(parts):
                if number > 3:
                    mixed = builder.add(self._call("msg1", *own[-4:-2]), self.ordered(*own[-2:], 1, 2, 3, 4))
                    own.append(self._call("msg2", mixed, own[-1]))
                even, odd = pairs[stream]
                added = builder.add(own[number], constants)
                odd = self._call("rnds2", odd, even, added)
                even = self._call("rnds2", even, odd, self.ordered(added, added, 2, 3, 0, 0))
                pairs[stream] = even, odd
        both = zip(pairs, states, strict=True)
        return [(builder.add(new[0], old[0]), builder.add(new[1], old[1])) for new, old in both]


@intrinsic  # type: ignore[untyped-decorator]
def _compress_by_instructions(typing_context: Any, state: Any, words: Any) -> Any:
    """Add a block to a state, both at addresses."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        by = _Instructions(builder)
        block = [by.load(arguments[1], number) for number in range(4)]
        (behind,) = by.compressed([by.state(arguments[0])], [block])
        for number, half in enumerate(by.words(behind)):
            builder.store(half, by.place(arguments[0], number), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def _hash_two_by_instructions(typing_context: Any, blocks: Any, states: Any, hashes: Any) -> Any:
    """Hash two messages of a block each, as they are in memory, to two states at an address. states: the inner and the
    outer one behind the key's blocks."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        by, (at_blocks, at_states, at_hashes) = _Instructions(builder), arguments
        messages = [[by.swapped(by.load(at_blocks, 4 * row + number)) for number in range(4)] for row in range(2)]
        inner = by.compressed([by.state(at_states)] * 2, messages)
        end = [_constant(0x80000000, 0, 0, 0), _constant(0, 0, 0, 8 * (64 + 32))]
        outer = by.state(builder.add(at_states, ir.Constant(ir.IntType(64), 32)))
        for row, behind in enumerate(by.compressed([outer] * 2, [[*by.words(each), *end] for each in inner])):
            for number, half in enumerate(by.words(behind)):
                builder.store(half, by.place(at_hashes, 2 * row + number), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def _write_digits(typing_context: Any, state: Any, out: Any) -> Any:
    """Write the 64 hexadecimal digits of a state, both at addresses."""
    many = ir.VectorType(ir.IntType(8), 32)

    def all_of(kind: Any, byte: int) -> Any:
        return ir.Constant(kind, [byte] * kind.count)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        by, half = _Instructions(builder), ir.VectorType(ir.IntType(8), 16)
        for number in range(2):
            digest = builder.bitcast(by.swapped(by.load(arguments[0], number)), half)
            high, low = builder.lshr(digest, all_of(half, 4)), builder.and_(digest, all_of(half, 15))
            lanes = [lane for place in range(16) for lane in (place, 16 + place)]
            digits = builder.shuffle_vector(high, low, ir.Constant(ir.VectorType(ir.IntType(32), 32), lanes))
            is_letter = builder.icmp_unsigned(">", digits, all_of(many, 9))
            letters = builder.select(is_letter, all_of(many, ord("a") - 10), all_of(many, ord("0")))
            builder.store(builder.add(digits, letters), by.place(arguments[1], 2 * number, many), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


def _has_instructions() -> bool:
    """Return whether kernels are compiled for a processor with instructions for SHA-256."""
    chosen = numba.config.CPU_NAME or numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    return not chosen and bool(llvmlite.binding.get_host_cpu_features().get("sha"))


_BY_INSTRUCTIONS = _has_instructions()


@kernel
def _compress(state: NDArray[np.uint32], words: NDArray[np.uint32], constants: NDArray[np.uint32]) -> None:
    """Add a block to a state. words: the block's sixteen, in an array of 64."""
    if _BY_INSTRUCTIONS:
        _compress_by_instructions(state.ctypes.data, words.ctypes.data)
        return
    for at in range(16, 64):
        near, far = words[at - 2], words[at - 15]
        high = _rotated(near, 17) ^ _rotated(near, 19) ^ np.uint32(near >> np.uint32(10))
        low = _rotated(far, 7) ^ _rotated(far, 18) ^ np.uint32(far >> np.uint32(3))
        words[at] = np.uint32(np.uint32(words[at - 16] + low) + np.uint32(words[at - 7] + high))
    a, b, c, d = state[0], state[1], state[2], state[3]
    e, f, g, h = state[4], state[5], state[6], state[7]
    for at in range(64):
        mixed = _rotated(e, 6) ^ _rotated(e, 11) ^ _rotated(e, 25)
        chosen = (e & f) ^ (~e & g)
        first = np.uint32(np.uint32(h + mixed) + np.uint32(chosen + np.uint32(constants[at] + words[at])))
        turned = _rotated(a, 2) ^ _rotated(a, 13) ^ _rotated(a, 22)
        second = np.uint32(turned + ((a & b) ^ (a & c) ^ (b & c)))
        h, g, f, e = g, f, e, np.uint32(d + first)
        d, c, b, a = c, b, a, np.uint32(first + second)
    state[0] += a
    state[1] += b
    state[2] += c
    state[3] += d
    state[4] += e
    state[5] += f
    state[6] += g
    state[7] += h


@kernel
def _fill(words: NDArray[np.uint32], address: int, at: int, size: int) -> None:
    """Fill a block with a message's bytes from ``at`` on, and behind its end with the mark and zeros."""
    whole = min(max(size - at, 0) >> 2, 16)
    for number in range(whole):
        words[number] = np.uint32((swap64(load32(address + at + 4 * number)) >> 32) & 0xFFFFFFFF)
    if whole == 16:
        return
    for number in range(whole, 16):
        words[number] = 0
    if size >= at:
        word, shift = 0x80, 24
        for place in range(at + 4 * whole, size):
            word = (word & ~0xFF) << 8 | int(load8(address + place)) << 8 | 0x80
            shift -= 8
        words[whole] = np.uint32((word << shift) & 0xFFFFFFFF)


@kernel
def _hash_two(blocks: int, states: int, hashes: int) -> None:
    """Hash two messages of a block each, where the processor has the instructions: see there."""
    if _BY_INSTRUCTIONS:
        _hash_two_by_instructions(blocks, states, hashes)


@kernel
def _hash(
    address: int, size: int, states: NDArray[np.uint32], constants: NDArray[np.uint32], words: NDArray[np.uint32],
    state: NDArray[np.uint32],
) -> None:  # fmt: skip
    """Hash a message of any size to a state. states: the inner and the outer one behind the key's blocks. words: 64 to
    work with."""
    state[:] = states[0]
    at = 0
    while at + 64 <= size + 9 or at <= size:
        _fill(words, address, at, size)
        if size - at < 56:
            break
        _compress(state, words, constants)
        at += 64
    if size - at < 0:
        words[:16] = 0
    bits = np.uint64(8 * (size + 64))
    words[14], words[15] = np.uint32(bits >> np.uint64(32)), np.uint32(bits & np.uint64(0xFFFFFFFF))
    _compress(state, words, constants)
    words[:8] = state
    words[8:15] = 0
    words[8], words[15] = np.uint32(0x80000000), np.uint32(8 * (64 + 32))
    state[:] = states[1]
    _compress(state, words, constants)


@act
def _put_block(block: int, address: int, size: int) -> None:
    """Write a message of up to 55 bytes as its only block behind the key's, to an address."""
    fill(block, 0, 64)
    copy(block, address, size)
    store8(block + size, 0x80)
    bits = 8 * (size + 64)
    store8(block + 62, bits >> 8)
    store8(block + 63, bits & 0xFF)


@kernel
def _hash_all(
    address: int,
    offsets: NDArray[np.int32],
    states: NDArray[np.uint32],
    constants: NDArray[np.uint32],
    digits: int,
    out: int,
) -> None:
    """Write the digits of each value's hash. states: as for ``_hash``. out: an address, with 64 bytes more than the
    digits take: each hash is written whole, and the next ones over what is too much of it."""
    state, words = np.empty(8, np.uint32), np.empty(64, np.uint32)
    blocks, hashes = np.zeros(128, np.uint8), np.empty(16, np.uint32)
    block, pair = blocks.ctypes.data, hashes.ctypes.data
    rows, waits = len(offsets) - 1, False
    for row in range(rows):
        start, size = address + offsets[row], int(offsets[row + 1] - offsets[row])
        is_short = _BY_INSTRUCTIONS and size <= 55
        if is_short:
            _put_block(block + 64 * waits, start, size)
        if waits:
            _hash_two(block, states.ctypes.data, pair)
            _write_digits(pair, out + (row - 1) * digits)
            if is_short:
                _write_digits(pair + 32, out + row * digits)
            waits = False
        elif is_short and row + 1 < rows:
            waits = True
            continue
        elif is_short:
            _hash_two(block, states.ctypes.data, pair)
            _write_digits(pair, out + row * digits)
        if not is_short:
            _hash(start, size, states, constants, words, state)
            _write_digits(state.ctypes.data, out + row * digits)


def _state_behind(block: bytes) -> NDArray[np.uint32]:
    words = np.zeros(64, np.uint32)
    words[:16] = np.frombuffer(block, ">u4")
    state = _FIRST_STATE.copy()
    _compress(state, words, _ROUND_CONSTANTS)
    return state


def hashed(values: pa.Array, key: HashKey, digits: int) -> pa.StringArray:
    """Return the first hexadecimal digits of the hash of each text or binary value; NULL stays NULL."""
    assert FEWEST_DIGITS <= digits <= MOST_DIGITS
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[values.offset : values.offset + len(values) + 1]
    address = buffers[2].address if buffers[2] is not None else 0
    written = pa.allocate_buffer(len(values) * digits + MOST_DIGITS)
    states = np.stack([_state_behind(bytes(byte ^ pad for byte in key.block)) for pad in (0x36, 0x5C)])
    _hash_all(address, offsets, states, _ROUND_CONSTANTS, digits, written.address)
    ends = np.arange(len(values) + 1, dtype=np.int32) * np.int32(digits)
    validity = None
    if values.null_count:
        validity = pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    shown = written.slice(0, len(values) * digits)
    return pa.Array.from_buffers(pa.string(), len(values), [validity, pa.py_buffer(ends), shown], values.null_count)
