# %% [markdown]
# # Why draws, and not means
#
# Where a missing value can be one of two things, its mean is neither. Draws keep both possibilities, and so do
# analyses of the draws.
#
# Points lie near a circle. Half of them lose their second coordinate, which can then be up or down.

# %%
import matplotlib.pyplot as plt
import numpy as np

from unfade import Recoverer

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, 400)
points = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(400, 2))
gone = rng.random(400) < 0.5
table = points.copy()
table[gone, 1] = np.nan

# %%
rec = Recoverer(random_state=0, verbose=0).fit(table)
means, draws = rec.transform(table), rec.sample(table, n_draws=20)

# %%
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained")
for panel, filled, title in zip(panels, (points, means, draws[0]), ("truth", "means", "one draw"), strict=True):
    panel.scatter(*filled[~gone].T, s=4, color="#9aa5ab")
    panel.scatter(*filled[gone].T, s=6, color="#D55E00")
    panel.set_title(title)
    panel.set_aspect("equal")
plt.show()

# %% [markdown]
# Orange points had no second coordinate. Their means lie in the middle, where no point is. One draw looks like the
# data. The standard deviation of the second coordinate, over all points:

# %%
print(f"truth {points[:, 1].std():.2f}, means {means[:, 1].std():.2f}, draws {draws.values[..., 1].std():.2f}")
