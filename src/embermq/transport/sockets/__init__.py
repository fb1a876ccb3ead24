"""Sockets that are accepted, read from and written to by the server itself, all of them with one epoll.

Where a system has no epoll, the event loop's own transports do this.
"""
