"""Runs workers in processes. `conversation` shows the messages, and `worker` the states of a process."""
