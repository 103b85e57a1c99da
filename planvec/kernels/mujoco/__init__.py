"""Kernels of Gymnasium's MuJoCo environments: MuJoCo's C library, called by compiled loops.

`task` declares what an environment computes around its simulation, `locomotion`, `legged` and `others` do so
for Gymnasium's, `simulation` is that of a thread, and `stepper` is what the compiled loops call.
"""
