"""Low-level functions for kernels: loads and stores at addresses, copies, CRC-32.

Kernels work on addresses (int64) instead of arrays, because a slice's rows lie in many buffers (chunks, decompressed
payloads). Callers of a load have verified before that it stays inside its event.

The compiled code is kept in ``{sys.prefix}/share/binlake/numba``, in a folder for each state of the sources, which
``binlake.binlog.warm()`` fills at set-up, so that no stage task pays for the compiler. Where the engine was shipped to
an executor, it came along and is beside the sources (``kept``); on another kind of processor it is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast


def _sources() -> str:
    """Return a digest of all kernels' sources: numba checks a kernel's own file, not those of its callees."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_bytes()
        if b"\n@kernel\n" in text:
            digest.update(text)
    return digest.hexdigest()[:16]


CACHE = Path(sys.prefix) / "share" / "binlake" / "numba" / _sources()
_CAME_ALONG = any((Path(__file__).parent / "__pycache__").glob("*.nbi"))
if "NUMBA_CACHE_DIR" not in os.environ and not _CAME_ALONG and os.access(sys.prefix, os.W_OK | os.X_OK):
    os.environ["NUMBA_CACHE_DIR"] = str(CACHE)  # read once, when numba is imported

# ruff: isort: off  (after the setting that numba reads)
import llvmlite.binding  # type: ignore[import-untyped]  # noqa: E402
import numba  # noqa: E402
import numpy as np  # noqa: E402
from llvmlite import ir  # noqa: E402
from numba import extending, types  # noqa: E402
from numba.core.caching import UserProvidedCacheLocator  # noqa: E402

# ruff: isort: on

if "NUMBA_CACHE_DIR" in os.environ:
    numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # type: ignore[attr-defined]

_cache_subpath: Any = UserProvidedCacheLocator.get_suitable_cache_subpath


def kept(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the compiled files of the engine in ``root``: the path below another root, and the file."""
    for folder in {path.parent for path in root.rglob("*.py")}:
        at = Path(_cache_subpath(str(folder / "any.py")))
        for file in sorted((Path(os.environ.get("NUMBA_CACHE_DIR", CACHE)) / at).glob("*.nb[ic]")):
            yield str(folder.relative_to(root) / "__pycache__" / file.name), file


intrinsic: Any = extending.intrinsic
"""numba's decorator, untyped: its stubs don't know that it makes functions without the typing context."""

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function, cached and without the interpreter's lock."""
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return cast(Function, compiled)


def act(function: Function) -> Function:
    """Compile a function into each kernel that calls it: a call would take as long as an ordinary event."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy", inline="always")(function)
    return cast(Function, compiled)


def _load(bits: int) -> Any:
    width = ir.IntType(bits)

    @intrinsic  # type: ignore[untyped-decorator]
    def load(typing_context: Any, address: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], width.as_pointer())
            value = builder.load(pointer, align=1)
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return types.int64(types.int64), build

    return load


def _store(bits: int) -> Any:
    width = ir.IntType(bits)

    @intrinsic  # type: ignore[untyped-decorator]
    def store(typing_context: Any, address: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], width.as_pointer())
            value = builder.trunc(arguments[1], width) if bits < 64 else arguments[1]
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), build

    return store


load8, load16, load32, load64 = _load(8), _load(16), _load(32), _load(64)
"""Loads of little-endian numbers at any alignment, unsigned below 64 bits."""
store8, store16, store32, store64 = _store(8), _store(16), _store(32), _store(64)


@intrinsic  # type: ignore[untyped-decorator]
def swap64(typing_context: Any, value: Any) -> Any:
    """Return eight bytes in reversed order."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.int64(types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes, as memcpy."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        target_at, source_at = (builder.inttoptr(argument, byte) for argument in arguments[:2])
        builder.call(function, [target_at, source_at, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def copy32(typing_context: Any, target: Any, source: Any) -> Any:
    """Copy 32 bytes."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.VectorType(ir.IntType(64), 4).as_pointer()
        value = builder.load(builder.inttoptr(arguments[1], wide), align=1)
        builder.store(value, builder.inttoptr(arguments[0], wide), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def fill(typing_context: Any, target: Any, value: Any, size: Any) -> Any:
    """Fill bytes, as memset."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        function = builder.module.declare_intrinsic("llvm.memset", [byte.as_pointer(), ir.IntType(64)])
        target_at = builder.inttoptr(arguments[0], byte.as_pointer())
        value = builder.trunc(arguments[1], byte)
        builder.call(function, [target_at, value, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


_FEATURES = llvmlite.binding.get_host_cpu_features()
HAS_CARRYLESS = bool(_FEATURES.get("pclmul")) and llvmlite.binding.get_default_triple().startswith("x86_64")

_V = ir.VectorType(ir.IntType(64), 2)


def _polynomial_power(bits: int) -> int:
    """Return x**bits modulo CRC-32's polynomial, bits reversed, in 33 bits, for carry-less multiplication."""
    value = 1
    for _ in range(bits):
        value <<= 1
        if value >> 32:
            value ^= 0x104C11DB7
    return int(f"{value:032b}"[::-1], 2) << 1


# Folding 128 bits over a distance of d: the high half moves by d + 32 - 64, the low half by d - 32 (each half is
# reflected, hence the 32s). "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel, 2009.
_FOLD_512 = (_polynomial_power(512 + 32), _polynomial_power(512 - 32))
_FOLD_128 = (_polynomial_power(128 + 32), _polynomial_power(128 - 32))


def _vector(pair: tuple[int, int]) -> Any:
    return ir.Constant(_V, [ir.Constant(ir.IntType(64), item) for item in pair])


def _fold(builder: Any, multiply: Any, value: Any, constants: Any) -> Any:
    low = builder.call(multiply, [value, constants, ir.Constant(ir.IntType(8), 0x00)])
    high = builder.call(multiply, [value, constants, ir.Constant(ir.IntType(8), 0x11)])
    return builder.xor(low, high)


def _folding(lanes: int, constants: tuple[int, int]) -> Any:
    """Return a function (state, source, blocks) that folds blocks of 16 * lanes bytes at source into those at state."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        multiply = builder.module.globals.get("llvm.x86.pclmulqdq") or ir.Function(
            builder.module, ir.FunctionType(_V, [_V, _V, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )

        def lane_at(address: Any, lane: int) -> Any:
            return builder.gep(address, [ir.Constant(ir.IntType(32), lane)])

        state_at = builder.inttoptr(arguments[0], _V.as_pointer())
        values = [builder.load(lane_at(state_at, lane), align=1) for lane in range(lanes)]
        before = builder.block
        loop, done = builder.append_basic_block("fold"), builder.append_basic_block("folded")
        builder.cbranch(builder.icmp_signed(">", arguments[2], ir.Constant(word, 0)), loop, done)
        builder.position_at_end(loop)
        count = builder.phi(word)
        phis = [builder.phi(_V) for _ in values]
        count.add_incoming(ir.Constant(word, 0), before)
        offset = builder.mul(count, ir.Constant(word, 16 * lanes))
        at = builder.inttoptr(builder.add(arguments[1], offset), _V.as_pointer())
        folded = []
        for lane, (phi, value) in enumerate(zip(phis, values, strict=True)):
            phi.add_incoming(value, before)
            data = builder.load(lane_at(at, lane), align=1)
            folded.append(builder.xor(_fold(builder, multiply, phi, _vector(constants)), data))
        following = builder.add(count, ir.Constant(word, 1))
        count.add_incoming(following, loop)
        for phi, value in zip(phis, folded, strict=True):
            phi.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[2]), loop, done)
        builder.position_at_end(done)
        for lane, (value, other) in enumerate(zip(values, folded, strict=True)):
            final = builder.phi(_V)
            final.add_incoming(value, before)
            final.add_incoming(other, loop)
            values[lane] = final
        for lane, value in enumerate(values):
            builder.store(value, lane_at(state_at, lane), align=1)
        return context.get_dummy_value()

    return build


@intrinsic  # type: ignore[untyped-decorator]
def _fold_64_bytes(typing_context: Any, state: Any, source: Any, blocks: Any) -> Any:
    return types.void(types.int64, types.int64, types.int64), _folding(4, _FOLD_512)


@intrinsic  # type: ignore[untyped-decorator]
def _fold_16_bytes(typing_context: Any, state: Any, source: Any, blocks: Any) -> Any:
    return types.void(types.int64, types.int64, types.int64), _folding(1, _FOLD_128)


def _tables() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return eight tables, for eight bytes at a time."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 8):
        for byte in range(256):
            value = int(tables[row - 1, byte])
            tables[row, byte] = value >> 8 ^ tables[0, value & 255]
    return tables


_T = _tables()


@kernel
def _crc_bytes(state: int, address: int, size: int) -> int:
    """Return CRC-32's register after more bytes, eight at a time by tables."""
    at = address
    stop = address + size
    while at + 8 <= stop:
        low = load32(at) ^ state
        high = load32(at + 4)
        state = (
            _T[7, low & 255]
            ^ _T[6, low >> 8 & 255]
            ^ _T[5, low >> 16 & 255]
            ^ _T[4, low >> 24]
            ^ _T[3, high & 255]
            ^ _T[2, high >> 8 & 255]
            ^ _T[1, high >> 16 & 255]
            ^ _T[0, high >> 24]
        )
        at += 8
    while at < stop:
        state = state >> 8 ^ _T[0, (state ^ load8(at)) & 255]
        at += 1
    return state


SCRATCH = 96
"""Bytes of working memory for ``crc32``."""

if HAS_CARRYLESS:

    @kernel
    def crc32(address: int, size: int, scratch: int) -> int:
        """Return the CRC-32 of bytes, as zlib does. scratch: address of SCRATCH bytes of ours."""
        if size < 32:
            return _crc_bytes(0xFFFFFFFF, address, size) ^ 0xFFFFFFFF
        # Zeros before the message change nothing: with them it is a number of 16 bytes, and has no odd end. The 16
        # bytes that remain after folding have the checksum of all that was folded into them.
        head = 16 + (size & 15)
        fill(scratch, 0, 64)
        copy32(scratch + 64 - head, address)
        store32(scratch + 64 - head, load32(address) ^ 0xFFFFFFFF)
        rest = size - head
        done = address + head
        state = scratch + 32
        if rest >= 128:
            _fold_64_bytes(scratch, done, rest >> 6)
            _fold_16_bytes(scratch, scratch + 16, 3)
            done += rest & -64
            rest &= 63
            state = scratch
        else:
            _fold_16_bytes(state, scratch + 48, 1)
        _fold_16_bytes(state, done, rest >> 4)
        return _crc_bytes(0, state, 16) ^ 0xFFFFFFFF
else:

    @kernel
    def crc32(address: int, size: int, scratch: int) -> int:
        """Return the CRC-32 of bytes, as zlib does; ``scratch`` isn't used."""
        return _crc_bytes(0xFFFFFFFF, address, size) ^ 0xFFFFFFFF
