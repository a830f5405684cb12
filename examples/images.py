"""Images with missing, noisy pixels: arrays of (samples, height, width) go in and come out. Runs in about a minute."""

import numpy as np
from sklearn.datasets import load_digits

from unfade import Recoverer

rng = np.random.default_rng(0)
clean = load_digits().images / 16
observed = np.where(rng.random(clean.shape) < 0.5, np.nan, clean + 0.1 * rng.normal(size=clean.shape))

rec = Recoverer(noise="learn", scaling="joint-interval", bounds=(0, 1), max_steps=1500, random_state=0).fit(observed)
draws = rec.sample(observed[:5], n_draws=20)

print("draws:", draws.values.shape, "noise found:", round(rec.noise_, 3), "(0.1 was added)")
print("error of the mean:", round(float(np.sqrt(np.mean((draws.mean() - clean[:5]) ** 2))), 3))
