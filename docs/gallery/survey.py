# %% [markdown]
# # A survey with text, dates and codes
#
# Real tables hold words, yes and no, dates and codes such as -99 for "no answer". They come back in their own types,
# and each missing answer has a probability for every category.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unfade import Recoverer

rng = np.random.default_rng(3)
n = 500
age = rng.integers(18, 80, n)
owner = rng.random(n) < 1 / (1 + np.exp(-(age - 45) / 8))
travel = np.where(rng.random(n) < 0.25 + 0.5 * owner, "car", np.where(age < 40, "bicycle", "train"))
hours = np.clip(rng.normal(40 - 0.3 * np.abs(age - 45), 5), 0, None).round()
date = pd.Timestamp("2025-03-01") + pd.to_timedelta(rng.integers(0, 60, n), "D")
truth = pd.DataFrame({"age": age, "owner": owner, "travel": travel, "hours": hours, "date": date})
table = truth.astype({"owner": object, "hours": float})
for column in ("owner", "travel", "hours"):
    table.loc[rng.random(n) < 0.2, column] = None
table.loc[rng.random(n) < 0.1, "age"] = -99
table.head()

# %%
rec = Recoverer(missing={"age": [-99]}, random_state=0, verbose=0).fit(table)
draws = rec.sample(table, n_draws=50)
clean = rec.transform(table)
clean.head()

# %%
shares, names = draws.probabilities("travel")
gone = np.flatnonzero(table["travel"].isna())
order = gone[np.argsort(clean["age"].to_numpy()[gone])]
plt.figure(figsize=(8, 3.2), layout="constrained")
bottom = np.zeros(len(order))
for name, share, colour in zip(names, shares[order].T, ("#0072B2", "#E69F00", "#56B4E9"), strict=True):
    plt.bar(np.arange(len(order)), share, 1.0, bottom, color=colour, label=name)
    bottom += share
plt.xlabel("people who did not say how they travel, youngest first")
plt.ylabel("share of draws")
plt.legend(loc="upper right", fontsize=8)
plt.show()

# %% [markdown]
# The likeliest answer, compared with the removed one, and with the most frequent answer of all:

# %%
right = (clean["travel"].to_numpy() == truth["travel"].to_numpy())[gone].mean()
guess = (truth["travel"][gone] == table["travel"].mode()[0]).mean()
print(f"right: {right:.0%} of {len(gone)} cells; by the most frequent answer: {guess:.0%}")
