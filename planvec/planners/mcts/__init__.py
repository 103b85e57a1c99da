"""Monte Carlo tree search. Importing it does not import numba, which `MCTS` imports when it plans.

config      the settings; `setup`: what a search does by them
planner     `MCTS`; `search`: one decision, its evaluation of leaves and rollouts
tree        the tree, its arrays and its file; `subtree`: its compiled queries
simulations    selection, expansion, evaluation and backup, compiled, of the simulations in flight
compiled    searches that run here without the driver
"""
