"""Drills: a cluster of real hosts on one machine, and what may befall it.

`make drill` runs them. They need root, Linux, openssh-server, rsync and iproute2, and ten
to twenty minutes. Each host is a network namespace with an address, process table, home
folder, /tmp, shared memory and ssh server of its own; docs/cluster.md says what that
proves and what it cannot.
"""
