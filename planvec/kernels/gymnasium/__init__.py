"""Kernels of Gymnasium's classic control and toy text; `planvec.kernels.choice` knows their classes."""
