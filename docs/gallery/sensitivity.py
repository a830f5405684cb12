# %% [markdown]
# # If values are missing because of themselves
#
# People with high incomes may answer less often. No data can show that, but it can be asked how strong the effect
# would have to be to change a conclusion.
#
# Here incomes were in fact hidden more often where they are high. Draws cannot know it: they are too low.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.formula.api as smf

from unfade import Recoverer
from unfade.downstream import tipping_points

rng = np.random.default_rng(8)
n = 500
school = rng.normal(size=n)
income = 0.5 * school + 0.87 * rng.normal(size=n)
health = 0.12 * income + 0.1 * school + rng.normal(size=n)
table = pd.DataFrame({"school": school, "income": income, "health": health})
table.loc[rng.random(n) < 1 / (1 + np.exp(-2 * (income - 0.5))), "income"] = np.nan

# %%
rec = Recoverer(random_state=0, verbose=0).fit(table)
draws = rec.sample(table, n_draws=20)
gone = table["income"].isna()
print(f"{gone.mean():.0%} missing; mean income: truth {income.mean():.2f}, draws {draws.mean()['income'].mean():.2f}")

# %% [markdown]
# `tipping_points` shifts the missing incomes by some standard deviations, and repeats the pooled analysis each time.


# %%
def analysis(each):
    return smf.ols("health ~ income + school", data=each).fit()


points = tipping_points(draws, "income", analysis, shifts=np.linspace(-1, 2, 7))
shifts = [shift for shift, _ in points]
slopes = [result.estimate[1] for _, result in points]
ends = np.array([[end[1] for end in result.interval()] for _, result in points])
plt.figure(figsize=(8, 3.2), layout="constrained")
plt.fill_between(shifts, *ends.T, color="#cfe3ec", label="95 % interval")
plt.plot(shifts, slopes, "o-", color="#0072B2", label="slope of income")
plt.axhline(0, color="#222", lw=1)
plt.xlabel("shift of the missing incomes, in standard deviations")
plt.ylabel("slope")
plt.legend(fontsize=8)
plt.show()

# %%
whole = analysis(pd.DataFrame({"school": school, "income": income, "health": health}))
print(f"slope: all incomes known {whole.params['income']:.2f}, pooled without a shift {slopes[2]:.2f}")
