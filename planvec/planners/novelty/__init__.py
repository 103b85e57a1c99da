"""Novelty of observations: which of their features were seen before in a decision.

features    screens and numbers to codes, and tables of the codes that were seen, compiled
branches    compares the branches of a tree, compiled
pixels      pictures of few pixels, compiled
numbers     what observations hold; it imports no numba
"""
