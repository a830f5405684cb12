# %% [markdown]
# # Clean noisy sensors
#
# Six sensors follow the same weather. Each has its own noise and its own gaps. Estimate the noise of each sensor, and
# remove it.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unfade import Recoverer

rng = np.random.default_rng(1)
hours = np.arange(800)
weather = 15 + 5 * np.sin(hours / 3.8) + np.cumsum(rng.normal(size=800)) / 3
gain, offset = rng.uniform(0.8, 1.2, 6), rng.uniform(-2, 2, 6)
truth = pd.DataFrame(offset + gain * weather[:, None], columns=[f"sensor {i}" for i in range(1, 7)])
noise = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.8])
table = (truth + noise * rng.normal(size=truth.shape)).mask(rng.random(truth.shape) < 0.15)

# %% [markdown]
# `noise="learn"` estimates one level per column, where the other columns explain nearly all of it. If you know the
# levels, from a data sheet say, give them instead: `noise={"sensor 1": 0.3, ...}`.

# %%
rec = Recoverer(noise="learn", random_state=0, verbose=0).fit(table)
clean = rec.transform(table)
pd.DataFrame({"true noise": noise, "estimated": np.round(rec.noise_, 2)}, index=table.columns)

# %%
part, column = slice(0, 120), "sensor 6"
draws = rec.sample(table[part], n_draws=50, row_ids=range(120))
low, high = draws.interval(0.9)
plt.figure(figsize=(8, 3.4), layout="constrained")
plt.fill_between(hours[part], low[column], high[column], color="#cfe3ec", label="90 % interval")
plt.plot(hours[part], table[column][part], ".", color="#9aa5ab", label="measured")
plt.plot(hours[part], truth[column][part], color="#D55E00", lw=1, label="truth")
plt.plot(hours[part], clean[column][part], color="#0072B2", lw=1.5, label="cleaned")
plt.xlabel("hour")
plt.ylabel(column)
plt.legend(ncols=4, fontsize=8)
plt.show()

# %% [markdown]
# The error that remains, compared with the noise of the measured values:

# %%
error = np.sqrt(((clean - truth) ** 2).where(table.notna()).mean())
pd.DataFrame({"measured": noise, "cleaned": error.round(2)})
