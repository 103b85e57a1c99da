"""Novelty of observations: which of their features were seen before in a decision.

features    observations to codes; `numbers` of any space
tables      what was seen, by code; compiled for `screens` and for `values`
"""
