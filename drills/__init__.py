"""Drills: tests on a cluster of real hosts on one machine, and of faults during a sweep.

`make drill` runs a sweep on the cluster; `make drill-faults` injects faults. The drills need root,
Linux, openssh-server, rsync and iproute2, and take ten to twenty minutes. Each host is a network
namespace with its own address, process table, home folder, /tmp, shared memory and SSH server.
"""
