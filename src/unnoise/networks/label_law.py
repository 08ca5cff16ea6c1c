"""The law of labels that hang together: classes, within each of which the labels are independent.

    P(labels) = sum_c weight(c) prod_j P_j(label_j | c)

So the law of any label given any others is known: the others say which class it is,

    P(c | labels revealed) ~ weight(c) prod_(j revealed) P_j(label_j | c),
    P_j(a | labels revealed) = sum_c P(c | labels revealed) P_j(a | c).

Classes are fitted by expectation and maximisation, each with `PRIOR` rows of the law of the whole table beside its own.  How
many there are is what makes the labels of rows left out likeliest; one class is that of independent labels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.shapes import Float

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)  # of classes
PRIOR = 1.0  # rows
UNSEEN = 0.5  # rows of each label, that were not seen
ROUNDS = 60
CLOSE = 1e-4  # nats a row, below which a round is the last
GAIN = 0.005  # nats a row, from which more classes are worth it
FOLDS = 4
MOST_CELLS = 1_000_000  # rows times labels; of more rows, some


@dataclass(frozen=True, eq=False)
class LabelLaw:
    log_weights: Float[Tensor, "classes"]
    log_given: Float[Tensor, "classes labels"]  # of the labels of all coordinates, one after the other

    def log_prob(self, marks: Float[Tensor, "rows labels"]) -> Float[Tensor, "rows"]:
        """Of rows whose labels are 0 and 1 side by side."""
        return (self.log_weights + marks @ self.log_given.T).logsumexp(1)

    def log_given_others(self, marks: Float[Tensor, "rows labels"], sizes: tuple[int, ...]) -> Float[Tensor, "rows labels"]:
        """Of every label of every coordinate, given the row's other labels."""
        found, whole = [], self.log_weights + marks @ self.log_given.T
        for own, given in zip(marks.split(list(sizes), 1), self.log_given.split(list(sizes), 1), strict=True):
            which = (whole - own @ given.T).log_softmax(1)
            found.append((which.unsqueeze(-1) + given).logsumexp(1))
        return torch.cat(found, 1)


def log_shares(marks: Float[Tensor, "rows labels"], sizes: tuple[int, ...]) -> Float[Tensor, "labels"]:
    """Of every label in its coordinate."""
    parts = [(own + UNSEEN) / (own + UNSEEN).sum() for own in marks.sum(0).split(list(sizes))] if sizes else []
    return torch.cat(parts).log() if parts else torch.zeros(0, dtype=torch.float64)


def fit_label_law(marks: Float[Tensor, "rows labels"], sizes: tuple[int, ...]) -> LabelLaw:
    """Of these rows, some of them where they are many."""
    most = max(FOLDS, MOST_CELLS // max(1, marks.shape[1]))
    some = marks if len(marks) <= most else marks[torch.linspace(0, len(marks) - 1, most).long()]
    return _fitted(some, sizes, _count(some, sizes))


def _count(marks: Float[Tensor, "rows labels"], sizes: tuple[int, ...]) -> int:
    """Of classes: the fewest that are nearly best.  More are tried until that brought nothing twice."""
    if len(sizes) < 2 or len(marks) < 2 * FOLDS:
        return 1
    mixed = torch.randperm(len(marks), generator=torch.Generator().manual_seed(0))
    parts = mixed.tensor_split(FOLDS)
    folds = [(marks[torch.cat([p for p in parts if p is not held])], marks[held]) for held in parts]
    scores: list[float] = []
    for count in COUNTS:
        scores.append(sum(float(_fitted(seen, sizes, count).log_prob(held).sum()) for seen, held in folds))
        if len(scores) > 2 and max(scores[-2:]) < max(scores):
            break
    return next(count for count, score in zip(COUNTS, scores, strict=False) if score >= max(scores) - GAIN * len(marks))


def _fitted(marks: Float[Tensor, "rows labels"], sizes: tuple[int, ...], count: int) -> LabelLaw:
    shares = log_shares(marks, sizes)
    if count == 1:
        return LabelLaw(torch.zeros(1, dtype=torch.float64), shares.unsqueeze(0))
    generator = torch.Generator().manual_seed(0)
    which = torch.rand(len(marks), count, generator=generator, dtype=torch.float64).pow(4)
    which = which / which.sum(1, keepdim=True)
    before = -float("inf")
    for _ in range(ROUNDS):
        rows = which.sum(0)
        given = (which.T @ marks + PRIOR * shares.exp()) / (rows + PRIOR).unsqueeze(1)
        law = LabelLaw(((rows + PRIOR) / (rows + PRIOR).sum()).log(), given.log())
        joint = law.log_weights + marks @ law.log_given.T
        now = float(joint.logsumexp(1).mean())
        if now - before < CLOSE:
            break
        which, before = joint.softmax(1), now
    return law
