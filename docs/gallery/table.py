# %% [markdown]
# # Fill a table
#
# A table of measurements loses three cells in ten. Fill it, see the interval of each filled cell, and read how far
# to trust the result.
#
# The data are chemical measurements of 178 wines, which come with scikit-learn. Three cells in ten are removed at
# random, so that the truth is known here; unfade does not see it.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from unfade import Recoverer

truth = load_wine(as_frame=True).data
table = truth.mask(np.random.default_rng(0).random(truth.shape) < 0.3)
table.iloc[:4, :6]

# %% [markdown]
# Fit, fill, draw. `transform` fills each missing cell once, with a mean. `sample` gives completed tables, each equally
# likely given what was observed. Observed cells stay as they are in both.

# %%
rec = Recoverer(random_state=0, verbose=0).fit(table)
clean = rec.transform(table)
draws = rec.sample(table, n_draws=50)
low, high = draws.interval(0.9)
clean.iloc[:4, :6]

# %% [markdown]
# A notebook shows draws as a table: observed values, and bands where draws differ.

# %%
draws

# %% [markdown]
# Filled values with their 90 % intervals, compared with the removed values.

# %%
column = "alcohol"
gone = table[column].isna()
order = truth.loc[gone, column].sort_values().index
place = np.arange(len(order))
plt.figure(figsize=(8, 3.2), layout="constrained")
plt.vlines(place, low.loc[order, column], high.loc[order, column], color="#9cc3d5", lw=4, label="90 % interval")
plt.plot(place, clean.loc[order, column], "o", ms=4, color="#0072B2", label="filled")
plt.plot(place, truth.loc[order, column], "x", ms=5, color="#D55E00", label="removed value")
plt.xlabel(f"missing cells of {column}, by their true value")
plt.ylabel(column)
plt.legend()
plt.show()

# %% [markdown]
# Without the truth, held-out observed cells say how far to trust the result.

# %%
print(rec.diagnose(table))
