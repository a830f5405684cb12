"""Networks: tensors to tensors, no probability."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Any] = {"leaky_relu": nn.LeakyReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class MLP(nn.Module):
    """Fully connected layers over the joined inputs, with an optional linear path beside them.

    Inputs (..., features_i), joined along the last axis; output (..., outputs).

    >>> MLP(3, [8, 8], 2)(torch.zeros(5, 1), torch.zeros(5, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, activation: str = "leaky_relu", skip: bool = False
    ):
        super().__init__()
        layers: list[nn.Module] = []
        width = inputs
        for units in hidden:
            layers += [nn.Linear(width, units), ACTIVATIONS[activation]()]
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, outputs))
        self.skip = nn.Linear(inputs, outputs, bias=False) if skip else None

    def forward(self, *inputs: Tensor) -> Tensor:
        """Inputs broadcast against each other in all axes but the last."""
        lead = torch.broadcast_shapes(*(part.shape[:-1] for part in inputs))
        joined = torch.cat([part.expand(*lead, part.shape[-1]) for part in inputs], -1) if len(inputs) > 1 else inputs[0]
        rows = joined.reshape(-1, joined.shape[-1])  # two axes all the way: fewer operations
        out = self.layers(rows)
        if self.skip is not None:
            out = torch.addmm(out, rows, self.skip.weight.T)
        return out.reshape(*lead, -1)
