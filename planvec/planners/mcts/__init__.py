"""Monte Carlo tree search. Importing it does not import numba, which `MCTS` imports when it plans."""
