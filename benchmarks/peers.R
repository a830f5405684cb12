# Imputers of R: Rscript peers.R NAME IN OUT DRAWS SEED NOISE. Writes draws as rows of one table and prints the seconds.
arguments <- commandArgs(trailingOnly = TRUE)
name <- arguments[1]; data <- read.csv(arguments[2], stringsAsFactors = TRUE, check.names = FALSE); draws <- as.integer(arguments[4])
seed <- as.integer(arguments[5]); noise <- as.numeric(arguments[6])
started <- proc.time()[["elapsed"]]
if (startsWith(name, "mice")) {
  suppressMessages(library(mice))
  method <- if (name == "mice cart") "cart" else NULL
  imputed <- mice(data, m = draws, method = method, seed = seed, printFlag = FALSE)
  made <- complete(imputed, "long", include = FALSE)[, -(1:2)]
} else {
  suppressMessages(library(Amelia))
  set.seed(seed)
  if (noise > 0) {  # multiple overimputation: every observed cell is a draw too, and is told its share of noise
    cells <- which(!is.na(data), arr.ind = TRUE)
    priors <- cbind(cells, mean = data[cells], sd = noise)
    data$anything <- rnorm(nrow(data))  # Amelia refuses rows in which every cell is to be imputed
    fitted <- amelia(data, m = draws, p2s = 0, overimp = cells, priors = priors, empri = 0.01 * nrow(data))
    fitted$imputations <- lapply(fitted$imputations, function(table) table[, names(table) != "anything"])
  } else fitted <- amelia(data, m = draws, p2s = 0, empri = 0.01 * nrow(data))
  made <- do.call(rbind, fitted$imputations)
}
cat(sprintf('{"seconds": %.3f}\n', proc.time()[["elapsed"]] - started))
write.csv(made, arguments[3], row.names = FALSE)
