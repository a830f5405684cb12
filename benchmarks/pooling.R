# Pooled regressions by mice: Rscript pooling.R METHOD DRAWS < rows "number,x1,...,y". Prints a line of JSON per repeat, as it comes.
arguments <- commandArgs(trailingOnly = TRUE)
method <- if (arguments[1] == "mice pmm") NULL else sub("mice ", "", arguments[1])
suppressMessages(library(mice))
cpu <- function() sum(proc.time()[c(1, 2, 4, 5)])
numbers <- function(values) paste(sprintf("%.10g", values), collapse = ", ")
given <- read.csv(file("stdin"))
for (repetition in unique(given$number)) {
  data <- given[given$number == repetition, names(given) != "number"]
  started <- cpu()
  imputed <- mice(data, m = as.integer(arguments[2]), method = method, seed = repetition, printFlag = FALSE)
  pooled <- summary(pool(with(imputed, lm(formula(paste("y ~", paste(setdiff(names(data), "y"), collapse = " + ")))))), conf.int = TRUE)
  cat(sprintf('{"number": %d, "estimate": [%s], "low": [%s], "high": [%s], "cpu_seconds": %.3f}\n', repetition,
              numbers(pooled$estimate), numbers(pooled[["2.5 %"]]), numbers(pooled[["97.5 %"]]), cpu() - started))
  flush(stdout())
}
