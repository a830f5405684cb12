# energy-I-Score of stored imputations, from the definition of arXiv 2507.11297:
# Rscript iscore.R TABLE.csv IMPUTED.csv DRAWS.csv, where DRAWS has columns column, row (from 1), draw, value.
files <- commandArgs(trailingOnly = TRUE)
X <- as.matrix(read.csv(files[1])); imputed <- as.matrix(read.csv(files[2])); draws <- read.csv(files[3])
M <- is.na(X); n <- nrow(X)
crps <- function(x, y) mean(abs(x - y)) - mean(abs(outer(x, x, "-"))) / 2
scores <- c(); weights <- c()
for (j in which(colSums(M) >= 10)) {
  observed <- which(!M[, j])
  complete <- setdiff(which(colSums(is.na(X[observed, , drop = FALSE])) == 0), j)
  stopifnot(length(complete) > 0)
  each <- sapply(observed, function(i) crps(draws$value[draws$column == j & draws$row == i], imputed[i, j]))
  p <- mean(M[, j])
  scores <- c(scores, mean(each)); weights <- c(weights, p * (1 - p))
}
cat(sprintf("%.17g\n", sum(scores * weights) / sum(weights)))
