"""Where a sweep trains: the connection to Ray, and its capacity.

In come options and the address of a cluster; out come workers that have room.
Read `connection.py` first.
"""
