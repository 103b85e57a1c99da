"""Monte Carlo tree search. Importing it does not import numba, which `MCTS` imports when it plans.

config      the settings; `setup`: what a search does by them
planner     `MCTS`; `search`: one decision, its evaluation of leaves and rollouts
tree, arrays, subtree    the tree, the arrays of a search, and parts of a tree
phases      selection (UCT, PUCT), halving and backup, compiled
simulations    the simulations in flight, compiled: their requests, expansion, transpositions
compiled    searches that run here without the driver
"""
