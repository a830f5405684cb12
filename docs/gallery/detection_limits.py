# %% [markdown]
# # Detection limits
#
# A laboratory reports `<0.5` where it cannot measure a concentration. Draws of such cells stay below the limit, and
# follow what the other columns say.
#
# Half of the limit, as is often written in, distorts means and correlations.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from unfade import Recoverer

rng = np.random.default_rng(2)
depth = rng.normal(size=200)
lead = np.exp(0.6 * depth - 0.6 + 0.35 * rng.normal(size=200))
zinc = np.exp(0.5 * depth + 1 + 0.35 * rng.normal(size=200))
table = pd.DataFrame({"depth": 10 + 3 * depth, "lead": lead.round(3).astype(str), "zinc": zinc.round(3)})
table.loc[lead < 0.5, "lead"] = "<0.5"
table.loc[rng.random(200) < 0.1, "zinc"] = np.nan
table.head()

# %%
rec = Recoverer(random_state=0, verbose=0).fit(table)
draws = rec.sample(table, n_draws=20)
filled = draws.values[:, :, 1]
below = lead < 0.5
print("cells below the limit:", int(below.sum()), "· largest draw there:", round(float(filled[:, below].max()), 3))

# %%
half = np.where(below, 0.25, lead)
shown = {"truth": lead[None], "draws": filled, "half of the limit": half[None]}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
edges = np.linspace(0, 0.5, 21)
left.hist(lead[below], edges, density=True, color="#9aa5ab", alpha=0.7, label="truth")
left.hist(filled[:, below].ravel(), edges, density=True, histtype="step", color="#0072B2", lw=2, label="draws")
left.axvline(0.25, color="#D55E00", label="half of the limit")
left.set_xlabel("lead, cells below 0.5")
left.legend(fontsize=8)
means = [each[:, below].mean() for each in shown.values()]
right.barh(list(shown)[::-1], means[::-1], color=["#D55E00", "#0072B2", "#9aa5ab"])
right.set_xlabel("mean of lead, cells below 0.5")
plt.show()

# %%
pd.DataFrame(
    {
        "mean below the limit": {name: each[:, below].mean() for name, each in shown.items()},
        "correlation with zinc": {
            name: np.mean([np.corrcoef(v, zinc)[0, 1] for v in each]) for name, each in shown.items()
        },
        "the same, below the limit": {
            name: np.mean([np.corrcoef(v[below], zinc[below])[0, 1] for v in each])
            if name != "half of the limit"
            else np.nan
            for name, each in shown.items()
        },
    }
).round(3)
