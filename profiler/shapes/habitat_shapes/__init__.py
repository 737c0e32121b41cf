"""Traces one training step by its shapes: no memory taken, nothing computed, no GPU."""
