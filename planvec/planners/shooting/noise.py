"""Coloured noise: random sequences that change slowly. Letters: L numbers of a sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_BETA = 10.0  # highest exponent: beyond it all power is in the lowest frequency, and only rounding differs


def colored_noise(
    generator: np.random.Generator, beta: float, shape: tuple[int, ...], num_numbers: int
) -> NDArray[np.float64]:
    """Draw Gaussian sequences whose power falls with the frequency `f` as `f**-beta`."""
    # Every number is normal with mean 0 and variance 1, whatever `beta`; only the correlations differ.
    # Independent noise (`beta` 0) cancels out before a slow system has moved; noise of 1 (pink) or 2 (red, a
    # random walk) pushes in one direction for a while.
    # It is drawn in the frequency domain (Timmer and König 1995, "On generating power law noise"), as iCEM
    # does (Pinneri et al. 2020, section 3.1); the constant part has the power of the lowest frequency.
    # Sequences are periodic: the end of one is as close to its beginning as two neighbours are.
    # `shape`: Shape of the batch of sequences.
    # Returns `[*shape, L]`.
    if beta == 0:
        return generator.standard_normal((*shape, num_numbers))
    frequencies = np.fft.rfftfreq(num_numbers)
    frequencies[0] = 1.0 / num_numbers
    scale = frequencies ** (-beta / 2.0)
    parts = generator.standard_normal((2, *shape, len(scale)))
    # The constant part and, for an even length, the alternating part are real: all power is in one number.
    real = [0, -1] if num_numbers % 2 == 0 else [0]
    parts[0][..., real] *= np.sqrt(2.0)
    parts[1][..., real] = 0.0
    power = 4.0 * scale**2
    power[real] = 2.0 * scale[real] ** 2
    spectrum = (parts[0] + 1j * parts[1]) * scale
    noise: NDArray[np.float64] = np.fft.irfft(spectrum, num_numbers) * (num_numbers / np.sqrt(power.sum()))
    return noise
