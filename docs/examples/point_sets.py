"""A data format of one's own: JSON lines of labelled point sets, all of one size.

    {"label": "ring", "points": [[0.1, 1.2], [0.9, -0.3], [-1.0, 0.2]]}

A state is {"label": a category, "points": [size, 2] numbers}, under masking and Gaussian noise.  In a file with gaps null
stands for a label or a point that is to be filled.
"""

import json
from dataclasses import asdict, dataclass

import torch

import unnoise as un
from unnoise.data import BadData, Format, Line, register_format
from unnoise.data.files import read_text, write_bytes
from unnoise.evaluation.scores import chosen, sample_scores


@register_format
@dataclass(kw_only=True)
class PointSets(Format):
    kind = "point_sets"  # its name, on the command line and in saved runs
    suffix = ".jsonl"  # of the files that it writes
    suffixes = (".jsonl",)  # and of those that it recognises
    options = {"--option scale": "point sets"}

    labels: list[str]
    size: int  # points of a set
    centre: list[float]
    scale: float  # the model sees (point - centre) / scale

    @classmethod
    def read(cls, path, how):
        """What a file holds, and its states."""
        rows = parsed(path)
        points = torch.tensor([row["points"] for row in rows if None not in row["points"]], dtype=torch.float64)
        labels = sorted({row["label"] for row in rows if row["label"] is not None})
        scale = float(how.options.get("scale", points.std()))
        form = cls(labels=labels, size=points.shape[1], centre=points.mean((0, 1)).tolist(), scale=scale)
        return form, form.encode(path)

    def process(self):
        return un.Product(label=un.Masking(len(self.labels), ()), points=un.Gaussian((self.size, 2)))

    def lines(self):
        shown = f"{self.size} of scale {self.scale:.3g} around ({self.centre[0]:.3g}, {self.centre[1]:.3g})"
        return [
            Line("label", "category", f"{len(self.labels)}: {', '.join(self.labels[:5])}", "Masking"),
            Line("points", "numbers", shown, "Gaussian"),
        ]

    def encode(self, path):
        x, known = self.gaps(path)
        if not all(bool(leaf.all()) for leaf in known.values()):
            raise BadData(f"{path}: has gaps: fill them by unnoise infill, or drop their lines")
        return x

    def gaps(self, path, mark=None):
        labels, points = [], []
        for number, row in enumerate(parsed(path), 1):
            if len(row["points"]) != self.size:
                raise BadData(f"{path}: line {number} has {len(row['points'])} points, the others {self.size}: drop it")
            if row["label"] not in (None, *self.labels):
                raise BadData(f"{path}: line {number}: label {row['label']!r} is none of {self.labels}")
            labels.append(-1 if row["label"] is None else self.labels.index(row["label"]))
            points.append([[float("nan")] * 2 if point is None else point for point in row["points"]])
        label, value = torch.tensor(labels), (torch.tensor(points) - torch.tensor(self.centre)) / self.scale
        x = {"label": label.clamp_min(0), "points": value.nan_to_num(0.0)}
        return x, {"label": label >= 0, "points": ~value.isnan()}

    def given(self, assignments):
        """For `unnoise sample --given label=ring`."""
        if set(assignments) != {"label"} or assignments["label"] not in self.labels:
            raise BadData(f"--given {assignments}: name a label, one of {self.labels}")
        label = torch.tensor(self.labels.index(assignments["label"]))
        return {"label": (label, torch.ones((), dtype=torch.bool))}

    def write(self, x, path):
        points = (x["points"].double() * self.scale + torch.tensor(self.centre, dtype=torch.float64)).tolist()
        rows = [{"label": self.labels[i], "points": p} for i, p in zip(x["label"].tolist(), points, strict=True)]
        write_bytes(path, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def training(self, preset, on_cpu):
        """Settings of a `TrainConfig` that suit such data."""
        return {"batch_size": 128 if on_cpu else 1024}

    def count_gaps(self, fixed):
        """Labels and points, not coordinates."""
        return int((~fixed["label"]).sum()) + int((~fixed["points"]).any(-1).sum())

    def to_json(self):
        return asdict(self)

    @classmethod
    def from_json(cls, data):
        return cls(**data)


def parsed(path):
    """The lines of a file; `read_text` reads it once for all who ask, and unpacks .gz."""
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            row = json.loads(line)
            rows.append({"label": row["label"], "points": row["points"]})
        except (ValueError, KeyError, TypeError) as error:
            raise BadData(f'{path}: line {number} is no {{"label": ..., "points": [...]}}: {error}') from error
    return rows


@sample_scores.register
def _(form: PointSets, study):
    """For `unnoise evaluate`: samples and unseen rows against the rows that were trained on."""

    def score(x):
        shares, true = (torch.bincount(y["label"], minlength=len(form.labels)) / len(y["label"]) for y in (x, study.train))
        radius, known = (float((y["points"] - y["points"].mean(1, True)).norm(dim=-1).mean()) for y in (x, study.train))
        return {"label_distance": float((shares - true).abs().sum() / 2), "radius_ratio": radius / known}

    few = chosen(len(study.unseen["label"]), 1000, study.seed)
    unseen = {name: leaf[few] for name, leaf in study.unseen.items()}
    return {"samples": score(study.draw(study.samples or 200)), "control_unseen_rows": score(unseen)}
