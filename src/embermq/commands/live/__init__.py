"""Commands about a running server: who is connected, which sessions there are, a live view, and reading users again.

They ask the HTTP interface on the socket in the data directory (docs/http.md).
"""
