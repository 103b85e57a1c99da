"""Novelty of observations: which of their features were seen before in a decision.

features    screens and numbers to codes, and tables of the codes that were seen, compiled
numbers     what observations hold; it imports no numba
"""
