"""The step: one or many models of one shape, their parameters as rows of one matrix, Adam for all at once.

Everything a step reads is on the device: data, and the batches, rates and keys of random numbers planned for
a stretch. So it can be compiled and captured as a CUDA graph, a model gives the same result alone or with
others, and nothing waits for the host.
"""

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from unfade.data.observations import Observations
from unfade.models.flow import FlowPosterior
from unfade.models.latent_variable import PosteriorLVM
from unfade.rng import Normals, step_keys, step_normals
from unfade.training import distributed as processes
from unfade.training.objectives import Bound, Objective

_PRECISION = threading.Lock()  # torch has one precision of products for all threads


class Trained(nn.Module):
    """A posterior and the objective it is trained by, as one module."""

    def __init__(self, posterior: PosteriorLVM | FlowPosterior, objective: Objective):
        super().__init__()
        self.posterior = posterior
        self.objective = objective

    def forward(self, obs: Observations, normals: Normals, warmup: Tensor) -> Bound:
        """The objective's value."""
        return self.objective(self.posterior, obs, normals, warmup)


class Stepper:
    """Steps of Adam on a stack of models; the modules' own parameters are views of its rows.

    models, data: one each a model, of equal shapes; seeds, clip_norm: (models,); averaging: whether averages of the
    parameters are kept. `plan` sets the batches, rates and warm-ups of the next stretch, `step` takes one step of it.
    """

    def __init__(
        self,
        models: Sequence[Trained],
        data: Sequence[Observations],
        seeds: Sequence[int],
        clip_norm: Sequence[float],
        averaging: bool = False,
    ):
        self.device = data[0].values.device
        self.models = models
        self.data = [_stack(parts) for parts in zip(*(obs.parts() for obs in data), strict=True)]
        self.seeds = torch.tensor(seeds, device=self.device)
        self.clip_norm = torch.tensor(clip_norm, device=self.device)
        self.trainable = [name for name, p in models[0].named_parameters() if p.requires_grad]
        self.shapes = [models[0].get_parameter(name).shape for name in self.trainable]
        self.flat = self._flatten()
        self.fixed = self._stack_fixed()
        self.each = torch.arange(len(models), device=self.device)[:, None]
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)  # Adam's moments
        self.averaging = averaging
        self.average = self.flat.clone() if averaging else self.flat  # mostly over the last quarter of the steps taken
        self.fresh_at = torch.zeros(len(models))  # the step at which a model's optimiser was new
        self.names = ["value", *self._probe()]
        self.totals = torch.zeros(len(models), len(self.names), device=self.device)
        self.planned: list[Tensor] = []
        self.place = torch.zeros(1, dtype=torch.long, device=self.device)  # in the plan
        self._one_step: Callable[[], None] = self._update
        self._graph: torch.cuda.CUDAGraph | None = None

    def plan(self, start: int, rows: Tensor, rates: Tensor, warmups: Tensor) -> None:
        """Batches (steps, models, batch), rates and warm-ups (steps, models) of a stretch that begins at step `start`."""
        steps = start + torch.arange(len(rows))
        taken = (steps[:, None] + 1 - self.fresh_at).double()
        root = (1 - 0.999**taken).sqrt()  # Adam's corrections for moments that start at 0
        recent = (4 / (steps[:, None] + 1)).clamp(max=1.0).expand_as(rates)
        numbers = torch.stack([rates * root / (1 - 0.9**taken), 1e-8 * root, warmups, recent], -1).float()
        share = max(1, rows.shape[2] // processes.count())
        rows = rows[:, :, processes.rank() * share % rows.shape[2] :][:, :, :share]
        new = rows, step_keys(self.seeds.cpu() + 2**40 * processes.rank(), steps), numbers
        if not self.planned:
            self.planned = [part.to(self.device) for part in new]
        for old, part in zip(self.planned, new, strict=True):  # in place: a captured graph reads these very tensors
            old.copy_(part)
        self.place.zero_()
        self.totals.zero_()

    def step(self) -> None:
        """The next step of the plan."""
        if self._graph is not None:
            self._graph.replay()
        else:
            self._one_step()

    def accelerate(self, compile: bool) -> str:
        """Compile the step, and capture it on a GPU; says what was done and why. Call after `plan`."""
        if processes.count() > 1:
            return f"eager (one of {processes.count()} processes)"
        before = [part.clone() for part in self._state()]
        said = self._compile() if compile else "eager (compiling would take longer than it saves)"
        if self.device.type == "cuda" and self.models[0].objective.captures:
            self._capture()
            said += "; captured as a CUDA graph"
        for part, old in zip(self._state(), before, strict=True):
            part.copy_(old)
        return said

    def _compile(self) -> str:
        compiled = torch.compile(self._update, dynamic=False)
        try:
            with self._tensor_cores():
                compiled()
        except Exception as error:  # whatever keeps a compiler from working here, the plain step does the same
            return f"eager (compiling failed: {type(error).__name__})"
        self._one_step = compiled
        return "compiled"

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with self._tensor_cores():
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.place.zero_()
                    self._one_step()
            torch.cuda.current_stream().wait_stream(side)
            self.place.zero_()
            with _no_collection(), torch.cuda.graph(graph):
                self._one_step()
        self._graph = graph

    @contextmanager
    def _tensor_cores(self) -> Iterator[None]:
        """Products of matrices in TF32 where a GPU has it: ten bits of mantissa are enough for noisy gradients."""
        if self.device.type != "cuda":
            yield
            return
        with _PRECISION:
            before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(before)

    def restore(self, parameters: Tensor, which: Tensor, step: int) -> None:
        """Put the models `which` (bool) back to earlier parameters at step `step`, with the optimiser as new."""
        self.flat[which] = self.average[which] = parameters[which]
        self.first[which] = self.second[which] = 0.0
        self.fresh_at[which] = step

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the modules' parameters are the averages of those they had: less noisy, as at a rate that has fallen."""
        current = self.flat.clone()
        self.flat.copy_(self.average)
        try:
            yield
        finally:
            self.flat.copy_(current)

    def finite(self) -> Tensor:
        """Which models have finite parameters and totals, (models,)."""
        return self.flat.isfinite().all(1) & self.totals.isfinite().all(1)

    def release(self) -> None:
        """Give the modules parameters of their own."""
        for model in self.models:
            for name in self.trainable:
                parameter = model.get_parameter(name)
                parameter.data = parameter.data.clone()

    def state(self) -> dict[str, Tensor]:
        """What there is to keep between two stretches."""
        kept = {"flat": self.flat, "first": self.first, "second": self.second, "fresh_at": self.fresh_at}
        return kept | ({"average": self.average} if self.averaging else {})

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        for name, part in self.state().items():
            part.copy_(state[name])

    def _state(self) -> list[Tensor]:
        return [self.flat, self.first, self.second, self.average, self.place, self.totals]

    def _flatten(self) -> Tensor:
        """Parameters as rows of one matrix, and the modules' parameters as views of them."""
        rows = [
            torch.cat([model.get_parameter(name).detach().flatten() for name in self.trainable]) for model in self.models
        ]
        flat = torch.stack(rows)
        for model, row in zip(self.models, flat, strict=True):
            for name, part in self._unflatten(row).items():
                model.get_parameter(name).data = part
        return flat

    def _unflatten(self, row: Tensor) -> dict[str, Tensor]:
        parts = row.split([shape.numel() for shape in self.shapes])
        return {name: part.view(shape) for name, part, shape in zip(self.trainable, parts, self.shapes, strict=True)}

    def _stack_fixed(self) -> dict[str, Tensor]:
        states = [{**dict(model.named_parameters()), **dict(model.named_buffers())} for model in self.models]
        return {name: torch.stack([s[name].detach() for s in states]) for name in states[0] if name not in self.trainable}

    def _probe(self) -> list[str]:
        first = Observations(*(part[0, :1] for part in self.data))
        with torch.no_grad(), eager(self.device):
            return list(self.models[0](first, step_normals(self.seeds[0]), torch.ones((), device=self.device)).terms)

    def _loss(
        self, row: Tensor, fixed: dict[str, Tensor], key: Tensor, warmup: Tensor, *parts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Minus the mean value of one model, and the means of its terms."""
        given = {**self._unflatten(row), **fixed}
        bound = functional_call(self.models[0], given, (Observations(*parts), step_normals(key), warmup))
        means = torch.stack([bound.value.mean(), *(term.mean() for term in bound.terms.values())])
        return -means[0], means.detach()

    def _gradients(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients (models, parameters) and means (models, terms); batch: keys, warm-ups, observations."""
        if len(self.models) == 1 and not torch.compiler.is_compiling():  # the module itself has the least overhead
            return self._gradients_alone(*(part[0] for part in batch))
        gradients, (_, means) = vmap(grad_and_value(self._loss, has_aux=True))(self.flat, self.fixed, *batch)
        return gradients, means

    def _gradients_alone(self, key: Tensor, warmup: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:
        """The same of a single model, whose own parameters are views of the row."""
        model = self.models[0]
        bound = model(Observations(*parts), step_normals(key), warmup)
        means = torch.stack([bound.value.mean(), *(term.mean() for term in bound.terms.values())])
        parameters = [model.get_parameter(name) for name in self.trainable]
        found = torch.autograd.grad(-means[0], parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in found])[None], means.detach()[None]

    def _update(self) -> None:
        """One step of Adam for all models, gradient norms clipped."""
        rows, keys, numbers = (part.index_select(0, self.place)[0] for part in self.planned)
        size, tiny, warmups, recent = numbers.unbind(-1)
        gradients, means = self._gradients(keys, warmups, *(part[self.each, rows] for part in self.data))
        processes.average(gradients, means)
        norm = gradients.norm(dim=1, keepdim=True)
        gradients = gradients * (self.clip_norm[:, None] / norm.clamp(min=1e-12)).clamp(max=1.0)
        first = torch.lerp(self.first, gradients, 0.1)
        second = torch.lerp(self.second, gradients.square(), 0.001)
        self.flat -= size[:, None] * first / (second.sqrt() + tiny[:, None])
        self.first.copy_(first)  # whole tensors at the end: the compiler then makes one pass over the parameters
        self.second.copy_(second)
        if self.averaging:
            self.average.copy_(torch.lerp(self.average, self.flat, recent[:, None]))
        self.totals += means
        self.place += 1


@contextmanager
def eager(device: torch.device) -> Iterator[None]:
    """Nothing is compiled inside: for single evaluations of what is compiled in training."""
    if device.type == "cuda":  # elsewhere nothing is, and torch need not load its compiler
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing is collected inside: an old graph that goes away while another is captured would spoil it."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor with a first axis for the models; one that all share is not copied."""
    if all(tensor is tensors[0] for tensor in tensors):
        return tensors[0].expand(len(tensors), *tensors[0].shape)
    return torch.stack(list(tensors))
