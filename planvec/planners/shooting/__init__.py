"""Planners that roll out whole action sequences."""
