"""Monte Carlo tree search. Importing it does not import numba, which `MCTS` imports when it plans.

config      the settings; `setup` and `adaptation` derive what a search does
planner     `MCTS`; `search`: one decision, its evaluation of leaves, rollouts and transpositions
phases      selection (UCT, PUCT), halving, expansion and backup, compiled
tree, arrays, subtree    the tree, its arrays, and parts of it
simulations, memory      the simulations in flight, compiled, and what they hold
compiled    searches that run here without the driver
"""
