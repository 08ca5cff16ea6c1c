"""Randomness as a pure function of (seed, row, key, coordinate).

A `Noise` holds a seed, one index per row and a key; the same three always give the same numbers, on any device and in
any batch.  Draw each quantity under its own key: `noise.at("which").uniform(shape)`.

A key may also live on the device (`Noise.keyed`): then the numbers can be renewed without the host naming a key, as where a
step is recorded once and replayed.

The bits come from two rounds of the splitmix64 finaliser over a counter; uniforms carry 52 bits (so the tail of a
categorical draw over many categories is right), normals are their quantiles.
"""

from functools import cache, lru_cache
from hashlib import blake2b
from math import prod
from typing import cast

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import constant_in_graphs
from unnoise.kernels import noise as fused

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_ALL = (1 << 64) - 1
_ADDED, _FACTORS = np.uint64(_GOLDEN & _ALL), (np.uint64(_MIX_1 & _ALL), np.uint64(_MIX_2 & _ALL))
_SHIFTS, _TO_MANTISSA = (np.uint64(30), np.uint64(27), np.uint64(31)), np.uint64(12)
_FEW = 2**14  # numbers on the host that numpy makes sooner, since each of its operations is called with less ado


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


@cache
def _spread(count: int) -> np.ndarray:
    """coordinate * _GOLDEN for each coordinate."""
    return np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN & _ALL)


def _mix_few(x: np.ndarray) -> np.ndarray:
    """`_mix` on unsigned numbers, whose right shift is logical."""
    x = x + _ADDED
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        x ^= x >> shift
        x *= factor
    x ^= x >> _SHIFTS[2]
    return x


def _mix_key(x: int) -> int:
    """The same on the host, for a key: no kernel is launched to name a source."""
    x = (x + _GOLDEN) & _ALL
    x = ((x ^ (x >> 30)) * _MIX_1) & _ALL
    x = ((x ^ (x >> 27)) * _MIX_2) & _ALL
    return _signed(x ^ (x >> 31))


def _signed(x: int) -> int:
    x &= _ALL
    return x - (1 << 64) if x >> 63 else x


@lru_cache(4096)
def _known_label(label: int | str) -> int:
    return _mix_key(_number_of(label) if isinstance(label, str) else label)


def _number_of(name: str) -> int:
    """64 bits of a name's hash: 32 would give two names in some 77,000 the same noise."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


@constant_in_graphs  # a graph cannot trace a checksum, nor what is kept of one
def _mix_label(label: int | str) -> int:
    return _known_label(label)


def _under(key: "int | Tensor", label: int | str) -> "int | Tensor":
    """A key under a further label; key and label enter unlike, so that there is no symmetry."""
    mixed: int = _mix_label(label)
    if not isinstance(key, Tensor):
        return _mix_key(_mix_key(key) ^ mixed)
    return fused.under(key, mixed) if fused.available(key.device) else _mix(_mix(key) ^ mixed)


class NoiseSource:
    """A source of random numbers for the rows of a batch."""

    _key: int | Tensor

    def __init__(self, seed: int | Tensor, rows: int | Tensor, device: torch.device | str | None = None):
        if isinstance(rows, int):
            self.rows = torch.arange(rows, device=device)
        else:
            self.rows = rows.to(device=device if device is not None else rows.device, dtype=torch.int64)
        traced = isinstance(seed, Tensor) and torch.compiler.is_compiling()  # then it has no number yet
        self._key = _mix(cast(Tensor, seed)) if traced else _mix_key(int(seed))
        self._labels = cast(tuple[int | str, ...], ())

    @classmethod
    def fresh(cls, rows: int, device: torch.device | str | None = None) -> "NoiseSource":
        """A source seeded from torch's global generator."""
        return cls(torch.randint(2**62, ()), rows, device)

    @classmethod
    def keyed(cls, key: int | Tensor, rows: Tensor) -> "NoiseSource":
        """The source of a key that is known already, or of one on the device: an int64 tensor with one entry."""
        made = object.__new__(cls)
        made._key, made._labels, made.rows = key, (), rows
        return made

    def _with(self, key: int | Tensor, rows: Tensor, labels: tuple[int | str, ...] = ()) -> "NoiseSource":
        child = object.__new__(NoiseSource)
        child._key, child._labels, child.rows = key, labels, rows
        return child

    @property
    def key(self) -> int | Tensor:
        """Worked out when numbers are drawn: to name a source that is never drawn from costs nothing."""
        for label in self._labels:
            self._key = _under(self._key, label)
        self._labels = ()
        return self._key

    def at(self, *labels: int | str) -> "NoiseSource":
        """An independent source under a further key: a step, a leaf's name, a purpose."""
        return self._with(self._key, self.rows, self._labels + labels)

    def of(self, rows: Tensor) -> "NoiseSource":
        """The source of some of the rows."""
        return self._with(self._key, self.rows[rows], self._labels)

    def mirrored(self) -> "NoiseSource":
        """The same source seen in a mirror: 1 - u for its every u, -z for z."""
        return object.__new__(MirroredSource)._with(self._key, self.rows, self._labels)

    def repeated(self, times: int) -> "NoiseSource":
        """Each row `times` over, with independent numbers in each copy (copy-major: [times, rows] flattened)."""
        copy = torch.arange(times, device=self.rows.device).repeat_interleave(len(self.rows))
        return self._with(self.key, _mix(_mix(self.rows.repeat(times)) + copy))

    def _bits(self, shape: tuple[int, ...]) -> Tensor:
        row = _mix(self.rows ^ self.key)
        coordinate = torch.arange(prod(shape), device=row.device)
        return _mix(_mix(row.unsqueeze(-1) + coordinate * _GOLDEN) ^ self.key).reshape(len(row), *shape)

    def _few(self, count: int) -> bool:
        plain = type(self.rows) is Tensor and self.rows.is_cpu and not torch.compiler.is_compiling()
        return plain and isinstance(self.key, int) and len(self.rows) * count <= _FEW

    def _bits_few(self, shape: tuple[int, ...]) -> np.ndarray:
        """The same as `_bits`, by numpy, as unsigned numbers."""
        key = np.uint64(cast(int, self.key) & _ALL)
        row = _mix_few(self.rows.numpy().view(np.uint64) ^ key)
        bits = _mix_few(row[:, None] + _spread(prod(shape)))
        bits ^= key
        return _mix_few(bits).reshape(len(row), *shape)

    def uniform(self, shape: tuple[int, ...] = ()) -> Tensor:
        """float64 numbers in the open interval (0, 1), one array of the shape per row."""
        if fused.available(self.rows.device):
            return fused.numbers(self.rows, self.key, shape, torch.float64, normal=False)
        if self._few(prod(shape)):
            numbers = (self._bits_few(shape) >> _TO_MANTISSA).astype(np.float64)
            numbers += 0.5
            numbers *= 2.0**-52
            return torch.from_numpy(numbers)
        return (_shift(self._bits(shape), 12).double() + 0.5) * 2.0**-52

    def normal(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Tensor:
        """Standard normal numbers, one array of the shape per row: quantiles in float64, rounded once."""
        if fused.available(self.rows.device):
            return fused.numbers(self.rows, self.key, shape, dtype, normal=True)
        return torch.special.ndtri(self.uniform(shape)).to(dtype)

    def shared_uniform(self) -> Tensor:
        """One number common to all rows (the same on every worker that holds the same seed)."""
        key = self.key
        if isinstance(key, Tensor):
            return (_shift(_mix(key), 12).double() + 0.5) * 2.0**-52
        bits = (_mix_key(key) & _ALL) >> 12
        return torch.full((), (bits + 0.5) * 2.0**-52, dtype=torch.float64, device=self.rows.device)


class MirroredSource(NoiseSource):
    """A source in a mirror, and all that stands under its further keys."""

    def _with(self, key: int | Tensor, rows: Tensor, labels: tuple[int | str, ...] = ()) -> "NoiseSource":
        child = object.__new__(MirroredSource)
        child._key, child._labels, child.rows = key, labels, rows
        return child

    def mirrored(self) -> NoiseSource:
        return NoiseSource._with(self, self._key, self.rows, self._labels)

    def uniform(self, shape: tuple[int, ...] = ()) -> Tensor:
        return 1 - self.mirrored().uniform(shape)

    def normal(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Tensor:
        return -self.mirrored().normal(shape, dtype)
