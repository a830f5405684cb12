# %% [markdown]
# # Pool a regression over draws
#
# Fit the regression to each completed table, and combine the results by Rubin's rules. Standard errors then contain
# what the missing cells leave unknown.
#
# Predictors are missing more often where the outcome is large, so complete rows alone are a biased choice of rows.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

from unfade import Recoverer
from unfade.downstream import pool

rng = np.random.default_rng(4)
n = 600
a = rng.normal(size=n)
b = 0.6 * a + 0.8 * rng.normal(size=n)
y = 1 + 1.0 * a + 0.5 * b + rng.normal(size=n)
table = pd.DataFrame({"y": y, "a": a, "b": b})
for column in ("a", "b"):
    table.loc[rng.random(n) < 0.7 / (1 + np.exp(-1.5 * (y - 1))), column] = np.nan
print(f"{table['a'].isna().mean():.0%} of a and {table['b'].isna().mean():.0%} of b are missing")

# %%
rec = Recoverer(random_state=0, verbose=0).fit(table)
draws = rec.sample(table, n_draws=20)
pooled = pool(smf.ols("y ~ a + b", data=each).fit() for each in draws)
print(pooled)

# %%
alone = smf.ols("y ~ a + b", data=table.dropna()).fit()
low, high = pooled.interval(0.95)
plt.figure(figsize=(8, 2.8), layout="constrained")
for i, (name, true) in enumerate({"Intercept": 1.0, "a": 1.0, "b": 0.5}.items()):
    ends = alone.conf_int().loc[name]
    plt.plot([low[i], high[i]], [i + 0.12] * 2, color="#0072B2", lw=3, label="pooled over draws" if i == 0 else None)
    plt.plot(ends, [i - 0.12] * 2, color="#E69F00", lw=3, label="complete rows alone" if i == 0 else None)
    plt.plot([true] * 2, [i - 0.3, i + 0.3], color="#222", lw=1, label="true value" if i == 0 else None)
plt.yticks(range(3), ["intercept", "slope of a", "slope of b"])
plt.xlabel("95 % interval")
plt.legend(fontsize=8)
plt.show()
