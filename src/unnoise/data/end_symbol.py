"""What is certain of padded sequences: where a symbol comes later, a sequence has not ended.

A network learns it from the data, but not to the last decimal, and where gaps are filled one END too many would cut off what
is known.  Under masking x_t shows symbols that stay, so END is barred wherever one of them comes after a masked place.
"""

from typing import Any

import torch
from torch import Tensor, nn

from unnoise.shapes import Float, Int


class EndBarred(nn.Module):
    def __init__(self, network: nn.Module, end: int, mask: int):
        super().__init__()
        self.network, self.end, self.mask = network, end, mask

    def forward(
        self, x: Int[Tensor, "batch length"], t: Float[Tensor, "batch"] | None = None, **condition: Any
    ) -> Float[Tensor, "batch length size"]:
        logits = self.network(x, t, **condition)
        symbol = (x != self.mask) & (x != self.end)
        goes_on = (x == self.mask) & (symbol.flip(1).cumsum(1).flip(1) > 0)
        end = torch.arange(logits.shape[-1], device=x.device) == self.end
        return logits.masked_fill(goes_on.unsqueeze(-1) & end, torch.finfo(logits.dtype).min)
