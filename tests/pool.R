# What R's mice makes of draws that were handed to it: Rscript pool.R LONG.csv WHERE.csv, results as JSON.
suppressMessages(library(mice))
files <- commandArgs(trailingOnly = TRUE)
long <- read.csv(files[1], check.names = FALSE, stringsAsFactors = TRUE)
where <- as.matrix(sapply(read.csv(files[2], check.names = FALSE), as.logical))
imputed <- suppressWarnings(as.mids(long, where = where))
full <- with(imputed, lm(y ~ x + z + g))
reduced <- with(imputed, lm(y ~ x))
logit <- with(imputed, glm(b ~ x + z, family = binomial, control = list(epsilon = 1e-14)))
json <- function(values) paste0("[", paste(sprintf("%.17g", as.numeric(values)), collapse = ", "), "]")
pooled <- function(fit) {
  found <- pool(fit)$pooled
  parts <- c(estimate = "estimate", std_error = "t", df = "df", riv = "riv", lambda = "lambda", fmi = "fmi")
  values <- lapply(names(parts), function(n) if (n == "std_error") sqrt(found$t) else found[[parts[[n]]]])
  paste0("{", paste(sprintf('"%s": %s', names(parts), sapply(values, json)), collapse = ", "), "}")
}
test <- function(found) json(found$test[1, c("F.value", "df1", "df2", "RIV")])
dfcom <- df.residual(full$analyses[[1]])
a <- full$analyses; b <- reduced$analyses
tests <- c(
  d1 = test(mitml::testModels(a, b, method = "D1", df.com = dfcom)),
  d1_large = test(mitml::testModels(a, b, method = "D1")),
  d2 = test(mitml::testModels(a, b, method = "D2", use = "wald")),
  d3 = test(mitml::testModels(a, b, method = "D3"))
)
wald <- sapply(seq_along(a), function(i) {
  keep <- !(names(coef(a[[i]])) %in% names(coef(b[[i]])))
  q <- coef(a[[i]])[keep]
  drop(t(q) %*% solve(vcov(a[[i]])[keep, keep]) %*% q)
})
cat(sprintf('{"mice": "%s", "linear": %s, "logistic": %s, "wald": %s, %s}\n', packageVersion("mice"), pooled(full),
  pooled(logit), json(wald), paste(sprintf('"%s": %s', names(tests), tests), collapse = ", ")))
