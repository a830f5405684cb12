"""The E step of a flow posterior: while it trains on draws of clean rows, these are drawn again by what it has learned.

    x_i ~ q(x|y_i) for some rows i after each stretch of steps; noise^2 = mean of (y - x)^2 over what is observed.

Each draw is used some twelve times, so that drawing takes a third of the time and nothing is learned by heart. Draws of
held-out observed cells decide when it ends.
"""

import math
from typing import Any

import torch
from torch import Tensor

from unfade.data.observations import Observations
from unfade.models.flow import ROWS, FlowPosterior
from unfade.rng import KeyedNormals
from unfade.training.early_stopping import Split
from unfade.training.loop import Progress

USES = 12.5  # of each draw in training
STEPS = 12  # of the differential equation, in the E step
NARROWED = 0.3, 0.6  # observed entries are drawn with less spread by that share, which falls by that factor a pass
JUDGED = 2**19  # entries of held-out rows, times draws, that a score goes by on a CPU
_PATIENCE = 1.6  # training ends when it has gone on for so many times the steps of the best score
_SHORTEST = 2000  # steps that are taken before that


def drawn_once(posterior: Any, obs: Observations, seed: int) -> Tensor:
    """Draw every row once, (samples, features)."""
    parts, height = [], max(1, 2**22 // obs.values.shape[1])
    for start in range(0, len(obs), height):
        some = obs[start : start + height]
        normals = KeyedNormals(seed, torch.arange(start, start + len(some), device=obs.values.device))
        with torch.no_grad():
            parts.append(posterior.draw(some, 1, normals, posterior.source(some, 0, normals))[0])
    return torch.cat(parts)


def judged(posterior: Any, split: Split) -> float:
    """Score ten draws of some of the held-out cells."""
    on_gpu, entries = split.given.values.device.type == "cuda", split.given.values.shape[1]
    rows = ROWS // 10 if on_gpu else max(16, JUDGED // (10 * entries))
    some = Split(split.seen, split.rows[:rows], split.given[:rows], split.held[:rows], split.seed)
    return some.crps(some.predict([posterior], draws=10), posterior.corruption)


class ExpectationStep:
    """Draws rows again while a flow trains on them: what the loop calls after each stretch, with averaged parameters.

    Parameters
    ----------
    posterior : FlowPosterior
    obs : Observations
        What is drawn from, (samples, features).
    draws : Observations
        What is trained on: draws of clean rows, changed in place, and which of their entries are observed.
    batch : int
        Rows of a training step.
    split : Split or None
        Held-out cells.
    first : float
        How well what gave the first draws predicts them: rows are not drawn again before the flow does that better.
    learn : bool
        Whether the noise level is learned.
    seed : int
    """

    def __init__(
        self, posterior: FlowPosterior, obs: Observations, draws: Observations, batch: int, split: Split | None,
        first: float, learn: bool, seed: int,
    ):  # fmt: skip
        self.posterior, self.obs, self.draws, self.batch = posterior, obs, draws, batch
        self.split, self.first, self.learn, self.seed = split, first, learn, seed
        self.order = torch.randperm(len(obs), generator=torch.Generator().manual_seed(seed)).to(obs.values.device)
        self.step, self.drawn = 0, 0
        self.squares: list[tuple[float, Tensor]] = []  # of the last rows that were drawn: their number, and mean squares
        self.scores: dict[int, float] = {}
        self.best: dict[str, Tensor] = {}

    def __call__(self, progress: Progress) -> bool:
        """Draw as many rows again as training has used up; True ends training."""
        used = (progress.step - self.step) * min(self.batch, len(self.obs)) / USES
        self.step = progress.step
        if self.split is not None and (
            progress.step >= 1.25 * max(self.scores, default=0) or progress.step == progress.steps
        ):
            self._judge(progress.step)
        if self.split is None or self.drawn or min(self.scores.values()) < self.first:
            self._draw_again(max(1, round(used)))
        best = min(self.scores, key=self.scores.__getitem__, default=progress.step)
        return progress.step >= max(_SHORTEST, _PATIENCE * best)

    def finish(self) -> Tensor | None:
        """Take the parameters that held-out cells were predicted best with; draws of these cells."""
        if self.split is None:
            return None
        if self.best:
            self.posterior.load_state_dict(self.best)
        return self.split.predict([self.posterior]).cpu()

    def state(self) -> dict[str, Tensor]:
        """What the E step has reached."""
        kept = {f"best.{name}": value for name, value in self.best.items()}
        kept |= {"scores": torch.tensor(list(self.scores.items()), dtype=torch.float64).reshape(-1, 2)}
        kept |= {f"corruption.{name}": value for name, value in self.posterior.corruption.state_dict().items()}
        if self.squares:
            counts, means = zip(*self.squares, strict=True)
            kept |= {"rows": torch.tensor(counts, dtype=torch.float64), "squares": torch.stack(means)}
        return kept | {"draws": self.draws.values, "drawn": torch.tensor([self.step, self.drawn])}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from there."""
        self.step, self.drawn = state["drawn"].tolist()
        self.draws.values.copy_(state["draws"])
        self.scores = {int(step): score for step, score in state["scores"].tolist()}
        self.squares = list(zip(state["rows"].tolist(), state["squares"], strict=True)) if "rows" in state else []
        self.best = {name.removeprefix("best."): v for name, v in state.items() if name.startswith("best.")}
        own = {name.removeprefix("corruption."): v for name, v in state.items() if name.startswith("corruption.")}
        self.posterior.corruption.load_state_dict(own)

    @torch.no_grad()
    def _draw_again(self, count: int) -> None:
        """Draw the next rows in turn; random numbers are keyed by row and pass."""
        count = min(count, len(self.order))
        places = (self.drawn + torch.arange(count, device=self.order.device)) % len(self.order)
        rows, round_ = self.order[places], self.drawn // len(self.order)
        self.drawn += count
        some, normals = self.obs[rows], KeyedNormals(self.seed + 1 + round_, rows)
        start, (share, factor) = normals(1, *some.values.shape), NARROWED
        start = torch.where(some.observed, (1 - share * factor**round_) * start, start)
        clean = self.posterior.redraw(some, start, STEPS)[0]
        self.draws.values[rows] = clean
        if self.learn:
            self._learn_noise(some, clean)

    def _learn_noise(self, obs: Observations, clean: Tensor) -> None:
        """Set the noise to that of the last rows that were drawn, a quarter of all."""
        self.squares.append((float(len(obs)), self.posterior.corruption.squares(obs, clean)))
        while sum(count for count, _ in self.squares[1:]) > len(self.obs) / 4:
            self.squares.pop(0)
        total = sum(count for count, _ in self.squares)
        means = torch.stack([count / total * part for count, part in self.squares])
        self.posterior.corruption.fit_noise(means.sum(0))

    def _judge(self, step: int) -> None:
        """Score draws of some of the held-out cells, and keep the parameters if they are the best so far."""
        assert self.split is not None
        score = judged(self.posterior, self.split)
        if score < min(self.scores.values(), default=math.inf):
            self.best = {name: value.clone() for name, value in self.posterior.state_dict().items()}
        self.scores[step] = score
