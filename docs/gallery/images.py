# %% [markdown]
# # Images with holes and noise
#
# Half of the pixels of handwritten digits are missing, the others carry noise. The draws agree where there is data,
# and differ where there is none.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from unfade import Recoverer

rng = np.random.default_rng(6)
truth = load_digits().images[:1000] / 16
given = np.where(rng.random(truth.shape) < 0.5, np.nan, truth + 0.1 * rng.normal(size=truth.shape))

# %% [markdown]
# One noise level for all pixels is learned. `bounds` says that clean pixels lie between 0 and 1. For a quick page the
# fit is limited to 40 seconds.

# %%
rec = Recoverer(noise="learn", scaling="joint-interval", bounds=(0, 1), max_seconds=40, random_state=0, verbose=0)
rec.fit(given)
draws = rec.sample(given[:6], n_draws=20)
print(f"noise: 0.1 added, {rec.noise_:.3f} found")

# %%
shown = {
    "given": given[:6], "mean": draws.mean(), "draw 1": draws[0], "draw 2": draws[1], "draw 3": draws[2],
    "std": draws.std(), "truth": truth[:6],
}  # fmt: skip
figure, panels = plt.subplots(6, 7, figsize=(7, 6), layout="constrained")
grey = plt.get_cmap("gray").with_extremes(bad="#7fa8d8")
for column, (name, pictures) in enumerate(shown.items()):
    panels[0, column].set_title(name, fontsize=9)
    for row in range(6):
        panels[row, column].imshow(pictures[row], cmap=grey, vmin=0, vmax=0.5 if name == "std" else 1)
        panels[row, column].axis("off")
plt.show()
