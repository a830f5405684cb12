"""Objectives, the step, the loop, early stopping, checkpoints, several processes."""
