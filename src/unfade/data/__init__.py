"""Any container to features and back: values, which of them were observed, kinds of columns. Knows no network."""
