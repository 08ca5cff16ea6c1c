"""The networks that are measured: plain ones, as anyone would write them."""

import torch
from torch import Tensor, nn


class PlainTransformer(nn.Module):
    """Tokens with learned places, a transformer of torch's own layers, and a head over the vocabulary."""

    def __init__(self, size: int, length: int, width: int, layers: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(size + 1, width), nn.Parameter(0.02 * torch.randn(length, width))
        heads = max(1, width // 64)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, size)  # a layer, not a method: what is linear need not be asked for all logits

    def features(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(self.tokens(x) + self.places)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.head(self.features(x, t))


class PlainPerceptron(nn.Module):
    """Numbers with the time beside them through two hidden layers."""

    def __init__(self, width: int = 64, hidden: int = 256):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, width)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(torch.cat([x, t.expand(len(x)).unsqueeze(1)], 1))
