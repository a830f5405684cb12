"""The paper, experiment by experiment: `unfade reproduce NAME`."""
