"""Arrays of numbers, small images among them; their files are `array_files`.

The first axis counts examples.  Floats are numbers; they are centred and scaled, a table of vectors coordinate by
coordinate, images (two axes or more) as a whole.  Small integers are levels: as numbers, each level is a bin of width
2/levels in [-1, 1] and the middle of its bin stands for it; as categories, a level is a category.  An axis of 1 or 3
channels may be first or last; states have it first.

Numbers of one axis, or of one and channels, that lie in an order are series (see `series`): they are scaled place by place,
and have a network that sees neighbours.

Points of closed spaces (rotations, spheres, angles) and compositions are such where that is said (see `points`).

Categories are noised by steps to the next level up or down, `ordinal`, or by masking.  The former keeps a level near what it
was for a while, as Gaussian noise does.
"""

import io
from dataclasses import asdict, dataclass, field
from math import atan, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.data.array_files import check_array, is_idx, named, others_in, packed, packed_all, written_as
from unnoise.data.base import BY_CONTENT, BY_NAME, NO, BadData, Bins, Format, Line
from unnoise.data.companions import Companions
from unnoise.data.files import suffix_of, write_bytes
from unnoise.data.points import Points, points_named
from unnoise.data.reading import Reading
from unnoise.data.registry import register_format
from unnoise.data.series import series_axis
from unnoise.data.training_defaults import muon
from unnoise.objectives import Importance
from unnoise.objectives.decoders import DiscretisedGaussian
from unnoise.processes import Gaussian, Masking, Process, RateMatrix, rate_matrices
from unnoise.schedules import Cosine
from unnoise.shapes import AnyState, Tree

LEVELS = 256  # distinct integers of an array that counts as levels
MANY = 3  # levels that are noised as ordinals unless told otherwise
NOISES = {"ordinal": "steps to neighbouring levels, cosine schedule", "masking": "Masking"}


@register_format
@dataclass(kw_only=True)
class Array(Format):
    """What was understood of an array."""

    kind = "array"
    suffix = ".npy"
    suffixes = (".npy", ".npz")
    options = {
        "--categories": "arrays",
        "--noise": "the levels of arrays",
        "--option axis": "arrays",
        "--option space": "arrays",
        "--condition": "arrays",
    }

    shape: list[int]  # of an example, as it is in the file
    dtype: str  # numpy's name for the file's numbers
    levels: int = 0  # number of levels of integers; 0: floats
    low: int = 0  # the lowest level
    categories: bool = False
    noise: str = "masking"  # of categories
    channels_last: bool = False
    mean: list[float] | None = None  # one for all coordinates, or one each
    scale: list[float] | None = None
    span: list[float] | None = None  # least and largest of the numbers trained on, where they are no levels
    array: str | None = None  # its name in an .npz file
    others: list[str] = field(default_factory=list)  # the arrays beside it there
    series: str = ""  # how it is known that the examples are series; empty where they are none
    space: str = ""  # of which the examples are points, as told; empty: numbers or levels

    @classmethod
    def recognises(cls, path: Path, how: Reading) -> int:
        """By name, or as IDX by its first bytes: such files have names of many kinds."""
        if suffix_of(path) in cls.suffixes:
            return BY_NAME
        return BY_CONTENT if is_idx(path) else NO

    @classmethod
    def taken(cls, path: Path, how: Reading) -> tuple[str, tuple[str, ...]]:
        return "an array", tuple(cls.options)

    @classmethod
    def read(cls, path: Path, how: Reading) -> tuple["Array", Tree]:
        return cls.fit(path, how.categories, how.noise, how.options.get("axis"), how.options.get("space"))

    @classmethod
    def fit(
        cls,
        path: Path,
        categories: bool = False,
        noise: str | None = None,
        axis: str | None = None,
        space: str | None = None,
    ) -> tuple["Array", Tree]:
        values, name, others = named(path)
        own, x = cls.of_array(values, categories, noise, str(path), axis, space)
        own.array, own.others = name, others
        return own, x

    @classmethod
    def of_array(
        cls,
        values: np.ndarray,
        categories: bool = False,
        noise: str | None = None,
        where: str = "the array",
        axis: str | None = None,
        space: str | None = None,
    ) -> tuple["Array", Tree]:
        """The format of an array and its states; `where` is what errors call it."""
        check_array(values, where)
        if space is not None:
            return cls._of_points(
                values, space, where, {"--categories": categories, "--noise": noise, "--option axis": axis}
            )
        order = None if categories else series_axis(values, axis)
        last = values.ndim == 4 and values.shape[-1] in (1, 3) and values.shape[1] not in (1, 3)
        if order is not None and values.ndim == 3:
            last = order.axis == 0
        own = cls(shape=list(values.shape[1:]), dtype=str(values.dtype), categories=categories, channels_last=last)
        own.series = "" if order is None else order.why
        if values.dtype == bool:
            values = values.astype(np.uint8)
        if np.issubdtype(values.dtype, np.integer):
            own._count_levels(values, where)
        if own.levels == 0:
            if categories:
                raise BadData(
                    f"{where}: {values.dtype} from {values.min()} to {values.max()} is no set of at most {LEVELS} levels"
                )
            own._standardise(values)
        if categories:
            own.noise = noise or ("ordinal" if own.levels >= MANY else "masking")
            own._check_noise()
        elif noise is not None:
            raise BadData(
                f"--noise {noise}: numbers have Gaussian noise; it is for levels as --categories, or for sequences"
            )
        return own, own.states(values, where)

    @classmethod
    def _of_points(cls, values: np.ndarray, space: str, where: str, others: dict[str, Any]) -> tuple["Array", Tree]:
        """Points of a space; `others`: the options that say nothing of them."""
        points = points_named(space)
        if wrong := [option for option, said in others.items() if said]:
            raise BadData(f"{wrong[0]}: says nothing of {points.noun}, --option space={space}: leave it out")
        own = cls(shape=list(values.shape[1:]), dtype=str(values.dtype), space=space)
        x = own.states(values, where)
        own.span = points.span(values, where)
        return own, x

    def _count_levels(self, values: np.ndarray, where: str) -> None:
        low, high = int(values.min()), int(values.max())
        full = values.dtype == np.uint8 and high > 127
        self.low, self.levels = (0, 256) if full else (low, high - low + 1)
        if self.levels > LEVELS:
            self.low = self.levels = 0
        if self.levels == 1 and not self.categories:
            raise BadData(f"{where}: every entry is {low}, so there is nothing to learn: pass data that varies")

    def _standardise(self, values: np.ndarray) -> None:
        """Note mean and scale: of every coordinate of vectors and series, else of all."""
        first = np.moveaxis(values, -1, 1) if self.channels_last else values
        flat = first.reshape(len(values), -1).astype(np.float64)
        if values.ndim <= 2 or self.series:
            mean, scale = flat.mean(0), flat.std(0)
        else:
            mean, scale = np.array([flat.mean()]), np.array([flat.std()])
        self.mean, self.scale = mean.tolist(), np.where(scale > 0, scale, 1.0).tolist()
        self.span = [float(flat.min()), float(flat.max())]

    def _check_noise(self) -> None:
        if self.noise not in NOISES:
            raise BadData(f"--noise {self.noise}: the levels of an array are noised by {' or '.join(NOISES)}")
        if self.noise == "ordinal" and self.levels < 2:
            raise BadData("--noise ordinal: there is one level only, with none beside it: leave it out")

    @property
    def points(self) -> Points | None:
        """What the examples are points of, if they are."""
        return points_named(self.space) if self.space else None

    def lines(self) -> list[Line]:
        size = " × ".join(map(str, self.shape)) or "one number"
        what = "series" if self.series else "array"
        part = f"{what} {size}" if self.array is None else f"{what} {self.array}, {size}"
        what = (
            f"{self.levels} levels from {self.low}"
            if self.levels
            else f"mean {self._shown(self.mean)}, scale {self._shown(self.scale)}"
        )
        what += f"; an order ({self.series})" if self.series else ""
        kind = "ordinal categories" if self.categories else "numbers"
        noise = NOISES[self.noise] if self.categories else "Gaussian, cosine schedule"
        if self.points:
            kind, what, noise = self.space, self.points.said(tuple(self.shape)), type(self.process()).__name__
        return [Line(part, kind, what, noise), *(Line(f"array {name}", "left out", "", "") for name in self.others)]

    @staticmethod
    def _shown(values: list[float] | None) -> str:
        values = values or []
        return ", ".join(f"{v:.3g}" for v in values[:3]) + (" ..." if len(values) > 3 else "")

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.shape[-1], *self.shape[:-1]) if self.channels_last else tuple(self.shape)

    @property
    def pictured(self) -> bool:
        """Whether an example is an image: two axes, and channels as a PNG has them."""
        return not (self.series or self.space) and (
            len(self.shape) == 2 or (len(self.shape) == 3 and self.state_shape[0] <= 4)
        )

    def process(self) -> Process:
        if self.points:
            return self.points.process(tuple(self.shape))
        if not self.categories:
            return Gaussian(self.state_shape, Cosine())
        if self.noise == "masking":
            return Masking(self.levels, self.state_shape)
        return RateMatrix(rate_matrices.nearest_neighbour(self.levels), self.state_shape, Cosine(), method="eigen")

    @property
    def bins(self) -> Bins | None:
        return Bins(self.width, -1.0) if self.levels and not self.categories else None

    @property
    def dear(self) -> bool:
        return len(self.shape) > 1 and not (self.series or self.space)

    @property
    def vectors(self) -> bool:
        """Whether the examples are numbers, one or some side by side, in no order."""
        return len(self.shape) <= 1 and not (self.series or self.categories or self.levels or self.space)

    def network_hints(self) -> dict[str, Any]:
        return {"bin": self.width if self.levels else 0.0, "series": bool(self.series)}

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        """The weighting is the bound, but for images: most of theirs is about the last bits of pixels, and little about
        what they look like."""
        own: dict[str, Any] = {"batch_size": 64 if on_cpu else 256}
        if self.series and not self.categories:  # rows are few, and the base knows most of them from the start
            own |= {"lr": 5e-4 if preset == "base" else 1e-3, "weight_decay": 0.1}
        elif self.vectors:  # as the numbers of a table
            own["start"] = "law"
        if not self.dear:
            return own
        named = "bound" if self.noise == "masking" else "cross_entropy"
        return {**own, "weighting": named if self.categories else "balanced", **muon(preset)}

    def shown_suffix(self) -> str:
        if not self.pictured:
            return self.suffix
        try:
            import PIL  # noqa: F401
        except ImportError:
            return self.suffix
        return ".png"

    def objective_options(self) -> dict[str, Any]:
        """Levels as numbers: the bound is that of the levels, with the last word at the noise of a sixth of a bin."""
        if self.categories or not self.levels:
            # of what is nearly Gaussian the bound's integrand is nearly 1/t: a draw spreads half as far as with a power of 4
            return {"times": Importance(power=16.0)} if self.series or self.vectors else {}
        half = self.width / 2
        cutoff = 2 / pi * atan(self.width / 6)  # where sigma/alpha of the cosine schedule is that
        return {"decoder": DiscretisedGaussian(self.levels, half - 1, 1 - half), "cutoff": cutoff}

    @property
    def width(self) -> float:
        """Of a bin, where levels are numbers."""
        return 2.0 / self.levels

    def encode(self, path: Path) -> Tree:
        return self.encode_array(named(path, self.array)[0], str(path))

    def encode_array(self, values: np.ndarray, where: str = "the array") -> Tree:
        """The states of an array."""
        return self.states(self._fitting(values, where), where)

    def _fitting(self, values: np.ndarray, where: str) -> np.ndarray:
        check_array(values, where)
        if list(values.shape[1:]) != self.shape:
            raise BadData(
                f"{where}: examples have shape {tuple(values.shape[1:])}; the model was trained on {tuple(self.shape)}"
            )
        return values

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """Gaps are NaN, or the number that the mark says; whole numbers have no NaN and need a mark."""
        return self.gaps_of_array(named(path, self.array)[0], mark, str(path))

    def gaps_of_array(self, values: np.ndarray, mark: str | None = None, where: str = "the array") -> tuple[Tree, Tree]:
        """Those of an array."""
        values, known = self._known(values, mark, where)
        if self.points:
            return self._points_with_gaps(self.points, values, known, where)
        values = np.where(known, values, values.dtype.type(self.low))
        if self.channels_last:
            known = np.moveaxis(known, -1, 1)
        return self.states(values, where), torch.as_tensor(known.copy())

    def _points_with_gaps(self, points: Points, values: np.ndarray, known: np.ndarray, where: str) -> tuple[Tensor, Tensor]:
        if points.whole:
            rows = known.reshape(len(known), -1)
            if (broken := rows.any(1) & ~rows.all(1)).any():
                row = int(np.argmax(broken))
                raise BadData(
                    f"{where}: row {row} has gaps in {int((~rows[row]).sum())} of {rows.shape[1]} entries, and of "
                    f"{points.noun} one is known or missing as a whole: put gaps into all of its entries"
                )
        x = self.states(np.where(known, values, points.anywhere(tuple(self.shape))).astype(values.dtype), where)
        assert isinstance(x, Tensor)
        fixed = torch.as_tensor(known.copy())
        if points.whole:
            fixed = fixed.reshape(len(x), -1)[:, 0].reshape(-1, *[1] * (x.ndim - 1)).expand(x.shape)
        return x, fixed

    def count_gaps(self, fixed: AnyState) -> int:
        if self.points and self.points.whole:
            assert isinstance(fixed, Tensor)
            return int((~fixed).reshape(len(fixed), -1).any(1).sum())
        return super().count_gaps(fixed)

    def _known(self, values: np.ndarray, mark: str | None, where: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers with gaps, and which of them are known."""
        values = self._fitting(values, where)
        floats = np.issubdtype(values.dtype, np.floating)
        if mark is None and not floats:
            raise BadData(f"{where}: {values.dtype} has no NaN: say which number stands for a gap, such as --mark 255")
        known = ~np.isnan(values) if floats else np.ones(values.shape, dtype=bool)
        if mark is not None:
            try:
                known &= values != float(mark)
            except ValueError:
                raise BadData(f"--mark {mark!r}: a gap in an array is marked by a number, such as 255, or NaN") from None
        return values, known

    def states(self, values: np.ndarray, path: Path | str) -> Tree:
        if self.points:
            self.points.check(values, str(path))
            return self.points.states(values.astype(np.float64))
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            where = np.argwhere(~np.isfinite(values))[0].tolist()
            raise BadData(f"{path}: the entry {where} is {values[tuple(where)]}: drop or impute it first")
        if self.levels:
            self._check_levels(values, path)
        if self.channels_last:
            values = np.moveaxis(values, -1, 1)
        if not self.levels:
            mean, scale = (np.array(v).reshape(-1) for v in (self.mean, self.scale))
            flat = (values.reshape(len(values), -1) - mean) / scale
            return torch.as_tensor(flat.reshape(values.shape), dtype=torch.float32)
        level = torch.as_tensor(values.astype(np.int64)) - self.low
        return level if self.categories else ((level + 0.5) * self.width - 1).float()

    def _check_levels(self, values: np.ndarray, path: Path | str) -> None:
        last = self.low + self.levels - 1
        broken = values != np.rint(values) if values.dtype.kind == "f" else np.zeros(0, dtype=bool)
        if broken.any():
            where = np.argwhere(broken)[0].tolist()
            raise BadData(
                f"{path}: the entry {where} is {values[tuple(where)]:g}, and the levels of the model are the whole numbers "
                f"{self.low} ... {last}: scale and round it as the training data was"
            )
        if bool(((values < self.low) | (values > last)).any()):
            raise BadData(f"{path}: holds values outside {self.low} ... {last}, the levels of the model")

    def companions(self, path: Path) -> Companions:
        """The other arrays of an .npz file; the labels of an IDX file of images."""
        return Companions.of_arrays(others_in(path, self.others))

    def write_told(self, x: AnyState, beside: Companions, path: Path) -> None:
        """An .npz file has what was told beside the samples; other files have the samples alone."""
        if suffix_of(path) != ".npz":
            self.write(x, path)
            return
        name = self.array or "samples"
        columns = {} if beside.table is None else {c: beside.table[c].to_numpy() for c in beside.table.column_names}
        write_bytes(path, packed_all({name: self.values(x), **columns, **beside.arrays}))

    def seen(self, x: AnyState) -> np.ndarray:
        return self.values(x)

    def values(self, x: Tree) -> np.ndarray:
        """States as the numbers of the file; what are no levels, within the range of the training data."""
        assert isinstance(x, Tensor)
        if self.points:
            start = self.span[0] if self.span else 0.0
            return as_type(self.points.values(x.double().cpu().numpy(), tuple(self.shape), start), np.dtype(self.dtype))
        if self.categories:
            if bool((x >= self.levels).any()):
                raise BadData("some levels are still masked: draw to time 0 by a method that reveals all, as Ancestral does")
            out = x.cpu().numpy() + self.low
        elif self.levels:
            level = ((x.double().cpu() + 1) / self.width).floor().clamp(0, self.levels - 1)
            out = level.long().numpy() + self.low
        else:
            mean, scale = (np.array(v).reshape(-1) for v in (self.mean, self.scale))
            out = (x.double().cpu().numpy().reshape(len(x), -1) * scale + mean).reshape(x.shape)
            if self.span is not None:
                out = np.clip(out, self.span[0], self.span[1])
        if self.channels_last:
            out = np.moveaxis(out, 1, -1)
        return as_type(out, np.dtype(self.dtype))

    def check_out(self, path: Path) -> None:
        super().check_out(path)
        if written_as(path) == ".png":
            picture(np.zeros((1, *self.shape), self.dtype), self)

    def write(self, x: Tree, path: Path) -> None:
        self.write_values(self.values(x), path)

    def write_filled(self, x: Tree, source: Path, path: Path, mark: str | None = None) -> None:
        """The file `source` with its gaps filled: what is known stays as it is, to the last digit."""
        self.write_values(self.filled_array(x, named(source, self.array)[0], mark, str(source)), path)

    def filled_array(self, x: Tree, values: np.ndarray, mark: str | None = None, where: str = "the array") -> np.ndarray:
        """An array with its gaps filled."""
        values, known = self._known(values, mark, where)
        return np.where(known, as_type(np.where(known, values, 0), np.dtype(self.dtype)), self.values(x))

    def write_values(self, values: np.ndarray, path: Path) -> None:
        suffix = written_as(path)
        write_bytes(path, picture(values, self) if suffix == ".png" else packed(values, suffix, self.array or "samples"))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Array":
        return cls(**data)


def as_type(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers in another type: the nearest that it has."""
    if dtype.kind in "iu" and values.dtype.kind == "f":
        limits = np.iinfo(dtype)
        high = np.float64(limits.max)  # of 64 bits: rounded up, and one too high
        values = np.clip(np.rint(values), limits.min, high if int(high) <= limits.max else np.nextafter(high, 0))
    return values.astype(dtype)


def picture(values: np.ndarray, array: Array) -> bytes:
    """A grid of images as PNG."""
    try:
        from PIL import Image
    except ImportError as error:
        raise BadData("PNG pictures need the package Pillow: pip install 'unnoise[all]'") from error
    if not array.pictured:
        raise BadData(f"examples of shape {tuple(array.shape)} are no images: write them as .npy")
    if values.ndim == 4 and not array.channels_last:
        values = np.moveaxis(values, 1, -1)
    low, high = (array.low, array.low + array.levels - 1) if array.levels else (values.min(), values.max())
    bright = np.clip((values.astype(np.float64) - low) / max(high - low, 1e-12) * 255, 0, 255).astype(np.uint8)
    bright = bright[..., 0] if bright.ndim == 4 and bright.shape[-1] == 1 else bright
    across = int(np.ceil(len(bright) ** 0.5))
    height, width = bright.shape[1:3]
    sheet = np.zeros((-(-len(bright) // across) * (height + 1), across * (width + 1), *bright.shape[3:]), np.uint8)
    for i, image in enumerate(bright):
        y, x = i // across * (height + 1), i % across * (width + 1)
        sheet[y : y + height, x : x + width] = image
    out, enlarge = io.BytesIO(), max(1, 320 // max(sheet.shape[:2]))
    picture = Image.fromarray(sheet)
    picture.resize((sheet.shape[1] * enlarge, sheet.shape[0] * enlarge), Image.Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()
