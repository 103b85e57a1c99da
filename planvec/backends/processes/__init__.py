"""Runs workers in processes.

worker      a worker that is restarted in a new process, and what users and backends hold of it
messenger   its requests and answers; `requests` writes them, `slab` is the memory that both share
starting    starts and ends a process; `template` forks workers, `child` is what runs in a worker
channel, system    sockets; what `/proc` says
"""
