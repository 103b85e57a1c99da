"""Planners with a swarm of walkers that clone each other (Fractal Monte Carlo).

Importing it does not import numba, which the planners import when they plan.
"""
