"""A corruption of your own making: a moving window, noise that differs by place; trained without the estimator."""

import torch

from unfade import Architecture, GaussianNoise, TrainingConfig
from unfade.corruption.masks import mask_window
from unfade.inference.sampling import draw_blocks
from unfade.methods.recipes import Task
from unfade.methods.registry import fit_method
from unfade.rng import generator_normals

generator = torch.Generator().manual_seed(0)
factors = torch.randn(2000, 3, generator=generator)
clean = torch.tanh(factors @ torch.randn(3, 36, generator=generator))

# Only a 4 x 4 window of each 6 x 6 image is seen, and the left half is noisier than the right.
std = torch.tensor([0.3, 0.3, 0.3, 0.1, 0.1, 0.1]).repeat(6)
corruption = GaussianNoise(std)
seen = mask_window(2000, (6, 6), (4, 4), generator).flatten(1)
observations = corruption.corrupt(clean, seen, generator_normals(generator))

task = Task(
    observations,
    corruption,
    Architecture(latent=6, hidden=(64, 64), skip=True),
    TrainingConfig(steps=1000),
    seed=0,
    fixed_steps=True,
)
posterior = fit_method("auto", task, {}).posterior
blocks = [
    values for _, values in draw_blocks(posterior, observations[:100], torch.arange(100), 20, seed=0, n_candidates=100)
]
draws = torch.cat(blocks, 1)
error = (draws.mean(0) - clean[:100]).square().mean().sqrt()
print(f"error of the mean {error:.3f}, spread of the draws {draws.std(0).mean():.3f}, spread of the data {clean.std():.3f}")
