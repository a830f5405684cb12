# Imputers of R: Rscript peers.R NAME IN OUT DRAWS SEED NOISE. Writes draws as rows of one table; prints CPU seconds and peak memory.
arguments <- commandArgs(trailingOnly = TRUE)
name <- arguments[1]; data <- read.csv(arguments[2], stringsAsFactors = TRUE, check.names = FALSE); draws <- as.integer(arguments[4])
seed <- as.integer(arguments[5]); noise <- as.numeric(arguments[6])
suppressMessages(library(if (startsWith(name, "mice")) "mice" else "Amelia", character.only = TRUE))
cpu <- function() sum(proc.time()[c(1, 2, 4, 5)])  # user and system, with children
started <- cpu()
if (startsWith(name, "mice")) {
  method <- if (name == "mice pmm") NULL else sub("mice ", "", name)
  # collinear columns are imputed like others (the default leaves them empty); five rounds, its default
  imputed <- mice(data, m = draws, method = method, seed = seed, printFlag = FALSE, remove.collinear = FALSE)
  made <- complete(imputed, "long", include = FALSE)[, names(data)]
} else {
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
spent <- cpu() - started
status <- tryCatch(readLines("/proc/self/status"), error = function(e) character())
peak <- as.numeric(gsub("[^0-9]", "", grep("^VmHWM", status, value = TRUE))) / 1024
version <- as.character(packageVersion(if (startsWith(name, "mice")) "mice" else "Amelia"))
cat(sprintf('{"cpu_seconds": %.3f, "memory": %s, "version": "%s"}\n', spent, if (length(peak)) sprintf("%.1f", peak) else "null", version))
write.csv(made, arguments[3], row.names = FALSE)
