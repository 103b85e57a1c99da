"""Saves and restores environments of any class: by a pickle of their attributes, or by replay."""
