"""Width-based planners. Importing them does not import numba, which they import when they plan."""
