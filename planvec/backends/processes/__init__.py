"""Runs workers in processes.

worker      the client of a process (see `backends.client`), and what users and backends hold of it
requests    writes requests and answers; `slab` is the memory that both processes share
starting    starts and ends a process; `template` forks workers, `child` is what runs in a worker
channel, system    sockets; what `/proc` says
"""
