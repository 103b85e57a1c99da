"""Kernels of Gymnasium's MuJoCo environments: MuJoCo's C library, called by compiled loops.

`task` declares what an environment computes around its simulation, `tasks` does so for Gymnasium's, and
`stepper` simulates: it is what the compiled loops call.
"""
